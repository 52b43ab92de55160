package admin

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/hanzoai/stream/logging"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type fake struct {
	status Status
	topics func(ctx context.Context, name string) ([]Topic, error)
	groups func(ctx context.Context, group, topic string) ([]Offset, error)
	ready  []Check
	// asked is a POST.
	compaction func(topic string, asked bool) (TopicCompaction, error)
}

func (f *fake) Status() Status {
	st := f.status
	st.Compaction = Compaction{}
	return st
}
func (f *fake) Cleaner(context.Context) Compaction { return f.status.Compaction }
func (f *fake) Topics(ctx context.Context, n string) ([]Topic, error) {
	return f.topics(ctx, n)
}
func (f *fake) Offsets(ctx context.Context, g, t string) ([]Offset, error) {
	return f.groups(ctx, g, t)
}
func (f *fake) Compaction(_ context.Context, n string) (TopicCompaction, error) {
	return f.compaction(n, false)
}
func (f *fake) Compact(_ context.Context, n string) (TopicCompaction, error) {
	return f.compaction(n, true)
}
func (f *fake) Ready(context.Context) []Check { return f.ready }

func newServer(b Backend, logger *slog.Logger) *Server {
	return New(Config{}, b, NewRegistry("1.2.3", "abc", "go1"), logger)
}

func do(t *testing.T, s *Server, method, target string) *http.Response {
	t.Helper()
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, httptest.NewRequest(method, target, nil))
	return w.Result()
}

func body(t *testing.T, r *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func checkProblem(t *testing.T, r *http.Response, status int, code string) Problem {
	t.Helper()
	var p Problem
	text := body(t, r)
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		t.Fatalf("no problem document: %q", text)
	}
	if r.StatusCode != status || p.Status != status || p.Code != code || p.Title != http.StatusText(status) ||
		p.Type != "about:blank" || r.Header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("status %d, %+v; want %d %s", r.StatusCode, p, status, code)
	}
	return p
}

