package cluster

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/types"
)

// topicFreeze is a moment in the life of a topic at which a gateway freezes.
type topicFreeze struct {
	name string
	// ci: it is tried in CI, where it stands for its kind.
	ci bool
	// point is the moment; %s is the topic, %i its id if it is there.
	point string
	// before are the partitions of the topic that is there then, 0 if there is none;
	// it holds ten records.
	before int32
	// request brings the gateway there.
	request func(z *freezing, p *peer, topic string) <-chan int16
	// partitions of the topic that is made of the same name while it is frozen.
	after int32
	// refused: the request must not be told that it was done.
	refused bool
}

const (
	sending = "request.sending="
	api     = sending + "$JS.API.STREAM."
	kv      = sending + "$KV.kafka-"
)

var topicFreezes = []topicFreeze{
	{"CreateTopics, a stream that the next topic has not", true, api + "CREATE.kafka-%s-2", 0, creates(3), 1, true},
	{"CreateTopics, a stream that the next topic has", false, api + "CREATE.kafka-%s-2", 0, creates(3), 3, true},
	{"CreateTopics, a partition record", false, kv + "partitions.*", 0, creates(3), 1, true},
	{"CreateTopics, the record that shows it", true, kv + "topics.%s:2", 0, creates(1), 1, true},
	{"DeleteTopics, the record that hides it", true, kv + "topics.%s", 2, deletes, 1, true},
	{"DeleteTopics, a stream", true, api + "DELETE.kafka-%s-0", 2, deletes, 2, false},
	{"DeleteTopics, a partition record", false, kv + "partitions.%i.*", 2, deletes, 2, false},
	{"DeleteTopics, the end of the record", false, kv + "topics.%s:2", 2, deletes, 2, false},
	{"CreatePartitions, the record that begins it", false, kv + "topics.%s", 1, grows, 1, true},
	{"CreatePartitions, a stream that the next topic has not", true, api + "CREATE.kafka-%s-2", 1, grows, 1, true},
	{"CreatePartitions, a stream that the next topic has", false, api + "CREATE.kafka-%s-2", 1, grows, 3, true},
	{"CreatePartitions, the record that ends it", false, kv + "topics.%s:2", 1, grows, 1, true},
	{"DeleteRecords, the log start", false, kv + "partitions.%i.0", 1, deletesRecords, 1, true},
	{"DeleteRecords, the purge", true, api + "PURGE.kafka-%s-0", 1, deletesRecords, 1, false},
	{"AlterConfigs", false, kv + "topics.%s", 1, alters, 1, true},
	{"Produce", true, sending + "kafka.%s.0", 1, produces, 1, true},
}

func creates(partitions int32) func(z *freezing, p *peer, topic string) <-chan int16 {
	return func(_ *freezing, p *peer, topic string) <-chan int16 {
		return late(p, topicRequest(topic, partitions), func(r *kmsg.CreateTopicsResponse) int16 { return r.Topics[0].ErrorCode })
	}
}

func deletes(_ *freezing, p *peer, topic string) <-chan int16 {
	return late(p, deleteRequest(topic), func(r *kmsg.DeleteTopicsResponse) int16 { return r.Topics[0].ErrorCode })
}

func grows(_ *freezing, p *peer, topic string) <-chan int16 {
	return late(p, growRequest(topic, 3), func(r *kmsg.CreatePartitionsResponse) int16 { return r.Topics[0].ErrorCode })
}

func deletesRecords(_ *freezing, p *peer, topic string) <-chan int16 {
	return late(p, deleteRecordsRequest(topic, 5), func(r *kmsg.DeleteRecordsResponse) int16 { return r.Topics[0].Partitions[0].ErrorCode })
}

func alters(_ *freezing, p *peer, topic string) <-chan int16 {
	return late(p, alterRequest(topic, "retention.ms", "1000"), func(r *kmsg.IncrementalAlterConfigsResponse) int16 { return r.Resources[0].ErrorCode })
}

func produces(_ *freezing, p *peer, topic string) <-chan int16 {
	return late(p, batch{producer: -1, values: []string{"late"}}.request(topic, 0), func(r *kmsg.ProduceResponse) int16 { return r.Topics[0].Partitions[0].ErrorCode })
}

// TestFrozenTopics: gateways freeze in the middle of the life of a topic each. What
// they began is finished by another one, which deletes the topic and makes one of
// the same name; then they wake up, and nothing happens to that one.
func TestFrozenTopics(t *testing.T) {
	t.Parallel()
	inWorlds(t, topicFreezes, func(r topicFreeze) bool { return r.ci }, 8, frozenTopics)
}

func frozenTopics(t *testing.T, rows []topicFreeze, by time.Duration) {
	z := newFreezing(t, shape{gateways: len(rows) + 1, mode: shared})
	alive := z.peers[len(rows)]
	subjects := make([]string, len(rows))
	answers := make([]<-chan int16, len(rows))
	name := func(i int) string { return fmt.Sprintf("frozen%d", i) }
	old := make([]types.TopicID, len(rows))
	for i, r := range rows {
		if r.before == 0 {
			continue
		}
		alive.create(name(i), r.before)
		id, _, err := alive.metadata(name(i))
		if err != nil {
			t.Fatal(err)
		}
		old[i] = id
		for n := range 10 {
			alive.produce(name(i), 0, batch{producer: -1, values: []string{fmt.Sprint("old ", n)}})
		}
		z.peers[i].values(name(i), 0) // known there as well
	}
	for i, r := range rows {
		point := delayed(strings.NewReplacer("%s", name(i), "%i", old[i].String()).Replace(r.point), by)
		z.arm(i, point)
		answers[i] = r.request(z, z.peers[i], name(i))
		subjects[i] = z.froze(i, point)
	}
	z.heldDead()
	for i, r := range rows {
		z.remake(alive, name(i), r.after, "new 0", "new 1")
		if id, _, err := alive.metadata(name(i)); err != nil || old[i] == id {
			t.Errorf("%s: the new topic has id %x; %v", r.name, id, err)
		}
	}
	for i := range rows {
		z.wake(i, subjects[i])
	}
	for i, r := range rows {
		if c := <-answers[i]; c == 0 && r.refused {
			t.Errorf("%s: it is told that it was done", r.name)
		} else {
			t.Logf("%s: %s; answered with %v", r.name, subjects[i], code(c))
		}
		z.again(i)
	}
	for i, r := range rows {
		z.wantStreams(name(i), int(r.after))
		z.holds(name(i), "new 0", "new 1")
		if _, n, err := z.peers[i].metadata(name(i)); err != nil || n != int(r.after) {
			t.Errorf("%s: %d partitions, want %d; %v", r.name, n, r.after, err)
		}
		// The one that slept writes into the new one.
		if base, _ := z.peers[i].produce(name(i), 0, batch{producer: -1, values: []string{"new 2"}}); base != 2 {
			t.Errorf("%s: the next record is at %d", r.name, base)
		}
		z.holds(name(i), "new 0", "new 1", "new 2")
		if start := alive.offset(name(i), 0, earliest); start != 0 {
			t.Errorf("%s: the log starts at %d", r.name, start)
		}
	}
	z.explained()
}
