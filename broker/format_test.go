package broker

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hanzoai/stream/broker/cluster"
	"github.com/hanzoai/stream/broker/group"
	"github.com/hanzoai/stream/broker/topic"
	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/pubsub/memory"
)

// built is a gateway of a build that knows some formats.
type built struct {
	*Broker
	client *memory.Client
	end    func()
}

func startBuilt(t *testing.T, srv *memory.Server, oldest, newest int, f memory.Faults) (*built, error) {
	t.Helper()
	b := &built{client: srv.Client(f)}
	b.Broker = New(Config{Prefix: "kafka", Replicas: 1, Host: "h", Port: 9092, Topic: topic.Defaults(), Group: group.DefaultConfig(),
		Cluster: cluster.Config{Formats: cluster.Formats{Oldest: oldest, Newest: newest}}, FormatHold: 10 * time.Second},
		b.client, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	b.end = sync.OnceFunc(func() {
		b.client.Thaw()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		b.Close(ctx)
		b.client.Close()
	})
	t.Cleanup(b.end)
	err := b.Start(t.Context())
	if err != nil {
		b.end()
	}
	return b, err
}

func mustBuilt(t *testing.T, srv *memory.Server, oldest, newest int) *built {
	t.Helper()
	b, err := startBuilt(t, srv, oldest, newest, memory.Faults{})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// force waits until a format is in force on all of them.
func force(t *testing.T, want int, bs ...*built) {
	t.Helper()
	began := time.Now()
	for _, b := range bs {
		for b.Format() != want {
			if time.Since(began) > time.Minute {
				t.Fatalf("format %d is in force, want %d", b.Format(), want)
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
}

func refusedFormat(t *testing.T, err error, reason string) {
	t.Helper()
	f := (*FormatError)(nil)
	if !errors.As(err, &f) || !strings.Contains(f.Reason, reason) || f.Hint == "" {
		t.Errorf("error %v, want a FormatError: %s", err, reason)
	}
}

func storedMeta(t *testing.T, srv *memory.Server) (pubsub.Value, pubsub.Table, *memory.Client) {
	t.Helper()
	c := srv.Client(memory.Faults{})
	table, err := c.Table(t.Context(), pubsub.TableConfig{Name: "kafka-meta", Replicas: 1})
	if err != nil {
		t.Fatal(err)
	}
	v, err := table.Get(t.Context(), metaKey)
	if err != nil {
		t.Fatal(err)
	}
	return v, table, c
}

// A rolling upgrade: the newer format comes in force when the last gateway that
// does not know it has been gone for a while, and then locks such a build out.
func TestFormatOfARollingUpgrade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := memory.NewServer(memory.Config{})
		a, b := mustBuilt(t, srv, 1, 1), mustBuilt(t, srv, 1, 1)
		force(t, 1, a, b)
		// Fields of other builds survive.
		v, table, c := storedMeta(t, srv)
		data := strings.Replace(string(v.Data), "{", `{"of_another":[7],`, 1)
		if _, err := pubsub.Put(t.Context(), table, pubsub.Write{Key: metaKey, Data: []byte(data), Expect: v.Rev}); err != nil {
			t.Fatal(err)
		}
		c.Close()
		id := a.ClusterID()
		a.end()
		na := mustBuilt(t, srv, 1, 2)
		time.Sleep(time.Minute)
		if na.Format() != 1 || b.Format() != 1 {
			t.Fatalf("beside an older build: %d, %d", na.Format(), b.Format())
		}
		b.end()
		time.Sleep(8 * time.Second)
		if na.Format() != 1 {
			t.Error("raised at once: an older build that restarts is locked out")
		}
		back := mustBuilt(t, srv, 1, 1) // the upgrade is halted for a while
		time.Sleep(time.Minute)
		if na.Format() != 1 {
			t.Error("raised beside an older build that came back")
		}
		back.end()
		nb := mustBuilt(t, srv, 1, 3)
		force(t, 2, na, nb) // what both know
		na.end()
		force(t, 3, nb)
		v, _, c = storedMeta(t, srv)
		c.Close()
		if nb.ClusterID() != id || !strings.Contains(string(v.Data), id) || !strings.Contains(string(v.Data), `"of_another":[7]`) {
			t.Errorf("identity %s, stored %s", id, v.Data)
		}
	})
}

// What lives is compared with what is stored, both ways.
func TestFormatRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := memory.NewServer(memory.Config{})
		a := mustBuilt(t, srv, 1, 2) // a new cluster begins with its newest
		force(t, 2, a)
		_, err := startBuilt(t, srv, 1, 1, memory.Faults{})
		refusedFormat(t, err, "stored format 2 is newer than this build's 1")
		_, err = startBuilt(t, srv, 3, 4, memory.Faults{})
		refusedFormat(t, err, "stored format 2 is older than this build's oldest, 3")
		a.end()
		_, err = startBuilt(t, srv, 1, 1, memory.Faults{})
		refusedFormat(t, err, "stored format 2 is newer")
		// Who was refused after it had registered is no member.
		b := mustBuilt(t, srv, 2, 3)
		time.Sleep(time.Second)
		if ps := b.cluster.Peers(); len(ps) != 1 {
			t.Errorf("peers %v", ps)
		}
		force(t, 3, b)
	})
}

