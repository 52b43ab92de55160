package main

import (
	"context"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/types"
)

// deafStore is one whose news of topics stop once what existed has been delivered,
// as behind a consumer of NATS that stands still.
type deafStore struct{ pubsub.Store }

func (s deafStore) Table(ctx context.Context, c pubsub.TableConfig) (pubsub.Table, error) {
	t, err := s.Store.Table(ctx, c)
	if c.Name == "kafka-topics" {
		t = deafTable{t}
	}
	return t, err
}

type deafTable struct{ pubsub.Table }

func (t deafTable) Watch(ctx context.Context, o pubsub.WatchOptions, fn func(pubsub.Value) error) error {
	if err := t.Scan(ctx, pubsub.WatchOptions{}, 0, fn); err != nil {
		return err
	}
	o.Synced()
	<-ctx.Done()
	return nil
}

// TestC10DeafGateway: a gateway that has a topic in memory and hears nothing of its
// deletion and of the next one of its name. Whatever it is asked first, it finds
// out, and what it had of the old one is not applied.
func TestC10DeafGateway(t *testing.T) {
	t.Parallel()
	for what, ask := range map[string]func(n *node, old, new types.TopicID) int16{
		"produce": func(n *node, _, _ types.TopicID) int16 { return n.produce(9, "t", records(0, 0, 1, "new")).ErrorCode },
		"fetch by name": func(n *node, _, _ types.TopicID) int16 {
			sp := n.fetch(12, "t", types.TopicID{}, 10)
			if len(sp.RecordBatches) > 0 {
				n.t.Error("records of the old topic")
			}
			return sp.ErrorCode
		},
		"fetch by the new id": func(n *node, _, id types.TopicID) int16 { return n.fetch(13, "", id, 0).ErrorCode },
		"delete": func(n *node, _, _ types.TopicID) int16 {
			req := kmsg.NewPtrDeleteTopicsRequest()
			req.TopicNames, req.TimeoutMillis = []string{"t"}, 30_000
			code := ask[*kmsg.DeleteTopicsResponse](n, 5, req).Topics[0].ErrorCode
			if code == 0 {
				code, _ = n.create("t", 1)
			}
			return code
		},
		"grow": func(n *node, _, _ types.TopicID) int16 {
			req := kmsg.NewPtrCreatePartitionsRequest()
			rt := kmsg.NewCreatePartitionsRequestTopic()
			rt.Topic, rt.Count = "t", 2
			req.Topics, req.TimeoutMillis = append(req.Topics, rt), 10_000
			return ask[*kmsg.CreatePartitionsResponse](n, 3, req).Topics[0].ErrorCode
		},
		"alter": func(n *node, _, _ types.TopicID) int16 {
			n.incremental("t", "max.message.bytes", "5000", 0) // wants 0 at once
			return 0
		},
		"describe configs": func(n *node, _, _ types.TopicID) int16 {
			if got := n.describeConfig("t", "retention.ms"); got != "604800000 DEFAULT_CONFIG" {
				n.t.Error(got)
			}
			return 0
		},
		"create": func(n *node, _, _ types.TopicID) int16 {
			if code, _ := n.create("t", 1); code != kerr.TopicAlreadyExists.Code {
				n.t.Errorf("create: %d", code)
			}
			return 0
		},
		"delete records": func(n *node, _, _ types.TopicID) int16 {
			req := kmsg.NewPtrDeleteRecordsRequest()
			rt, rp := kmsg.NewDeleteRecordsRequestTopic(), kmsg.NewDeleteRecordsRequestTopicPartition()
			rt.Topic, rp.Offset = "t", -1
			rt.Partitions = append(rt.Partitions, rp)
			req.Topics, req.TimeoutMillis = append(req.Topics, rt), 10_000
			return ask[*kmsg.DeleteRecordsResponse](n, 2, req).Topics[0].Partitions[0].ErrorCode
		},
		"list offsets": func(n *node, _, _ types.TopicID) int16 { return n.list(7, "t", -1).ErrorCode },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 1)
			a := w.nodes[0]
			w.wrap = func(s pubsub.Store) pubsub.Store { return deafStore{s} }
			old := a.mustCreate("t", 1)
			c := w.start()
			for seq := range int32(10) {
				c.mustProduce("t", records(77, seq, 1, "old"))
			}
			a.deleteTopic("t")
			id := a.mustCreate("t", 1)
			var codes []int16
			eventually(t, what, func() bool {
				code := ask(c, old, id)
				codes = append(codes, code)
				return code == 0 || code == kerr.OffsetOutOfRange.Code
			})
			// What clients repeat may fail once; what tools ask once must not.
			if n := len(codes); n > 2 || n > 1 && (codes[0] != kerr.KafkaStorageError.Code || slices.Contains([]string{"delete", "grow"}, what)) {
				t.Errorf("answers %d", codes)
			}
			if st := c.metadata(12, "t", false)[0]; st.TopicID != id && (what != "delete" || st.TopicID == old) {
				t.Errorf("metadata has the old topic")
			}
			if sp := c.fetch(13, "", old, 5); sp.ErrorCode != kerr.UnknownTopicID.Code {
				t.Errorf("fetch by the old id: %+v", sp)
			}
		})
	}
}
