package cluster

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hanzoai/stream/test/testkit"
	"github.com/hanzoai/stream/types"
)

// cleanFreeze is a moment in a run of compaction, or of retention, at which the
// holder of the maintenance lease freezes.
type cleanFreeze struct {
	name string
	ci   bool
	// point is the moment; %s is the topic, %i its id.
	point string
	// remade: the topic is deleted meanwhile, and one of its name made; else it is
	// compacted again.
	remade bool
}

const (
	makesSibling   = api + "CREATE.kafka-%s-0=k*"
	fillsSibling   = sending + "kafka-clean.%s-0.k*"
	writesIndex    = kv + "partitions.%i.0.k.*"
	switches       = "compact.written>" + kv + "partitions.%i.0"
	deletesSibling = "compact.switched>" + api + "DELETE.kafka-%s-0=k*"
	purgesMain     = "compact.switched>" + api + "PURGE.kafka-%s-0"
)

var cleanFreezes = []cleanFreeze{
	{"a new sibling, topic made again", true, makesSibling, true},
	{"a new sibling, compacted again", false, makesSibling, false},
	{"records of a sibling, topic made again", false, fillsSibling, true},
	{"records of a sibling, compacted again", false, fillsSibling, false},
	{"the index of a sibling, topic made again", false, writesIndex, true},
	{"the index of a sibling, compacted again", false, writesIndex, false},
	{"the switch, topic made again", false, switches, true},
	{"the switch, compacted again", true, switches, false},
	{"the deletion of the sibling before, topic made again", false, deletesSibling, true},
	{"the deletion of the sibling before, compacted again", true, deletesSibling, false},
	{"the purge of the main stream, topic made again", true, purgesMain, true},
	{"the purge of the main stream, compacted again", false, purgesMain, false},
}

// TestFrozenCompaction: holders of the maintenance lease freeze in the middle of a
// run of compaction, one after another. Who takes the lease over compacts further,
// or deletes the topic and makes one of the same name; then they wake up, and
// neither the log nor the new topic is damaged, and nothing is left over.
func TestFrozenCompaction(t *testing.T) {
	t.Parallel()
	inWorlds(t, cleanFreezes, func(r cleanFreeze) bool { return r.ci }, 4, frozenCompaction)
}

func frozenCompaction(t *testing.T, rows []cleanFreeze, by time.Duration) {
	z := newFreezing(t, shape{gateways: len(rows) + 1, mode: shared, args: []string{"--log-cleaner-backoff-ms", "1s"}})
	name := func(i int) string { return fmt.Sprintf("clean%d", i) }
	old := make([]types.TopicID, len(rows))
	for i := range rows {
		z.peers[0].create(name(i), 1, "cleanup.policy", "compact", "min.cleanable.dirty.ratio", "1")
		id, _, err := z.peers[0].metadata(name(i))
		if err != nil {
			t.Fatal(err)
		}
		old[i] = id
		z.overwrite(z.peers[0], name(i), 0)
		z.compact(0, name(i))
	}
	for i := range rows {
		z.compacted(0, name(i))
		z.overwrite(z.peers[0], name(i), 1)
	}

	// One holder after another.
	sleepers, subjects := make([]int, len(rows)), make([]string, len(rows))
	for i, r := range rows {
		point := delayed(strings.NewReplacer("%s", name(i), "%i", old[i].String()).Replace(r.point), by)
		holder, other := z.holder()
		z.arm(holder, point)
		z.compact(other, name(i))
		sleepers[i], subjects[i] = holder, z.froze(holder, point)
		t.Logf("%s: %s is frozen before %s", r.name, z.w.gateways[holder].name, subjects[i])
	}
	last, _ := z.holder()
	alive := z.peers[last]
	for i, r := range rows {
		if r.remade {
			z.remake(alive, name(i), 1, "new 0", "new 1")
			continue
		}
		z.overwrite(alive, name(i), 2)
		z.compact(last, name(i))
	}
	for i, r := range rows {
		if !r.remade {
			z.compacted(last, name(i))
		}
	}
	for i := range rows {
		z.wake(sleepers[i], subjects[i])
	}
	for _, i := range sleepers {
		z.again(i)
	}
	for i, r := range rows {
		if r.remade {
			z.wantStreams(name(i), 1)
			z.holds(name(i), "new 0", "new 1")
		} else {
			z.wantStreams(name(i), 2) // its sibling and itself
			z.wantLast(name(i), 2)
		}
	}
	z.explained()
	// It can be compacted as before.
	for i, r := range rows {
		if !r.remade {
			z.overwrite(z.peers[sleepers[i]], name(i), 3)
			z.compact(sleepers[i], name(i))
		}
	}
	for i, r := range rows {
		if !r.remade {
			z.compacted(sleepers[i], name(i))
			z.wantStreams(name(i), 2)
			z.wantLast(name(i), 3)
		}
	}
}

