package cluster

import (
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/test/testkit"
)

// stateKills are the points at which a gateway tidies, saves or reads state.
var stateKills = []killRow{
	{"retention between the log start and the purge", "logstart.stored", halfPurged},
	{"snapshot half written", "snapshot.chunks", halfSaved},
	{"state load", "state.loading", halfLoaded},
	{"drain, nothing handed over", "drain.begun", halfDrained},
	{"drain, groups handed over", "drain.handed.over", halfDrained},
}

// fill writes n records, one a message, through gateway a.
func (k *killed) fill(n int) (id int64, values []string) {
	k.Helper()
	k.b.create("kill", 1)
	id = k.a.producer()
	for i := range n {
		v := fmt.Sprint(i)
		k.a.produce("kill", 0, batch{producer: id, first: int32(i), values: []string{v}})
		values = append(values, v)
	}
	return id, values
}

// halfPurged: the log start never goes back, no live record is lost, the next
// one finishes.
func halfPurged(k *killed) {
	_, values := k.fill(10)
	k.arm()
	// It is answered when the log start is stored: the purge comes behind that.
	_, _ = ask[*kmsg.DeleteRecordsResponse](k.a, deleteRecordsRequest("kill", 5))
	k.died()
	if first, last, err := k.bounds("kill"); first != 1 || last != 10 || err != nil {
		k.Fatalf("it was not killed before the purge: %d to %d, %v", first, last, err)
	}
	if start := k.b.offset("kill", 0, earliest); start != 5 {
		k.Errorf("the log starts at %d, want 5", start)
	}
	k.wantValues("kill", values[5:]...)
	testkit.Poll(k, time.Minute, "another finishes the purge", func() error {
		first, _, err := k.bounds("kill")
		if err == nil && first != 6 {
			err = fmt.Errorf("the stream begins at %d", first)
		}
		return err
	})
	if start := k.b.offset("kill", 0, earliest); start != 5 {
		k.Errorf("the log starts at %d after the purge, want 5", start)
	}
	k.wantValues("kill", values[5:]...)
}

// halfSaved: the state is rebuilt from the stream.
func halfSaved(k *killed) {
	id, values := k.fill(10)
	k.arm()
	k.terminate() // it saves what it has
	k.died()
	// The other gateway has never had the partition: all it knows is what is stored.
	if base, _ := k.b.produce("kill", 0, batch{producer: id, first: 9, values: []string{"9"}}); base != 9 {
		k.Errorf("the repetition of record 9 is at %d", base)
	}
	if base, _ := k.b.produce("kill", 0, batch{producer: id, first: 10, values: []string{"10"}}); base != 10 {
		k.Errorf("the next record is at %d, want 10", base)
	}
	k.wantValues("kill", append(values, "10")...)
}

// halfLoaded: it is as if nothing had been.
func halfLoaded(k *killed) {
	id, values := k.fill(10)
	k.w.gateways[0].kill(k.T)
	a := k.again()
	k.arm()
	lost(a, batch{producer: id, first: 10, values: []string{"10"}}.request("kill", 0))
	k.died()
	if base, _ := k.b.produce("kill", 0, batch{producer: id, first: 10, values: []string{"10"}}); base != 10 {
		k.Errorf("the next record is at %d, want 10", base)
	}
	a = k.again()
	if base, _ := a.produce("kill", 0, batch{producer: id, first: 11, values: []string{"11"}}); base != 11 {
		k.Errorf("the one after it is at %d, want 11", base)
	}
	k.wantValues("kill", append(values, "10", "11")...)
}

// halfDrained: what is acknowledged is there, the group goes on elsewhere.
func halfDrained(k *killed) {
	id, values := k.fill(10)
	members := k.gather()
	k.shares([]*peer{k.a, k.b}, members)
	k.arm()
	k.terminate()
	k.died()
	k.shares([]*peer{k.b}, members)
	if base, _ := k.b.produce("kill", 0, batch{producer: id, first: 10, values: []string{"10"}}); base != 10 {
		k.Errorf("the next record is at %d, want 10", base)
	}
	k.wantValues("kill", append(values, "10")...)
}
