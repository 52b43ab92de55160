package jetstream

import (
	"fmt"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/hanzoai/stream/pubsub"
)

// TestReadAskedAgain: in a cluster, a replica that is silent about a read is not
// waited for: another copy of the question may meet another one. What a slow one says
// to an earlier copy counts.
func TestReadAskedAgain(t *testing.T) {
	t.Parallel()
	for _, batched := range []bool{true, false} {
		for name, answer := range map[string]func(n int) (which int){
			"dead": func(n int) int { return n },     // the second copy meets another replica
			"slow": func(n int) int { return n - 1 }, // the first is answered when the second comes
		} {
			t.Run(fmt.Sprintf("%s, batched %v", name, batched), func(t *testing.T) {
				t.Parallel()
				readAskedAgain(t, batched, answer)
			})
		}
	}
}

func readAskedAgain(t *testing.T, batched bool, answer func(n int) int) {
	srv, nc := stranger(t)
	st, err := Connect(t.Context(), Config{URL: srv.ClientURL()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	if err := st.CreateLog(t.Context(), pubsub.LogConfig{Name: "s", Subject: "s.0"}); err != nil {
		t.Fatal(err)
	}
	l := st.Log("s", "s.0")
	for i := range pubsub.Seq(3) {
		if _, err := l.Append(t.Context(), i, pubsub.Entry{Data: []byte("x")}); err != nil {
			t.Fatal(err)
		}
	}
	// What stands for the replicas passes on one copy of each question, from the
	// second on.
	const prefix = "TEST.API."
	var mu sync.Mutex
	asked := map[string][]*nats.Msg{}
	if _, err := nc.Subscribe(prefix+"DIRECT.GET.s", func(m *nats.Msg) {
		mu.Lock()
		defer mu.Unlock()
		copies := append(asked[string(m.Data)], m)
		asked[string(m.Data)] = copies
		if n := len(copies) - 1; n == 1 {
			_ = nc.PublishRequest("$JS.API.DIRECT.GET.s", copies[answer(n)].Reply, m.Data)
		}
	}); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	st.clustered, st.apiPrefix = true, prefix
	st.SetBatched(batched)
	// With 2.10's reads one question is for one message.
	ms, err := st.Log("s", "s.0").Read(t.Context(), 1, pubsub.Limit{MaxMessages: 1})
	if err != nil || len(ms) != 1 || ms[0].Seq != 1 {
		t.Errorf("%d messages, %v", len(ms), err)
	}
	mu.Lock()
	defer mu.Unlock()
	for q, copies := range asked {
		if len(copies) != 2 {
			t.Errorf("%s was asked %d times", q, len(copies))
		}
	}
}
