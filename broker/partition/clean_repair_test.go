package partition

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/pubsub/memory"
)

// TestMainStreamLostBesideSibling: where the main stream was lost and the loss
// accepted, what was compacted is read as before, the log goes on behind it, and it is
// compacted on: the new stream counts from 1, whatever the manifest says of the old.
func TestMainStreamLostBesideSibling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, g := many(t, 3)
		c := w.server.Client(memory.Faults{})
		defer c.Close()
		if err := c.DeleteLog(t.Context(), testLog); err != nil {
			t.Fatal(err)
		}
		env := RepairEnv{Store: c, Records: g.host.records, Alone: true, By: "test"}
		spec := RepairSpec{Topic: "t", ID: w.id, Log: pubsub.LogConfig{Name: testLog, Subject: testSubject, Replicas: 1}}
		time.Sleep(time.Minute)
		rep, err := AcceptLoss(t.Context(), env, spec)
		if err != nil || len(rep.Trouble) > 0 {
			t.Fatalf("%+v, %v", rep, err)
		}
		g.kill()
		b, _ := w.maintainer(memory.Faults{}, 1, true)
		from := int64(b.put(0, "new=1"))
		b.put(0, "new=2")
		b.put(0, "end=2")
		kept := "3:k0=0 4:k1=1 5:k2=2"
		if got, want := fmt.Sprint(b.shows()), fmt.Sprintf("[%s %d:new=1 %d:new=2 %d:end=2]", kept, from, from+1, from+2); got != want {
			t.Errorf("%s, want %s", got, want)
		}
		if s := b.p.Clean(); s.X != 6 || s.Seq != 1 {
			t.Errorf("compacted to %d, where message %d begins", s.X, s.Seq)
		}
		b.mustCompact(CompactOptions{Force: true})
		want := fmt.Sprintf("[%s %d:new=2 %d:end=2]", kept, from+1, from+2)
		if got := fmt.Sprint(b.shows()); got != want {
			t.Errorf("compacted: %s, want %s", got, want)
		}
		if got := fmt.Sprint(w.gateway(memory.Faults{}).shows()); got != want {
			t.Errorf("a fresh gateway: %s, want %s", got, want)
		}
	})
}