// Keys of a topic that is compacted, and how often each is written in a round.
const (
	cleanKeys   = 3
	cleanWrites = 4
)

// overwrite writes every key of a topic anew, one record a message.
func (z *freezing) overwrite(p *peer, topic string, round int) {
	z.Helper()
	for n := range cleanWrites {
		for key := range cleanKeys {
			p.produce(topic, 0, batch{producer: -1, key: fmt.Sprint("key ", key), values: []string{cleanValue(key, round, n)}})
		}
	}
}

func cleanValue(key, round, n int) string { return fmt.Sprintf("key %d: %d.%d", key, round, n) }

// wantLast checks that every gateway has the last value of each key, nothing that
// was never written, and nothing twice; and that all have the same.
func (z *freezing) wantLast(topic string, round int) {
	z.Helper()
	var first []stored
	for i, g := range z.w.gateways {
		all := z.peers[i].readAll(topic, 0, true)
		latest := map[string]string{}
		for _, s := range all {
			key, _, _ := strings.Cut(s.value, ":")
			latest[key] = s.value
		}
		for key := range cleanKeys {
			if got, want := latest[fmt.Sprint("key ", key)], cleanValue(key, round, cleanWrites-1); got != want {
				z.Errorf("%s: the last of %s is %q, want %q", g.name, topic, got, want)
			}
		}
		if len(latest) != cleanKeys {
			z.Errorf("%s: %s has the keys %v", g.name, topic, latest)
		}
		if i == 0 {
			first = all
		} else if !slices.Equal(all, first) {
			z.Errorf("%s: %s holds\n%v\nand %s\n%v", topic, z.w.gateways[0].name, first, g.name, all)
		}
	}
}

// holder waits until one of the gateways that run holds the maintenance lease, and
// names it and another one, itself if there is none.
func (z *freezing) holder() (holder, other int) {
	z.Helper()
	testkit.Poll(z, 30*time.Second, "a gateway holds the maintenance lease", func() error {
		holder, other = -1, -1
		for i, g := range z.w.gateways {
			if g.is() != running {
				continue
			}
			var status struct {
				NodeID     int32 `json:"node_id"`
				Compaction struct {
					Gateway int32 `json:"gateway"` // that does it
				} `json:"compaction"`
			}
			if err := testkit.Document(z.Context(), http.MethodGet, g.Admin+"/v1/stream/status", &status); err != nil {
				return err
			}
			if status.Compaction.Gateway == status.NodeID {
				holder = i
			} else {
				other = i
			}
		}
		if holder < 0 {
			return errors.New("nobody")
		}
		if other < 0 {
			other = holder
		}
		return nil
	})
	return holder, other
}

// compaction asks gateway i for, or about, the compaction of a topic's partition 0.
func (z *freezing) compaction(i int, method, topic string) (to, wanted int64, err error) {
	var d struct {
		Partitions []struct {
			CompactedTo int64 `json:"compacted_to"`
			Wanted      int64 `json:"wanted"`
		} `json:"partitions"`
	}
	if err := testkit.Document(z.Context(), method, z.w.gateways[i].Admin+"/v1/stream/topics/"+topic+"/compaction", &d); err != nil {
		return 0, 0, err
	}
	return d.Partitions[0].CompactedTo, d.Partitions[0].Wanted, nil
}

// compact asks gateway i to have a topic compacted.
func (z *freezing) compact(i int, topic string) {
	z.Helper()
	testkit.Poll(z, 30*time.Second, "compaction is asked for", func() error {
		_, _, err := z.compaction(i, http.MethodPost, topic)
		return err
	})
}

// compacted waits until that is done.
func (z *freezing) compacted(i int, topic string) {
	z.Helper()
	testkit.Poll(z, 40*time.Second, topic+" is compacted", func() error {
		to, wanted, err := z.compaction(i, http.MethodGet, topic)
		if err == nil && wanted > 0 {
			err = fmt.Errorf("to %d, wanted %d", to, wanted)
		}
		return err
	})
}
