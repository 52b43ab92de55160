package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// route is one path. Every route answers GET and HEAD.
type route struct {
	// post answers POST, which changes state: as long as there is no login it is for
	// this machine only. nil: POST is not allowed.
	post    http.HandlerFunc
	pattern string // of http.ServeMux, without a method
	doc     string // for the index; "" keeps it out
	serve   http.HandlerFunc
	// local routes change state or show record bytes: as long as there is no
	// login they are for this machine only.
	local bool
}

func (s *Server) routes() []route {
	return []route{
		{pattern: "/{$}", serve: redirect("/v1/stream/")},
		{pattern: "/v1/stream", serve: redirect("/v1/stream/")},
		{pattern: "/v1/stream/{$}", serve: s.index},
		{pattern: "/v1/stream/status", doc: "this gateway, its store and its durability", serve: s.status},
		{pattern: "/v1/stream/topics", doc: "topics and partitions (?topic=)", serve: s.topics},
		{pattern: "/v1/stream/topics/{topic}/compaction", doc: "how far a topic is compacted; POST asks for it", serve: s.compaction, post: s.compact},
		{pattern: "/v1/stream/groups", doc: "committed offsets (?group=, ?topic=)", serve: s.groups},
		{pattern: "/healthz", doc: "ok if NATS is connected (not for liveness probes)", serve: s.healthz},
		{pattern: "/livez", doc: "ok if the process answers", serve: s.livez},
		{pattern: "/readyz", doc: "whether to send clients here, with each check", serve: s.readyz},
		{pattern: "/metrics", doc: "Prometheus metrics", serve: s.metrics.ServeHTTP},
	}
}

func redirect(to string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, to, http.StatusMovedPermanently) }
}

// index lists the endpoints as text.
func (s *Server) index(w http.ResponseWriter, _ *http.Request) {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n", Service)
	for _, rt := range s.table {
		if rt.doc != "" {
			fmt.Fprintf(&b, "GET %-20s %s\n", rt.pattern, rt.doc)
		}
	}
	writeText(w, http.StatusOK, b.String())
}

func (s *Server) status(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := s.context(r)
	defer cancel()
	st := s.backend.Status()
	st.Compaction = s.backend.Cleaner(ctx)
	st.Service = Service
	st.Reasons = notNil(st.Reasons)
	st.Gateways = notNil(st.Gateways)
	st.Listeners = notNil(st.Listeners)
	st.Warnings = notNil(st.Warnings)
	st.LateTransactions = notNil(st.LateTransactions)
	st.Compaction.Failing = notNil(st.Compaction.Failing)
	writeJSON(w, http.StatusOK, st)
}

func (s *Server) topics(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := s.context(r)
	defer cancel()
	ts, err := s.backend.Topics(ctx, r.URL.Query().Get("topic"))
	if err != nil {
		s.failure(w, r, err)
		return
	}
	ts = notNil(ts)
	slices.SortFunc(ts, func(a, b Topic) int { return cmp.Compare(a.Name, b.Name) })
	for i := range ts {
		ts[i].Partitions = notNil(ts[i].Partitions)
		slices.SortFunc(ts[i].Partitions, func(a, b Partition) int { return cmp.Compare(a.Partition, b.Partition) })
	}
	writeJSON(w, http.StatusOK, ts)
}

func (s *Server) groups(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := s.context(r)
	defer cancel()
	q := r.URL.Query()
	os, err := s.backend.Offsets(ctx, q.Get("group"), q.Get("topic"))
	if err != nil {
		s.failure(w, r, err)
		return
	}
	os = notNil(os)
	slices.SortFunc(os, func(a, b Offset) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	writeJSON(w, http.StatusOK, os)
}

func (s *Server) healthz(w http.ResponseWriter, _ *http.Request) {
	if !s.backend.Status().Connected {
		writeText(w, http.StatusServiceUnavailable, "nats disconnected\n")
		return
	}
	writeText(w, http.StatusOK, "ok\n")
}

// livez never looks at the store: an outage must not restart every process.
func (s *Server) livez(w http.ResponseWriter, _ *http.Request) { writeText(w, http.StatusOK, "ok\n") }

func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := s.context(r)
	defer cancel()
	body := struct {
		Ready  bool    `json:"ready"`
		Checks []Check `json:"checks"`
	}{true, notNil(s.backend.Ready(ctx))}
	for _, c := range body.Checks {
		body.Ready = body.Ready && c.OK
	}
	status := http.StatusOK
	if !body.Ready {
		status = http.StatusServiceUnavailable
	}
	writeJSON(w, status, body)
}

// context bounds what a request asks of the store, so that an answer can still
// be written in time.
func (s *Server) context(r *http.Request) (context.Context, context.CancelFunc) {
	return context.WithTimeout(r.Context(), s.config.Timeout/2)
}

func notNil[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

func writeText(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text)) // the client may be gone
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		writeProblem(w, http.StatusInternalServerError, codeInternal, err.Error(), "")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // the client may be gone
}
