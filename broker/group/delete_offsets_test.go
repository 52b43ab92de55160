package group

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/pubsub/memory"
	"github.com/hanzoai/stream/types"
)

func subscription(version int16, topics ...string) []byte {
	return (&kmsg.ConsumerMemberMetadata{Version: version, Topics: topics}).AppendTo(nil)
}

// Who may delete: the group's state decides, then what its members read.
func TestDeleteOffsetsTable(t *testing.T) {
	foo, bar := types.TopicPartition{Topic: "foo"}, types.TopicPartition{Topic: "bar", Partition: 3}
	sub86 := kerr.GroupSubscribedToTopic
	for _, c := range []struct {
		situation string
		metadata  []byte // of the members; nil: as it is
		kind      string
		err       error
		foo, bar  error
	}{
		{"unknown", nil, "", kerr.GroupIDNotFound, nil, nil},
		{"offsets only", nil, "", nil, nil, nil},
		{"emptied", nil, "", nil, nil, nil},
		{"preparing", subscription(0, "foo"), "", nil, sub86, nil},
		{"completing", subscription(3, "foo"), "", nil, sub86, nil},
		{"stable", subscription(1, "x", "foo"), "", nil, sub86, nil},
		{"stable", append(subscription(3, "foo"), "more of a later version"...), "", nil, sub86, nil},
		{"stable", subscription(0), "", nil, nil, nil},
		// Nobody knows what they read: it may be anything.
		{"stable", []byte("meta"), "", nil, sub86, sub86},
		{"stable", []byte{}, "", nil, sub86, sub86},
		{"stable", []byte{0xff, 0xff, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff}, "", nil, sub86, sub86},
		{"stable", nil, "connect", kerr.NonEmptyGroup, nil, nil},
		{"preparing", nil, "connect", kerr.NonEmptyGroup, nil, nil},
		{"emptied", nil, "connect", nil, nil, nil},
	} {
		for _, sit := range situations {
			if sit.name != c.situation {
				continue
			}
			r, _, _ := sit.make(t)
			for _, m := range r.s.members {
				if c.metadata != nil {
					m.protocols[0].Metadata = c.metadata
				}
			}
			if c.kind != "" {
				r.s.protocolType = c.kind
			}
			for _, tp := range []types.TopicPartition{foo, bar} {
				r.s.offsets.m[tp] = &entry{rev: 1, value: &stored{Birth: r.s.env.Birth}}
			}
			plans, refused, err := r.s.deleteOffsets([]types.TopicPartition{foo, bar, {Topic: "bar", Partition: 4}})
			wantErr(t, sit.name, err, c.err)
			if err != nil {
				continue
			}
			wantErr(t, sit.name+" foo", refused[0], c.foo)
			wantErr(t, sit.name+" bar", refused[1], c.bar)
			for i, want := range []bool{c.foo == nil, c.bar == nil, false} {
				if (plans[i] != nil) != want {
					t.Errorf("%s, metadata %q: partition %d has a plan: %v", sit.name, c.metadata, i, !want)
				}
			}
		}
	}
}

func TestDeleteOffsets(t *testing.T) {
	g := start(t, memory.NewServer(memory.Config{}), 1, "a", memory.Faults{}, newTestConfig())
	id := types.NewTopicID()
	nobody := Membership{Group: "g", Generation: -1}
	tps := []types.TopicPartition{{Topic: "foo"}, {Topic: "never"}, {Topic: "foo"}}
	wantErr(t, "no name", g.DeleteOffsets(t.Context(), "", tps).Err, kerr.InvalidGroupID)
	wantErr(t, "unknown", g.DeleteOffsets(t.Context(), "g", tps).Err, kerr.GroupIDNotFound)
	mustCommit(t, g, commitOf(nobody, "foo", id, 7))
	mustCommit(t, g, commitOf(nobody, "bar", id, 8))
	r := g.DeleteOffsets(t.Context(), "g", tps)
	if r.Err != nil || errors.Join(r.Partitions...) != nil || len(r.Partitions) != 3 {
		t.Fatal(r)
	}
	wantOffset(t, g, "g", "foo", id, -1)
	wantOffset(t, g, "g", "bar", id, 8)
	table, err := g.client.Table(t.Context(), pubsub.TableConfig{Name: bucket})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := table.Get(t.Context(), "g.foo.0"); !errors.Is(err, pubsub.ErrNotFound) {
		t.Errorf("the key of a group that was never taken over is there: %v", err)
	}
	mustCommit(t, g, commitOf(nobody, "foo", id, 9))
	wantOffset(t, g, "g", "foo", id, 9)
}