// The field names are fixed: what they are is written out here, not derived.
func TestFieldNames(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 30, 8, 0, 0, 0, time.UTC)
	b := &fake{
		status: Status{
			KafkaPort: 9092, AdminPort: 9093, PubsubURL: "embedded", Connected: true, NodeID: 1, Version: "v", ClusterID: "c", Ready: true, UptimeSeconds: 5,
			Gateways:         []Gateway{{1, "h", 9092}},
			Listeners:        []Listener{{"kafka", "0.0.0.0:9092", "PLAINTEXT"}},
			NATS:             NATS{"2.15.2", 8388608, 1048588},
			Durability:       Durability{Level: "r1-always", Sentence: "s", Sync: "always"},
			LateTransactions: []LateTransaction{{"a", 1, 4000, 7, 1300}},
			Compaction: Compaction{Cleaner: Cleaner{"running", 2, "", &CompactionRun{"t-0", at, 3, 9}}, Topics: 2, Last: &CompactionResult{"t-1", at.Add(-time.Hour), 1.5, 90, 80, 8, 800, 81, 2},
				Failing: []CompactionFailure{{"t-2", "no", at, at.Add(time.Minute)}}},
		},
		compaction: func(n string, _ bool) (TopicCompaction, error) {
			return TopicCompaction{n, true, Cleaner{State: "unknown", Gateway: 2, Detail: "why"}, []PartitionCompaction{{Partition: 0, CompactedTo: 5, Wanted: 7, Records: 2, Bytes: 99, LastRun: &at, Running: &CompactionRun{n + "-0", at, 1, 2}}, {Partition: 1, Error: "no", Again: &at}}}, nil
		},
		topics: func(context.Context, string) ([]Topic, error) {
			return []Topic{
				{Name: "b"},
				{Name: "a", Partitions: []Partition{{Partition: 1}, {Partition: 0, Messages: 2, FirstSeq: 1, LastSeq: 2, Bytes: 9, Stream: "kafka-a-0",
					Subject: "kafka.a.0", StartOffset: 0, EndOffset: 7, LastStableOffset: 4, OpenTransactionSeconds: 9, Leader: 1, Replicas: 3, InSync: 2}}},
			}, nil
		},
		groups: func(context.Context, string, string) ([]Offset, error) {
			return []Offset{{"g", "t", 1, 4}, {"g", "t", 0, 5}, {"f", "z", 0, -1}}, nil
		},
		ready: []Check{{"nats", true, ""}},
	}
	s := newServer(b, logging.Discard())
	for target, want := range map[string]string{
		"/v1/stream/status": `{"service":"hanzo-stream","kafka_port":9092,"admin_port":9093,"pubsub_url":"embedded","pubsub_connected":"connected","node_id":1,` +
			`"version":"v","cluster_id":"c","ready":true,"reasons":[],"uptime_seconds":5,"gateways":[{"node_id":1,"host":"h","port":9092}],` +
			`"listeners":[{"name":"kafka","address":"0.0.0.0:9092","security":"PLAINTEXT"}],` +
			`"nats":{"server_version":"2.15.2","max_payload":8388608,"max_message_bytes":1048588},` +
			`"durability":{"level":"r1-always","sentence":"s","sync":"always"},"warnings":[],` +
			`"late_transactions":[{"topic":"a","partition":1,"producer_id":4000,"first_offset":7,"open_seconds":1300}],` +
			`"compaction":{"state":"running","gateway":2,"running":{"partition":"t-0","since":"2026-11-30T08:00:00Z","done_bytes":3,"of_bytes":9},"topics":2,` +
			`"last":{"partition":"t-1","ended":"2026-11-30T07:00:00Z","seconds":1.5,"compacted_to":90,"records_in":80,"records_out":8,"bytes_in":800,"bytes_out":81,"passes":2},"failing":[{"partition":"t-2","error":"no","at":"2026-11-30T08:00:00Z","again":"2026-11-30T08:01:00Z"}]}}`,
		"/v1/stream/topics": `[{"name":"a","partitions":[{"partition":0,"messages":2,"first_seq":1,"last_seq":2,"bytes":9,"stream":"kafka-a-0","subject":"kafka.a.0",` +
			`"start_offset":0,"end_offset":7,"last_stable_offset":4,"open_transaction_seconds":9,"leader":1,"replicas":3,"in_sync":2},{"partition":1,"messages":0,"first_seq":0,"last_seq":0,"bytes":0,"stream":"","subject":"",` +
			`"start_offset":0,"end_offset":0,"last_stable_offset":0,"leader":0,"replicas":0,"in_sync":0}]},{"name":"b","partitions":[]}]`,
		"/v1/stream/groups": `[{"group":"f","topic":"z","partition":0,"offset":-1},{"group":"g","topic":"t","partition":0,"offset":5},{"group":"g","topic":"t","partition":1,"offset":4}]`,
		"/v1/stream/topics/a.b/compaction": `{"topic":"a.b","compacted":true,"cleaner":{"state":"unknown","gateway":2,"detail":"why"},"partitions":[{"partition":0,"compacted_to":5,"wanted":7,"records":2,"bytes":99,` +
			`"last_run":"2026-11-30T08:00:00Z","running":{"partition":"a.b-0","since":"2026-11-30T08:00:00Z","done_bytes":1,"of_bytes":2}},` +
			`{"partition":1,"compacted_to":0,"wanted":0,"records":0,"bytes":0,"error":"no","again":"2026-11-30T08:00:00Z"}]}`,
		"/readyz": `{"ready":true,"checks":[{"name":"nats","ok":true}]}`,
	} {
		r := do(t, s, http.MethodGet, target)
		if got := strings.TrimSpace(body(t, r)); got != want || r.StatusCode != 200 || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %d %s\n%s\nwant\n%s", target, r.StatusCode, r.Header.Get("Content-Type"), got, want)
		}
	}
}

func TestFiltersArePassedOn(t *testing.T) {
	t.Parallel()
	var got []string
	b := &fake{
		topics: func(_ context.Context, n string) ([]Topic, error) { got = append(got, n); return nil, nil },
		groups: func(_ context.Context, g, n string) ([]Offset, error) {
			got = append(got, g, n)
			return nil, nil
		},
	}
	s := newServer(b, logging.Discard())
	for _, target := range []string{"/v1/stream/topics?topic=a%2Fb", "/v1/stream/groups?group=%3Cscript%3E&topic=t", "/v1/stream/topics"} {
		if text := body(t, do(t, s, http.MethodGet, target)); text != "[]\n" {
			t.Errorf("%s: %q, want an empty list", target, text)
		}
	}
	if fmt.Sprint(got) != "[a/b <script> t ]" {
		t.Errorf("filters %q", got)
	}
}

