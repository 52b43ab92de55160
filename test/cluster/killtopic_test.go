package cluster

import (
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/test/testkit"
)

// topicKills are the points in the life of a topic.
var topicKills = []killRow{
	{"CreateTopics between streams", "partition.made:2", halfCreated},
	{"CreateTopics after the record, before the answer", "topic.active", created},
	{"DeleteTopics between streams", "partition.removed:2", halfDeleted},
	{"CreatePartitions half way", "partition.made:1", halfGrown},
	{"AlterConfigs before it is stored", "configs.checked", func(k *killed) { altered(k, "1000000", "60000") }},
	{"AlterConfigs stored, not answered", "configs.stored", func(k *killed) { altered(k, "2000000", "70000") }},
}

// unknown waits until a gateway does not know a topic (any more), which it never
// does meanwhile.
func (k *killed) unknown(p *peer, topic string) {
	k.Helper()
	if _, _, err := p.metadata(topic); !errors.Is(err, kerr.UnknownTopicOrPartition) {
		k.Errorf("metadata of %s: %v, want %v", topic, err, kerr.UnknownTopicOrPartition)
	}
}

// noStreams waits until nothing is left of a topic.
func (k *killed) noStreams(topic string) {
	k.Helper()
	testkit.Poll(k, 30*time.Second, "nothing is left of "+topic, func() error {
		left, err := k.streams(topic)
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("%v", left)
		}
		return err
	})
}

// halfCreated: the topic is invisible, leftovers are removed, the name is free.
func halfCreated(k *killed) {
	k.arm()
	lost(k.a, topicRequest("kill", 4))
	k.died()
	left, err := k.streams("kill")
	if err != nil || len(left) == 0 {
		k.Fatalf("it was not killed between streams: %v, %v", left, err)
	}
	k.unknown(k.b, "kill")
	k.noStreams("kill")
	k.unknown(k.b, "kill")
	k.b.create("kill", 1)
	k.b.produce("kill", 0, batch{producer: -1, values: []string{"a"}})
	k.wantValues("kill", "a")
}

// created: the topic is complete, a repetition says that it exists.
func created(k *killed) {
	k.arm()
	lost(k.a, topicRequest("kill", 4))
	k.died()
	if _, n, err := k.b.metadata("kill"); n != 4 || err != nil {
		k.Errorf("metadata: %d partitions, %v", n, err)
	}
	if err := code(must[*kmsg.CreateTopicsResponse](k.b, topicRequest("kill", 4)).Topics[0].ErrorCode); !errors.Is(err, kerr.TopicAlreadyExists) {
		k.Errorf("the repetition says %v", err)
	}
	k.b.produce("kill", 3, batch{producer: -1, values: []string{"a"}})
}

// halfDeleted: gone for clients, cleaned up later, another one has another id.
func halfDeleted(k *killed) {
	const partitions = 40
	k.b.create("kill", partitions)
	old, _, err := k.a.metadata("kill")
	if err != nil {
		k.Fatal(err)
	}
	k.b.produce("kill", 0, batch{producer: -1, values: []string{"old"}})
	k.arm()
	lost(k.a, deleteRequest("kill"))
	k.died()
	left, err := k.streams("kill")
	if err != nil || len(left) == 0 || len(left) == partitions {
		k.Fatalf("it was not killed between streams: %v, %v", left, err)
	}
	k.unknown(k.b, "kill")
	k.noStreams("kill")
	k.b.create("kill", 1)
	id, _, err := k.b.metadata("kill")
	if err != nil || id == old {
		k.Errorf("the new topic has id %x, the old one had %x; %v", id, old, err)
	}
	k.b.produce("kill", 0, batch{producer: -1, values: []string{"new"}})
	k.wantValues("kill", "new")
}

// halfGrown: the old number or the new one, never one in between, and in the end
// the new one.
func halfGrown(k *killed) {
	k.b.create("kill", 2)
	k.arm()
	lost(k.a, growRequest("kill", 6))
	k.died()
	testkit.Poll(k, 30*time.Second, "the growth is finished", func() error {
		_, n, err := k.b.metadata("kill")
		if err == nil && n != 2 && n != 6 {
			k.Fatalf("%d partitions are shown", n)
		}
		if err == nil && n != 6 {
			err = fmt.Errorf("%d partitions", n)
		}
		return err
	})
	k.b.produce("kill", 5, batch{producer: -1, values: []string{"a"}})
}

// altered: the old configs or the new ones, never mixed.
func altered(k *killed, bytes, ms string) {
	k.b.create("kill", 1, "retention.bytes", "1000000", "retention.ms", "60000")
	k.arm()
	lost(k.a, alterRequest("kill", "retention.bytes", "2000000", "retention.ms", "70000"))
	k.died()
	describe := kmsg.NewPtrDescribeConfigsRequest()
	dr := kmsg.NewDescribeConfigsRequestResource()
	dr.ResourceType, dr.ResourceName, dr.ConfigNames = kmsg.ConfigResourceTypeTopic, "kill", []string{"retention.bytes", "retention.ms"}
	describe.Resources = append(describe.Resources, dr)
	// Another gateway obeys, and shows, a change within a second.
	testkit.Poll(k, 20*time.Second, "the configs", func() error {
		got := map[string]string{}
		for _, c := range must[*kmsg.DescribeConfigsResponse](k.b, describe).Resources[0].Configs {
			got[c.Name] = *c.Value
		}
		if got["retention.bytes"] != bytes || got["retention.ms"] != ms {
			return fmt.Errorf("%v", got)
		}
		return nil
	})
}
