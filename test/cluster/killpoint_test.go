package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hanzoai/stream/test/testkit"
)

// killRow is a moment at which a gateway may be killed, and what must hold then.
type killRow struct {
	name string
	// point is the moment in the form of utils/killpoint.
	point string
	// test brings gateway a there (k.arm, then something that passes the point)
	// and goes on with gateway b.
	test func(k *killed)
}

// killed is one row's world: two gateways of which one dies at the row's point.
type killed struct {
	*testing.T
	w    *world
	a, b *peer
	row  killRow
	file string
}

// killRows are the rows of what must hold, point by point.
func killRows() []killRow {
	return slices.Concat(produceKills, topicKills, groupKills, stateKills, txnKills)
}

// TestKillPoints kills a gateway at every point, with SIGKILL.
func TestKillPoints(t *testing.T) {
	bin := testkit.KillableBinary(t)
	for _, row := range killRows() {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "kill")
			w := newWorld(t, shape{gateways: 2, replicas: 1, mode: shared, binary: bin, env: []string{"STREAM_KILL_FILE=" + file}})
			row.test(&killed{t, w, connect(t, w.gateways[0].Addr), connect(t, w.gateways[1].Addr), row, file})
		})
	}
}

// arm makes the next gateway that comes to the row's point die there.
func (k *killed) arm() { k.armAt(k.row.point) }

func (k *killed) armAt(point string) {
	k.Helper()
	tmp := k.file + ".new"
	if err := os.WriteFile(tmp, []byte(point), 0o600); err != nil {
		k.Fatal(err)
	}
	if err := os.Rename(tmp, k.file); err != nil {
		k.Fatal(err)
	}
}

// died waits until gateway a has died at the point.
func (k *killed) died() {
	k.Helper()
	k.dead(k.w.gateways[0])
}

func (k *killed) dead(g *gateway) {
	k.Helper()
	select {
	case <-g.Process().Exited():
	case <-time.After(30 * time.Second):
		k.Fatalf("%s was not killed at %s", g.name, k.row.point)
	}
	g.set(dead)
	if !strings.Contains(g.Log(), "killed at ") {
		k.Fatalf("%s has ended, but not at %s:\n%s", g.name, k.row.point, g.Log())
	}
}

// anyDied waits until one of the gateways has died, and returns the living one.
// Where an owner is asked, it is not for the test to say who that is.
func (k *killed) anyDied() *peer {
	k.Helper()
	gone := k.w.gateways[0]
	select {
	case <-gone.Process().Exited():
	case <-k.w.gateways[1].Process().Exited():
		gone = k.w.gateways[1]
	case <-time.After(30 * time.Second):
		k.Fatalf("no gateway was killed at %s", k.row.point)
	}
	k.dead(gone)
	if gone == k.w.gateways[1] {
		return k.a
	}
	return k.b
}

// terminate is SIGTERM to gateway a.
func (k *killed) terminate() {
	if err := k.w.gateways[0].Process().Signal(syscall.SIGTERM); err != nil {
		k.Fatal(err)
	}
}

// again starts gateway a again and connects to it.
func (k *killed) again() *peer {
	k.Helper()
	g := k.w.gateways[0]
	g.start(k.T)
	g.ready(k.T)
	return connect(k.T, g.Addr)
}

// wantValues checks what a partition holds, through every living gateway.
func (k *killed) wantValues(topic string, want ...string) {
	k.Helper()
	if got := k.b.values(topic, 0); !slices.Equal(got, want) {
		k.Errorf("stored: %v, want %v", got, want)
	}
}

// streams are the streams of a topic.
func (k *killed) streams(topic string) ([]string, error) {
	var a struct {
		Streams []string `json:"streams"`
	}
	if err := k.w.jetStream(k.Context(), "STREAM.NAMES", &a); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(a.Streams, func(s string) bool { return !strings.HasPrefix(s, "kafka-"+topic+"-") }), nil
}

// bounds are the first and last sequence of partition 0's stream.
func (k *killed) bounds(topic string) (first, last uint64, err error) {
	var a struct {
		State struct {
			First uint64 `json:"first_seq"`
			Last  uint64 `json:"last_seq"`
		} `json:"state"`
	}
	err = k.w.jetStream(k.Context(), fmt.Sprintf("STREAM.INFO.kafka-%s-0", topic), &a)
	return a.State.First, a.State.Last, err
}