func TestStoreFailureIs503(t *testing.T) {
	t.Parallel()
	fail := errors.New("list streams at nats://u:pw@h: store unavailable")
	var log bytes.Buffer
	s := newServer(&fake{
		topics: func(context.Context, string) ([]Topic, error) { return nil, fail },
		groups: func(context.Context, string, string) ([]Offset, error) { return nil, fail },
		ready:  []Check{{"nats", false, "down"}, {"listeners", true, ""}},
	}, logging.New(&log, logging.Options{}))
	for _, target := range []string{"/v1/stream/topics", "/v1/stream/groups"} {
		p := checkProblem(t, do(t, s, http.MethodGet, target), 503, "store_unavailable")
		if p.Hint == "" || strings.Contains(p.Detail, "pw@") {
			t.Errorf("%+v", p)
		}
	}
	for target, want := range map[string]int{"/healthz": 503, "/readyz": 503, "/livez": 200, "/v1/stream/status": 200} {
		if r := do(t, s, http.MethodGet, target); r.StatusCode != want {
			t.Errorf("%s: %d, want %d", target, r.StatusCode, want)
		}
	}
	if text := body(t, do(t, s, http.MethodGet, "/v1/stream/status")); !strings.Contains(text, `"pubsub_connected":"disconnected"`) {
		t.Error(text)
	}
	if n := strings.Count(log.String(), "could not be asked"); n != 2 || strings.Contains(log.String(), "pw@") {
		t.Errorf("%d log lines: %s", n, log.String())
	}
}

func TestRoutes(t *testing.T) {
	t.Parallel()
	s := newServer(&fake{status: Status{Connected: true}}, logging.Discard())
	if r := do(t, s, http.MethodGet, "/"); r.StatusCode != 301 || r.Header.Get("Location") != "/v1/stream/" {
		t.Errorf("/: %d %s", r.StatusCode, r.Header.Get("Location"))
	}
	r := do(t, s, http.MethodGet, "/v1/stream/")
	text := body(t, r)
	for _, rt := range s.routes() {
		if rt.doc != "" && !strings.Contains(text, rt.pattern) {
			t.Errorf("index lacks %s", rt.pattern)
		}
	}
	if !strings.HasPrefix(r.Header.Get("Content-Type"), "text/plain") || r.Header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("headers %v", r.Header)
	}
	if r := do(t, s, http.MethodGet, "/healthz"); r.StatusCode != 200 || body(t, r) != "ok\n" {
		t.Errorf("/healthz %d", r.StatusCode)
	}
	for _, target := range []string{"/nothing", "/v1/stream/nothing", "/v1/stream/..%2fstatus", "/v1/stream/../status", "//", "/v1//stream/status", "/healthz/", "/v1/stream/status/x"} {
		checkProblem(t, do(t, s, http.MethodGet, target), 404, "not_found")
	}
	for _, method := range []string{"POST", "PUT", "DELETE", "PATCH", "TRACE", "OPTIONS", "CONNECT", "NONSENSE"} {
		for _, target := range []string{"/v1/stream/status", "/metrics", "/", "/livez"} {
			r := do(t, s, method, target)
			checkProblem(t, r, 405, "method_not_allowed")
			if r.Header.Get("Allow") != "GET, HEAD" {
				t.Errorf("%s %s: Allow %q", method, target, r.Header.Get("Allow"))
			}
		}
	}
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	s := newServer(&fake{}, logging.Discard())
	text := body(t, do(t, s, http.MethodGet, "/metrics"))
	for _, want := range []string{`stream_build_info{commit="abc",go_version="go1",version="1.2.3"} 1`, "go_goroutines ", "process_"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

func TestLocalRoutes(t *testing.T) {
	t.Parallel()
	s := newServer(&fake{}, logging.Discard())
	s.table = append(s.table, route{pattern: "/v1/stream/secret", local: true, serve: s.livez})
	s.build()
	for _, c := range []struct {
		peer, host, origin string
		ok                 bool
	}{
		{"127.0.0.1:5", "localhost:9093", "", true},
		{"[::1]:5", "[::1]:9093", "", true},
		{"127.0.0.1:5", "127.0.0.1", "", true},
		{"127.0.0.1:5", "localhost:9093", "http://localhost:9093", true},
		{"127.0.0.1:5", "localhost:9093", "http://evil.example", false},
		{"127.0.0.1:5", "evil.example", "", false},
		{"127.0.0.1:5", "", "", false},
		{"10.0.0.1:5", "localhost", "", false},
		{"", "localhost", "", false},
	} {
		r := httptest.NewRequest(http.MethodGet, "/v1/stream/secret", nil)
		r.RemoteAddr, r.Host = c.peer, c.host
		if c.origin != "" {
			r.Header.Set("Origin", c.origin)
		}
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r)
		if c.ok != (w.Code == 200) {
			t.Errorf("%+v: %d", c, w.Code)
		}
		if !c.ok {
			checkProblem(t, w.Result(), 403, "local_only")
		}
	}
}

