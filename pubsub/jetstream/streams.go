package jetstream

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/hanzoai/stream/pubsub"
)

// dedupeWindow is the shortest that servers take. At start a stream loads all
// messages of its window; we recognise duplicates by other means.
const dedupeWindow = 100 * time.Millisecond

// serverMetadata begins the keys that servers from 2.11 add to a stream's
// metadata by themselves.
const serverMetadata = "_nats."

func (st *Store) logStream(c pubsub.LogConfig) streamConfig {
	return streamConfig{
		Name: c.Name, Subjects: []string{c.Subject}, Retention: "limits",
		MaxConsumers: -1, MaxMsgs: -1, MaxBytes: -1, MaxMsgsPerSubject: -1, MaxMsgSize: -1,
		Discard: "old", Storage: storage(c.Memory), Replicas: max(1, c.Replicas),
		Duplicates: dedupeWindow, AllowDirect: true,
		RePublish: st.news(c.Subject), Metadata: c.Metadata,
	}
}

func storage(memory bool) string {
	if memory {
		return "memory"
	}
	return "file"
}

// CreateLog implements pubsub.Store.
func (st *Store) CreateLog(ctx context.Context, c pubsub.LogConfig) error {
	c.Replicas = max(1, c.Replicas)
	want := st.logStream(c)
	for wait := 20 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		err := st.createStream(ctx, want)
		switch {
		case err == nil:
			st.awaitSubjects(ctx, c)
			return nil
		case hasCode(err, codeNameTaken, codeSubjectTaken):
			// Also the answer when the server compares configs more strictly
			// than we do, or added defaults of another version.
			have, ferr := st.streamInfo(ctx, c.Name)
			if ferr == nil && sameLog(logInfo(have).LogConfig, c) {
				return nil
			}
			if ferr != nil && !hasCode(ferr, codeStreamNotFound) {
				return fmt.Errorf("create log %s: look for it: %w", c.Name, readError(ferr))
			}
			return fmt.Errorf("create log %s on %s: %w", c.Name, c.Subject, readError(err))
		case errors.Is(err, errNoAnswer):
			have, ferr := st.streamInfo(ctx, c.Name)
			if ferr == nil {
				if sameLog(logInfo(have).LogConfig, c) {
					st.awaitSubjects(ctx, c)
					return nil
				}
				return fmt.Errorf("create log %s on %s: %w", c.Name, c.Subject, pubsub.ErrExists)
			}
			// Not there, not there yet, or nobody to ask. Creation is
			// idempotent, so that the late first copy is harmless.
			select {
			case <-time.After(wait):
				continue
			case <-ctx.Done():
			case <-st.life.Done():
			}
			return fmt.Errorf("create log %s: %w: %w", c.Name, pubsub.ErrOutcomeUnknown, err)
		}
		return fmt.Errorf("create log %s on %s: %w", c.Name, c.Subject, apiWriteError(err))
	}
}

// createStream asks for a new stream. In a cluster a request that meets no leader is
// lost. So in a silence JetStream is asked whether the stream is there, and where its
// leader knows of none, not even of one on its way, the creation is asked for once
// more: blindly, a late copy could bring back what was deleted since. Every copy's
// answer counts. errNoAnswer comes at once when the stream is there, or one of several
// copies is refused: CreateLog looks. Errors else: those of Store.api.
func (st *Store) createStream(ctx context.Context, want streamConfig) error {
	subject, all := "STREAM.CREATE."+want.Name, 3*st.cfg.APITimeout
	if !st.clustered {
		return st.api(ctx, all, subject, want, nil)
	}
	ctx, cancel := context.WithTimeout(ctx, all)
	answers := make(chan error, maxCreates)
	var copies sync.WaitGroup
	defer copies.Wait()
	defer cancel()
	send := func() {
		copies.Go(func() { answers <- st.api(ctx, all, subject, want, nil) })
	}
	send()
	tick := time.NewTicker(2 * askEvery)
	defer tick.Stop()
	for n := 1; ; {
		select {
		case err := <-answers:
			var e *apiError
			if n > 1 && errors.As(err, &e) { // says nothing of the other copies
				return fmt.Errorf("%w: of %d copies one was refused: %w", errNoAnswer, n, e)
			}
			return err
		case <-tick.C:
		}
		bound, cancel := context.WithTimeout(ctx, askEvery)
		_, err := st.streamInfo(bound, want.Name)
		cancel()
		switch {
		case err == nil && len(answers) == 0:
			return fmt.Errorf("%w: the stream is there", errNoAnswer)
		case hasCode(err, codeStreamNotFound) && n < maxCreates:
			n++
			send()
		}
	}
}

// maxCreates is how many copies of a creation are sent at most.
const maxCreates = 3

// awaitSubjects waits until the servers of the log's connections know that
// somebody listens to the subjects of appends and reads; in a cluster the
// creation is answered before that, and early ones would meet nobody. It is a
// courtesy: what still is too early says so.
func (st *Store) awaitSubjects(ctx context.Context, c pubsub.LogConfig) {
	st.await(ctx, st.appendConn(c.Name), nats.Msg{Subject: c.Subject, Header: neverStored()})
	st.await(ctx, st.readConn(c.Name), nats.Msg{Subject: st.apiPrefix + "DIRECT.GET." + c.Name})
}

// neverStored makes a publish that every stream refuses: it expects a stream
// that cannot exist.
func neverStored() nats.Header { return nats.Header{hdrExpectedStream: {"."}} }