// Whatever happens to the writes, a deletion that succeeded stands; one that the
// store did not take is an error.
func TestDeleteOffsetsLostAcks(t *testing.T) {
	for name, fault := range map[string]memory.WriteFault{
		"ack lost": {LoseAck: true}, "dropped": {Drop: true}, "late": {Late: 20 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := start(t, memory.NewServer(memory.Config{}), 1, "a", everyOther(fault, nil), newTestConfig())
				id := types.NewTopicID()
				for i := range types.Offset(5) {
					mustCommit(t, g, commitOf(Membership{Group: "g", Generation: -1}, "foo", id, i))
					r := g.DeleteOffsets(t.Context(), "g", []types.TopicPartition{{Topic: "foo"}})
					if r.Err != nil || r.Partitions[0] != nil {
						t.Fatal(r)
					}
					wantOffset(t, g, "g", "foo", id, -1)
				}
			})
		})
	}
}

func TestDeleteOffsetsStoreAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		away := &fault{what: memory.WriteFault{Err: pubsub.ErrUnavailable}}
		g := start(t, memory.NewServer(memory.Config{}), 1, "a", away.faults(), newTestConfig())
		id := types.NewTopicID()
		mustCommit(t, g, commitOf(Membership{Group: "g", Generation: -1}, "foo", id, 4))
		away.Store(true)
		r := g.DeleteOffsets(t.Context(), "g", []types.TopicPartition{{Topic: "foo"}})
		if r.Err == nil && r.Partitions[0] == nil {
			t.Fatal("success, and nothing is stored")
		}
		away.Store(false)
		wantOffset(t, g, "g", "foo", id, 4)
	})
}

// C-37: the late write of an owner that was frozen brings nothing back, neither
// what was committed before nor where nothing was.
func TestDeleteOffsetsFrozenOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := memory.NewServer(memory.Config{})
		a, b, delay := freezing(t, srv, 3*time.Second)
		nobody := Membership{Group: "g", Generation: -1}
		id := types.NewTopicID()
		mustCommit(t, a, commitOf(nobody, "foo", id, 10))
		delay.Store(true)
		late := commitLate(t, a, commitOf(nobody, "foo", id, 9), commitOf(nobody, "new", id, 9))
		b.members.died(a.members.Self())
		r := b.DeleteOffsets(t.Context(), "g", []types.TopicPartition{{Topic: "foo"}, {Topic: "new"}})
		if r.Err != nil || errors.Join(r.Partitions...) != nil {
			t.Fatal(r)
		}
		wantOffset(t, b, "g", "foo", id, -1)
		wantErr(t, "the frozen owner's commit", (<-late).Err, kerr.NotCoordinator)
		for _, topic := range []string{"foo", "new"} {
			wantOffset(t, b, "g", topic, id, -1)
			if v := value(t, srv, "g."+topic+".0"); !strings.Contains(v, `"placeholder":true`) || strings.Contains(v, `"erased":true`) != (topic == "foo") {
				t.Errorf("stored: %s", v)
			}
		}
		// Kafka's tools see that the commit has ended, and nothing of the other.
		table, err := b.client.Table(t.Context(), pubsub.TableConfig{Name: bucket})
		if err != nil {
			t.Fatal(err)
		}
		ends := 0
		for _, r := range kafkaRecords(t, table) {
			var k kmsg.OffsetCommitKey
			if err := k.ReadFrom(r.Key); err == nil && k.Version == 1 {
				if k.Topic != "foo" || r.Value != nil {
					t.Errorf("record %+v", k)
				}
				ends++
			}
		}
		if ends != 1 {
			t.Errorf("%d tombstones", ends)
		}
		// A later owner inherits the end, and commits go on.
		c := heir(t, srv, 3, "c", a)
		c.members.died(b.members.Self())
		b.kill()
		wantOffset(t, c, "g", "foo", id, -1)
		if v := value(t, srv, "g.foo.0"); !strings.Contains(v, `"erased":true`) {
			t.Errorf("stored by the later owner: %s", v)
		}
		mustCommit(t, c, commitOf(nobody, "foo", id, 11))
		wantOffset(t, c, "g", "foo", id, 11)
		if v := value(t, srv, "g.foo.0"); strings.Contains(v, "placeholder") || strings.Contains(v, "erased") {
			t.Errorf("stored commit: %s", v)
		}
	})
}