// TestPost: what changes state is asked for by POST, from this machine only; a
// refusal is told as one, and never logged as a failure of the store.
func TestPost(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	s := newServer(&fake{compaction: func(n string, asked bool) (TopicCompaction, error) {
		switch n {
		case "t":
			return TopicCompaction{Topic: n, Compacted: asked}, nil
		case "away":
			return TopicCompaction{}, errors.New("store unavailable")
		}
		return TopicCompaction{}, &Refusal{Status: 404, Code: "unknown_topic", KafkaError: "UNKNOWN_TOPIC_OR_PARTITION", Detail: "no topic " + n, Hint: "h"}
	}}, logging.New(&log, logging.Options{}))
	ask := func(method, peer, topic string) *http.Response {
		r := httptest.NewRequest(method, "/v1/stream/topics/"+topic+"/compaction", nil)
		r.RemoteAddr, r.Host = peer, "localhost:9093"
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r)
		return w.Result()
	}
	const here, there = "127.0.0.1:5", "10.0.0.1:5"
	if r := ask("POST", here, "t"); r.StatusCode != 202 || body(t, r) != `{"topic":"t","compacted":true,"cleaner":{"state":""},"partitions":[]}`+"\n" {
		t.Errorf("%d", r.StatusCode)
	}
	if r := ask("GET", there, "t"); r.StatusCode != 200 || !strings.Contains(body(t, r), `"compacted":false`) {
		t.Errorf("%d", r.StatusCode)
	}
	checkProblem(t, ask("POST", there, "t"), 403, "local_only")
	if p := checkProblem(t, ask("POST", here, "x%3Cy"), 404, "unknown_topic"); p.KafkaError != "UNKNOWN_TOPIC_OR_PARTITION" || p.Hint != "h" || p.Detail != "no topic x<y" {
		t.Errorf("%+v", p)
	}
	if log.Len() > 0 {
		t.Errorf("logged: %s", log.String())
	}
	checkProblem(t, ask("POST", here, "away"), 503, "store_unavailable")
	r := ask("DELETE", here, "t")
	checkProblem(t, r, 405, "method_not_allowed")
	if a := r.Header.Get("Allow"); a != "GET, HEAD, POST" {
		t.Error(a)
	}
}

func TestPanicIsCaught(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	s := newServer(&fake{topics: func(context.Context, string) ([]Topic, error) { panic("boom") }}, logging.New(&log, logging.Options{}))
	checkProblem(t, do(t, s, http.MethodGet, "/v1/stream/topics"), 500, "internal_error")
	if !strings.Contains(log.String(), "boom") {
		t.Error("not logged")
	}
	if text := body(t, do(t, s, http.MethodGet, "/metrics")); !strings.Contains(text, `stream_panics_total{where="admin"} 1`) {
		t.Error("not counted")
	}
}

// What only a real connection shows: sizes, time limits, an orderly end.
func TestServeLimits(t *testing.T) {
	t.Parallel()
	s := New(Config{Timeout: time.Second}, &fake{status: Status{Connected: true}}, NewRegistry("", "", ""), logging.Discard())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	raw := func(request string) (string, string) {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		go func() { _, _ = io.WriteString(c, request) }()
		br := bufio.NewReader(c)
		first, _ := br.ReadString('\n')
		rest, _ := io.ReadAll(br)
		return strings.TrimSpace(first), string(rest)
	}
	big := "GET /livez HTTP/1.1\r\nHost: h\r\nConnection: close\r\nX: " + strings.Repeat("a", 70<<10) + "\r\n\r\n"
	if first, _ := raw(big); !strings.Contains(first, "431") {
		t.Errorf("70 KiB header: %s", first)
	}
	fits := "GET /livez HTTP/1.1\r\nHost: h\r\nConnection: close\r\nX: " + strings.Repeat("a", 50<<10) + "\r\n\r\n"
	if first, _ := raw(fits); !strings.Contains(first, "200") {
		t.Errorf("50 KiB header: %s", first)
	}
	if first, rest := raw("POST /v1/stream/status HTTP/1.1\r\nHost: h\r\nContent-Length: 1073741824\r\n\r\nx"); !strings.Contains(first, "413") || !strings.Contains(rest, "body_too_large") {
		t.Errorf("1 GiB body: %s %s", first, rest)
	}
	if first, _ := raw("TRACE / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"); !strings.Contains(first, "405") {
		t.Errorf("TRACE: %s", first)
	}
	if first, rest := raw("HEAD /livez HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"); !strings.Contains(first, "200") || strings.HasSuffix(rest, "ok\n") {
		t.Errorf("HEAD: %s %q", first, rest)
	}
	// A header that never ends is cut off: the read returns.
	raw("GET /livez HTTP/1.1\r\nHost: h\r\n")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("Serve: %v", err)
	}
}
