package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/hanzoai/stream/pubsub"
)

// TestCreateAskedAgain: in a cluster, a creation that met no leader is asked for
// again, once a leader says that there is no such stream; one that was carried out
// is not, and a slow one is waited for.
func TestCreateAskedAgain(t *testing.T) {
	t.Parallel()
	config := pubsub.LogConfig{Name: "s", Subject: "s.0", Replicas: 3}
	other := config
	other.Metadata = map[string]string{"of": "another"}
	for name, c := range map[string]struct {
		// create and info say what the n-th question is answered, "" for nothing;
		// late is what the first creation is answered after the first INFO.
		create, info func(n int) string
		late         string
		copies       int
		want         error
	}{
		"lost": {
			create: func(n int) string { return map[int]string{2: `{}`}[n] },
			info:   func(int) string { return notFound },
			copies: 2,
		},
		"refused after all": {
			create: func(n int) string { return map[int]string{2: noPeers, 3: noPeers}[n] },
			info:   func(int) string { return notFound },
			copies: 3,
			want:   pubsub.ErrUnavailable,
		},
		"refused, but an earlier copy was not": {
			create: func(n int) string { return map[int]string{2: noPeers}[n] },
			info: func(n int) string {
				if n == 1 {
					return notFound
				}
				return there(config)
			},
			copies: 2,
		},
		"answer lost": {info: func(int) string { return there(config) }, copies: 1},
		"another's":   {info: func(int) string { return there(other) }, copies: 1, want: pubsub.ErrExists},
		"slow":        {late: `{}`, copies: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv, nc := stranger(t)
			const prefix = "TEST.API."
			var mu sync.Mutex
			var created *nats.Msg
			creates, infos := 0, 0
			answer := func(m *nats.Msg, with func(int) string, n int) {
				if with == nil {
					return
				}
				if a := with(n); a != "" {
					_ = m.Respond([]byte(a))
				}
			}
			for subject, fn := range map[string]nats.MsgHandler{
				prefix + "STREAM.CREATE.s": func(m *nats.Msg) {
					mu.Lock()
					defer mu.Unlock()
					creates++
					created = m
					answer(m, c.create, creates)
				},
				prefix + "STREAM.INFO.s": func(m *nats.Msg) {
					mu.Lock()
					defer mu.Unlock()
					if infos++; infos == 1 && c.late != "" {
						_ = created.Respond([]byte(c.late))
					}
					answer(m, c.info, infos)
				},
				// The courtesies after a creation.
				"s.0":                   func(m *nats.Msg) { _ = m.Respond([]byte(`{}`)) },
				prefix + "DIRECT.GET.s": func(m *nats.Msg) { _ = m.Respond([]byte(`{}`)) },
			} {
				if _, err := nc.Subscribe(subject, fn); err != nil {
					t.Fatal(err)
				}
			}
			if err := nc.Flush(); err != nil {
				t.Fatal(err)
			}
			st, err := Connect(t.Context(), Config{URL: srv.ClientURL()})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { st.Close() })
			st.clustered, st.apiPrefix = true, prefix
			// One silence, which is 15 s for what is asked once, is too long.
			ctx, cancel := context.WithTimeout(t.Context(), 12*time.Second)
			defer cancel()
			if err := st.CreateLog(ctx, config); !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
			mu.Lock()
			defer mu.Unlock()
			if creates != c.copies {
				t.Errorf("asked for %d times, want %d", creates, c.copies)
			}
		})
	}
}

const (
	notFound = `{"error":{"code":404,"err_code":10059,"description":"stream not found"}}`
	noPeers  = `{"error":{"code":400,"err_code":10005,"description":"no suitable peers"}}`
)

// there is what JetStream says of a stream.
func there(c pubsub.LogConfig) string {
	b, err := json.Marshal(streamInfo{Config: streamConfig{
		Name: c.Name, Subjects: []string{c.Subject}, Replicas: c.Replicas, Storage: storage(c.Memory), Metadata: c.Metadata,
	}})
	if err != nil {
		panic(err)
	}
	return string(b)
}