// await sends m until somebody answers.
func (st *Store) await(ctx context.Context, c *conn, m nats.Msg) {
	if !st.clustered {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, st.cfg.APITimeout)
	defer cancel()
	for ctx.Err() == nil {
		if _, err := c.call(ctx, &m, time.Second, nil); !errors.Is(err, errNoResponders) {
			return
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// apiWriteError is writeError for JetStream API calls. No responders there
// means that no server with JetStream took the request.
func apiWriteError(err error) error {
	if errors.Is(err, errNoResponders) {
		return readError(err)
	}
	return writeError(err)
}

func sameLog(a, b pubsub.LogConfig) bool {
	return a.Name == b.Name && a.Subject == b.Subject && a.Replicas == b.Replicas &&
		a.Memory == b.Memory && maps.Equal(a.Metadata, b.Metadata)
}

// DeleteLog implements pubsub.Store.
func (st *Store) DeleteLog(ctx context.Context, name string) error {
	if err := st.api(ctx, 3*st.cfg.APITimeout, "STREAM.DELETE."+name, nil, nil); err != nil {
		return fmt.Errorf("delete log %s: %w", name, apiWriteError(err))
	}
	return nil
}

// FindLog implements pubsub.Store.
func (st *Store) FindLog(ctx context.Context, name string) (pubsub.LogInfo, error) {
	si, err := st.streamInfo(ctx, name)
	if err != nil {
		return pubsub.LogInfo{}, fmt.Errorf("find log %s: %w", name, readError(err))
	}
	return logInfo(si), nil
}

func logInfo(si streamInfo) pubsub.LogInfo {
	li := pubsub.LogInfo{LogConfig: pubsub.LogConfig{
		Name: si.Config.Name, Replicas: si.Config.Replicas, Memory: si.Config.Storage == "memory",
	}, Bounds: bounds(si)}
	if len(si.Config.Subjects) > 0 {
		li.Subject = si.Config.Subjects[0]
	}
	for k, v := range si.Config.Metadata {
		if !strings.HasPrefix(k, serverMetadata) {
			if li.Metadata == nil {
				li.Metadata = make(map[string]string, len(si.Config.Metadata))
			}
			li.Metadata[k] = v
		}
	}
	return li
}

func bounds(si streamInfo) pubsub.Bounds {
	b := pubsub.Bounds{
		First: pubsub.Seq(si.State.First), Last: pubsub.Seq(si.State.Last),
		Messages: si.State.Messages, Bytes: si.State.Bytes,
		Replicas: max(1, si.Config.Replicas), InSync: 1,
	}
	if b.Messages == 0 {
		// A stream never written says 0 and 0, an emptied one n+1 and n.
		b.First = b.Last + 1
	}
	// A stream never written says year 1, another one 1970.
	if si.State.LastTime.Unix() > 0 && b.Last > 0 {
		b.LastTime = si.State.LastTime
	}
	if si.Cluster != nil {
		b.Leader = si.Cluster.Leader
		for _, r := range si.Cluster.Replicas {
			switch {
			case r.Offline:
				b.Offline++
			case r.Active > 0 && r.Active <= silentFor && (r.Current || r.Lag <= inFlight):
				b.InSync++
			}
		}
	}
	return b
}

// A replica is in sync while it is heard of and has all but what is on its way.
// The leader's own word is coarser: under load it calls one that confirms last not
// current, one that was just frozen current for ten seconds, and one that was killed
// before the leader was elected current for ever where nothing is written: it was
// never heard of (0).
const (
	silentFor = 5 * time.Second // heartbeats are a second apart
	inFlight  = 256
)

// Logs implements pubsub.Store.
func (st *Store) Logs(ctx context.Context, filter string) (logs []pubsub.LogInfo, missing []string, err error) {
	seen := make(map[string]bool)
	for offset := 0; ; {
		var page struct {
			answer
			Total   int               `json:"total"`
			Streams []streamInfo      `json:"streams"`
			Missing []string          `json:"missing"`
			Offline map[string]string `json:"offline"`
		}
		req := struct {
			Offset  int    `json:"offset"`
			Subject string `json:"subject,omitempty"`
		}{offset, filter}
		if err := st.api(ctx, 3*st.cfg.APITimeout, "STREAM.LIST", req, &page); err != nil {
			return nil, nil, fmt.Errorf("list logs %s: %w", filter, readError(err))
		}
		n := 0
		absent := func(name string) {
			if !seen[name] {
				seen[name] = true
				n++
				missing = append(missing, name)
			}
		}
		// Streams of which all replicas are offline are listed in both places,
		// with an empty state that means nothing.
		for _, name := range page.Missing {
			absent(name)
		}
		for name := range page.Offline {
			absent(name)
		}
		for _, si := range page.Streams {
			if seen[si.Config.Name] {
				continue
			}
			seen[si.Config.Name] = true
			n++
			if len(si.Config.Subjects) > 0 && (filter == "" || within(si.Config.Subjects[0], filter)) {
				logs = append(logs, logInfo(si))
			}
		}
		if offset += n; n == 0 || offset >= page.Total {
			return logs, missing, nil
		}
	}
}

// within reports whether every subject that matches subject matches filter too.
func within(subject, filter string) bool {
	s, f := strings.Split(subject, "."), strings.Split(filter, ".")
	for i, t := range f {
		if t == ">" {
			return len(s) > i
		}
		if i >= len(s) || s[i] == ">" || t != "*" && t != s[i] {
			return false
		}
	}
	return len(s) == len(f)
}