// One that freezes before the format is raised, and wakes up after it, ends.
func TestFormatFrozenOldBuild(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := memory.NewServer(memory.Config{})
		a := mustBuilt(t, srv, 1, 1)
		b := mustBuilt(t, srv, 1, 2)
		time.Sleep(20 * time.Second)
		a.client.Freeze()
		force(t, 2, b)
		a.client.Thaw()
		select {
		case err := <-a.Failed():
			refusedFormat(t, err, "stored format 2 is newer")
		case <-time.After(time.Minute):
			t.Error("it goes on")
		}
	})
}

// An older build that joins in the middle of a raise is either seen, and the raise
// taken back, or sees the announcement.
func TestFormatJoinDuringRaise(t *testing.T) {
	for _, at := range []string{"announced", "in force"} {
		synctest.Test(t, func(t *testing.T) {
			srv := memory.NewServer(memory.Config{})
			mustBuilt(t, srv, 1, 1).end() // a store of format 1
			hit := make(chan struct{})
			writes := 0
			var mu sync.Mutex
			f := memory.Faults{Set: func(op memory.Op) (w memory.WriteFault) {
				if op.Name != "kafka-meta" {
					return w
				}
				mu.Lock()
				defer mu.Unlock()
				writes++
				if writes == map[string]int{"announced": 1, "in force": 2}[at] {
					w.Before = 5 * time.Second // the write is on its way
					close(hit)
				}
				return w
			}}
			b, err := startBuilt(t, srv, 1, 2, f)
			if err != nil {
				t.Fatal(err)
			}
			<-hit
			old, err := startBuilt(t, srv, 1, 1, memory.Faults{})
			time.Sleep(30 * time.Second)
			switch at {
			case "announced": // it was there before the keys were read
				if err != nil {
					t.Fatal(err)
				}
				if b.Format() != 1 || old.Format() != 1 {
					t.Errorf("formats %d, %d", b.Format(), old.Format())
				}
				v, _, c := storedMeta(t, srv)
				c.Close()
				if strings.Contains(string(v.Data), "next") {
					t.Errorf("the announcement stands: %s", v.Data)
				}
				old.end()
				force(t, 2, b)
			case "in force":
				refusedFormat(t, err, "stored format 2 is newer")
				force(t, 2, b)
			}
		})
	}
}

// A gateway that died in the middle of a raise leaves an announcement: the next
// holder of the lease carries it out, or takes it back for those who live.
func TestFormatAnnouncementLeftBehind(t *testing.T) {
	for newest, want := range map[int]int{1: 1, 2: 2} {
		synctest.Test(t, func(t *testing.T) {
			srv := memory.NewServer(memory.Config{})
			a := mustBuilt(t, srv, 1, 1)
			a.end()
			v, table, c := storedMeta(t, srv)
			data := strings.Replace(string(v.Data), "{", `{"next":2,`, 1)
			b := mustBuilt(t, srv, 1, 2)
			var others []*built
			if newest == 1 {
				others = append(others, mustBuilt(t, srv, 1, 1))
			}
			if _, err := pubsub.Put(t.Context(), table, pubsub.Write{Key: metaKey, Data: []byte(data), Expect: v.Rev}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			v, err := table.Get(t.Context(), metaKey)
			if err != nil || strings.Contains(string(v.Data), "next") {
				t.Errorf("the announcement stands: %s, %v", v.Data, err)
			}
			force(t, want, append(others, b)...)
			c.Close()
		})
	}
}
