package group

import (
	"bytes"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/broker/coord"
	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/pubsub/memory"
	"github.com/hanzoai/stream/types"
)

// kafkaRecords translates all that a table holds.
func kafkaRecords(t *testing.T, table pubsub.Table) (rs []KafkaRecord) {
	t.Helper()
	vs, err := table.Read(t.Context(), 1, pubsub.Limit{})
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range vs {
		r, ok, err := ToKafka(v)
		if err != nil {
			t.Fatalf("%s: %v", v.Key, err)
		}
		if ok {
			rs = append(rs, r)
		}
	}
	return rs
}

// What a coordinator stores reads as what Kafka's would have written: a group
// with a member, its commit, and tombstones of both after the end.
func TestToKafka(t *testing.T) {
	for _, names := range [][2]string{{"readers", "orders"}, {"r.ü", "a.b_c"}, {strings.Repeat("g", 300), strings.Repeat("t", 249)}} {
		group, topic := names[0], names[1]
		t.Run(group[:min(len(group), 10)], func(t *testing.T) {
			srv := memory.NewServer(memory.Config{})
			g := start(t, srv, 1, "one", memory.Faults{}, newTestConfig())
			m := stable(t, g, group)
			id := types.NewTopicID()
			meta := "at noon"
			before := time.Now().UnixMilli()
			c := g.Commit(t.Context(), CommitRequest{Membership: m, V9: true, Partitions: []CommitPartition{{
				TopicPartition: types.TopicPartition{Topic: topic, Partition: 7}, TopicID: id, Offset: 1 << 40, LeaderEpoch: -1, Metadata: &meta}}})
			if c.Err != nil || c.Partitions[0] != nil {
				t.Fatal(c)
			}
			offset := kmsg.OffsetCommitKey{Version: 1, Group: group, Topic: topic, Partition: 7}
			about := kmsg.GroupMetadataKey{Version: 2, Group: group}
			table, err := g.client.Table(t.Context(), pubsub.TableConfig{Name: bucket})
			if err != nil {
				t.Fatal(err)
			}
			rs := kafkaRecords(t, table)
			if len(rs) != 2 || !bytes.Equal(rs[0].Key, about.AppendTo(nil)) || !bytes.Equal(rs[1].Key, offset.AppendTo(nil)) {
				t.Fatalf("records: %+v", rs)
			}
			var gv kmsg.GroupMetadataValue
			if err := gv.ReadFrom(rs[0].Value); err != nil {
				t.Fatal(err)
			}
			want := kmsg.GroupMetadataValue{Version: 3, ProtocolType: "consumer", Generation: 1, Protocol: new(string), Leader: &m.Member,
				CurrentStateTimestamp: gv.CurrentStateTimestamp,
				Members: []kmsg.GroupMetadataValueMember{{MemberID: m.Member, ClientID: "c", ClientHost: "/127.0.0.1",
					RebalanceTimeoutMillis: 60_000, SessionTimeoutMillis: 10_000, Subscription: []byte("meta"), Assignment: gv.Members[0].Assignment}}}
			*want.Protocol = "range"
			if !reflect.DeepEqual(gv, want) || gv.CurrentStateTimestamp > before || before-gv.CurrentStateTimestamp > 60_000 {
				t.Errorf("group: %+v\nwant %+v", gv, want)
			}
			if rs[0].Timestamp > before || rs[1].Timestamp < before {
				t.Errorf("timestamps %d, %d; the commit came after %d", rs[0].Timestamp, rs[1].Timestamp, before)
			}
			var ov kmsg.OffsetCommitValue
			if err := ov.ReadFrom(rs[1].Value); err != nil {
				t.Fatal(err)
			}
			if w := (kmsg.OffsetCommitValue{Version: 4, Offset: 1 << 40, LeaderEpoch: -1, Metadata: meta, CommitTimestamp: rs[1].Timestamp, TopicID: id}); !reflect.DeepEqual(ov, w) {
				t.Errorf("offset: %+v\nwant %+v", ov, w)
			}

			if l := g.Leave(t.Context(), group, []LeaveMember{{Member: m.Member}}); l.Err != nil {
				t.Fatal(l.Err)
			}
			if err := g.Delete(t.Context(), group); err != nil {
				t.Fatal(err)
			}
			rs = kafkaRecords(t, table)
			ends := [][]byte{offset.AppendTo(nil), about.AppendTo(nil)}
			if _, ok := pubsub.Name(pubsub.Token(group)); !ok {
				ends = ends[:1] // the record's marker does not tell a name that is only hashed
			}
			if !slices.EqualFunc(rs, ends, func(r KafkaRecord, k []byte) bool { return r.Value == nil && bytes.Equal(r.Key, k) }) {
				t.Errorf("after the end: %+v", rs)
			}
		})
	}
}

func TestToKafkaNothing(t *testing.T) {
	at := time.UnixMilli(5)
	for _, v := range []pubsub.Value{
		{Key: "g.t.0", Data: []byte(`{"v":1,"placeholder":true,"offset":-1,"pending":[{"offset":7}]}`)},
		{Key: "_.created", Deleted: true},
		{Key: "a.b", Data: []byte("?")},
		{Key: "a.b.c", Data: []byte("?")},
		{Key: "a.b.0.d", Data: []byte("?")},
		{Key: "a.b.x", Deleted: true},
		{Key: pubsub.Token(strings.Repeat("g", 300)), Deleted: true},
		{Key: "g." + pubsub.Token(strings.Repeat("t", 249)) + ".0", Deleted: true},
	} {
		v.Time = at
		if r, ok, err := ToKafka(v); ok || err != nil {
			t.Errorf("%s: %+v, %v", v.Key, r, err)
		}
	}
	// Of a commit beside an open transaction's, the commit shows.
	r, ok, err := ToKafka(pubsub.Value{Key: "g.t.0", Time: at, Data: []byte(`{"v":1,"offset":3,"timestamp":9,"pending":[{"offset":7}]}`)})
	var ov kmsg.OffsetCommitValue
	if err != nil || !ok || ov.ReadFrom(r.Value) != nil || ov.Offset != 3 || r.Timestamp != 9 {
		t.Errorf("commit beside a pending one: %+v, %v, %v", ov, ok, err)
	}
	// A group that is going has gone.
	r, ok, err = ToKafka(pubsub.Value{Key: "g", Time: at, Data: []byte(`{"v":1,"name":"g","type":"classic","state":"Empty","deleting":true}`)})
	if err != nil || !ok || r.Value != nil || r.Timestamp != 5 {
		t.Errorf("group being deleted: %+v, %v, %v", r, ok, err)
	}
}

// What cannot be read is never "nothing".
func TestToKafkaUnreadable(t *testing.T) {
	for key, data := range map[string]string{
		"g.t.0": "{", "h.t.0": `{"v":2}`, "g": "", "h": `{"v":2}`, "i": `{"v":1,"type":"consumer"}`, "j": `{"v":1,"type":"classic","members":7}`,
	} {
		if _, ok, err := ToKafka(pubsub.Value{Key: key, Data: []byte(data)}); ok || err == nil {
			t.Errorf("%s: %v, %v", key, ok, err)
		} else if strings.Contains(data, `2}`) || strings.Contains(data, "consumer") {
			wantErr(t, key, err, coord.ErrVersion)
		}
	}
}
