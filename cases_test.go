package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/admin"
	"github.com/hanzoai/stream/types"
)

// What several gateways on one store must show together, through sockets.

// TestC07TopicIsUsableOnAllGateways: what one gateway said is true on the others
// at once, and who only asks makes no topic.
func TestC07TopicIsUsableOnAllGateways(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3, "--num-partitions", "4", "--auto-create-topics-enable", "true")
	for i := range 12 {
		a, b, c := w.nodes[i%3], w.nodes[(i+1)%3], w.nodes[(i+2)%3]
		name := fmt.Sprintf("made-%d", i)
		id := a.mustCreate(name, 2)
		for _, n := range []*node{b, c, a} {
			switch i % 4 { // each may be the first that this gateway hears of it
			case 0:
				if st := n.metadata(12, name, false)[0]; st.ErrorCode != 0 || st.TopicID != id || len(st.Partitions) != 2 {
					t.Errorf("metadata: %+v", st)
				}
			case 1:
				n.mustProduce(name, records(0, 0, 1, "x"))
			case 2:
				if sp := n.list(1, name, -1); sp.ErrorCode != 0 || sp.Offset != 0 {
					t.Errorf("list offsets: %+v", sp)
				}
			case 3:
				if sp := n.fetch(13, "", id, 0); sp.ErrorCode != 0 || sp.HighWatermark != 0 {
					t.Errorf("fetch by id: %+v", sp)
				}
			}
		}
	}
	a, b, c := w.nodes[0], w.nodes[1], w.nodes[2]
	before := len(w.server.Logs())
	for _, v := range []int16{3, 9} {
		if sp := a.produce(v, "unknown", records(0, 0, 1, "x")); sp.ErrorCode != kerr.UnknownTopicOrPartition.Code || sp.BaseOffset != -1 {
			t.Errorf("produce v%d: %+v", v, sp)
		}
	}
	for what, code := range map[string]int16{
		"metadata without the flag": a.metadata(4, "unknown", false)[0].ErrorCode,
		"list offsets":              a.list(7, "unknown", -1).ErrorCode,
		"fetch":                     a.fetch(12, "unknown", types.TopicID{}, 0).ErrorCode,
		"commit":                    w.commit("g", "unknown", 1, -1),
	} {
		if code != kerr.UnknownTopicOrPartition.Code {
			t.Errorf("%s: %d", what, code)
		}
	}
	if n := len(a.metadata(12, "", true)); n != 12 {
		t.Errorf("%d topics", n)
	}
	if now := len(w.server.Logs()); now != before {
		t.Fatalf("asking made %d streams", now-before)
	}
	first := a.metadata(12, "unknown", true)[0]
	if code := first.ErrorCode; code != 0 && code != kerr.UnknownTopicOrPartition.Code && code != kerr.LeaderNotAvailable.Code {
		t.Errorf("first answer: %d", code)
	}
	eventually(t, "the topic is there on all gateways", func() bool {
		return !slices.ContainsFunc([]*node{a, b, c}, func(n *node) bool {
			st := n.metadata(12, "unknown", false)[0]
			return st.ErrorCode != 0 || len(st.Partitions) != 4
		})
	})
}

// TestC08NamesThatDifferOnlyALittle: what is created stays apart, what is
// refused reaches the store by no way; groups as well.
func TestC08NamesThatDifferOnlyALittle(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	b := w.nodes[1]
	long := strings.Repeat("n", 249)
	var made []string
	for i, c := range []struct {
		name string
		code int16
	}{
		{"cs.a", 0}, {"cs_a", 17}, {"cs-a", 0}, {".cs", 0}, {"cs..a", 0}, {"CS.A", 0}, {long, 0}, {long[1:] + "m", 0}, {long + "n", 17}, {".", 17}, {"..", 17},
		{"a/b", 17}, {"a b", 17}, {"", 17}, {"a>", 17}, {"*", 17}, {"cs=2Ea", 17}, {"...", 0}, {"cs.a-0", 0}, {"cs", 0}, {"cs.", 0}, {"cs.a.", 0},
	} {
		n := w.nodes[i%2]
		if code, _ := n.create(c.name, 1); code != c.code {
			t.Errorf("%.20q: %d, want %d", c.name, code, c.code)
		} else if code == 0 {
			made = append(made, c.name)
			n.mustProduce(c.name, records(0, 0, 1, c.name))
		} else if sp := n.produce(9, c.name, records(0, 0, 1, c.name)); sp.ErrorCode == 0 {
			t.Errorf("%.20q: produced", c.name)
		}
	}
	if logs := w.server.Logs(); len(logs) != len(made) {
		t.Errorf("%d streams for %d topics: %q", len(logs), len(made), logs)
	}
	for i, name := range made {
		for _, n := range w.nodes {
			bs := batches(t, n.fetch(12, name, types.TopicID{}, 0))
			if len(bs) != 1 || !bytes.Contains(bs[0], []byte(name)) {
				t.Errorf("%.20q: %d batches", name, len(bs))
			}
		}
		for g, group := range []string{"g", "g." + name, name} {
			if code := w.commit(group, name, int64(10*i+g), -1); code != 0 {
				t.Errorf("commit: %d", code)
			}
		}
		ts, err := b.gateway.Topics(t.Context(), name)
		if err != nil || len(ts) != 1 || ts[0].Name != name || ts[0].Partitions[0].EndOffset != 1 {
			t.Errorf("%.20q by HTTP: %+v, %v", name, ts, err)
		}
	}
	for i, name := range made {
		for g, group := range []string{"g", "g." + name, name} {
			if sp := w.committed(7, group, name); sp.Offset != int64(10*i+g) {
				t.Errorf("group %.20q, topic %.20q: %d, want %d", group, name, sp.Offset, 10*i+g)
			}
		}
	}
}

// TestC10DeletedAndMadeAgain: nothing of a topic is there in the next one of its
// name, on any gateway, whatever it had in memory. Open transactions of the old
// one belong to transactions.
func TestC10DeletedAndMadeAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3)
	a, b, c := w.nodes[0], w.nodes[1], w.nodes[2]
	id := a.mustCreate("t", 1)
	for round := range 3 {
		for seq := range int32(10) {
			if got := c.mustProduce("t", records(77, 10*seq, 10, "old")); got != int64(10*seq) {
				t.Fatalf("base %d", got)
			}
		}
		if code := w.commit("g", "t", 50, -1); code != 0 {
			t.Fatalf("commit: %d", code)
		}
		for _, n := range w.nodes { // all have it in memory
			if sp := n.fetch(13, "", id, 95); sp.ErrorCode != 0 || sp.HighWatermark != 100 {
				t.Fatalf("fetch: %+v", sp)
			}
			if sp := w.committed(7, "g", "t"); sp.Offset != 50 {
				t.Fatalf("committed: %+v", sp)
			}
		}
		a.deleteTopic("t")
		again := b.mustCreate("t", 1)
		if again == id {
			t.Fatal("the same id")
		}
		for i, n := range w.nodes {
			// One that has not heard yet says at most that it does not know.
			eventually(t, "news of the new topic", func() bool {
				for _, sp := range []kmsg.FetchResponseTopicPartition{n.fetch(13, "", id, 95), n.fetch(12, "t", types.TopicID{}, 0)} {
					if len(sp.RecordBatches) > 0 || sp.HighWatermark > 0 {
						t.Fatalf("round %d, gateway %d: the old topic: %+v", round, i, sp)
					}
				}
				st := n.metadata(12, "t", false)[0]
				return st.ErrorCode == 0 && st.TopicID == again
			})
			if sp := n.fetch(13, "", id, 95); sp.ErrorCode != kerr.UnknownTopicID.Code || len(sp.RecordBatches) != 0 || sp.HighWatermark != -1 {
				t.Errorf("round %d, gateway %d: fetch by the old id: %+v", round, i, sp)
			}
			if sp := n.fetch(13, "", again, 0); sp.ErrorCode != 0 || sp.HighWatermark != 0 {
				t.Errorf("round %d, gateway %d: fetch by the new id: %+v", round, i, sp)
			}
			if sp := n.fetch(12, "t", types.TopicID{}, 0); sp.ErrorCode != 0 || sp.HighWatermark != 0 || len(sp.RecordBatches) != 0 {
				t.Errorf("round %d, gateway %d: fetch by name: %+v", round, i, sp)
			}
			if sp := w.committed(7, "g", "t"); sp.Offset != -1 || sp.ErrorCode != 0 {
				t.Errorf("round %d, gateway %d: committed: %+v", round, i, sp)
			}
		}
		// Its old sequence is not held against the producer.
		if got := c.mustProduce("t", records(77, 100, 1, "new")); got != 0 {
			t.Errorf("round %d: first base %d", round, got)
		}
		b.deleteTopic("t")
		id = c.mustCreate("t", 1)
	}
}

// TestC17NoCountOfMessagesAnywhere: every place that tells an offset tells
// records, those of HTTP as well.
func TestC17NoCountOfMessagesAnywhere(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	a, b := w.nodes[0], w.nodes[1]
	a.mustCreate("t", 1)
	if x, y := a.mustProduce("t", records(0, 0, 31, "x")), b.mustProduce("t", records(0, 0, 1, "y")); x != 0 || y != 31 {
		t.Fatalf("bases %d, %d", x, y)
	}
	if code := w.commit("g", "t", 30, -1); code != 0 {
		t.Fatalf("commit: %d", code)
	}
	for i, n := range w.nodes {
		if sp := n.list(7, "t", -1); sp.Offset != 32 {
			t.Errorf("gateway %d: end %d", i, sp.Offset)
		}
		for offset, want := range map[int64][]int64{0: {0, 31}, 30: {0, 31}, 31: {31}, 32: nil} {
			sp := n.fetch(12, "t", types.TopicID{}, offset)
			var bases []int64
			for _, b := range batches(t, sp) {
				bases = append(bases, b.BaseOffset())
			}
			if !slices.Equal(bases, want) || sp.HighWatermark != 32 || sp.LastStableOffset != 32 || sp.LogStartOffset != 0 {
				t.Errorf("gateway %d, fetch at %d: %v, %+v", i, offset, bases, sp)
			}
		}
		if sp := w.committed(7, "g", "t"); sp.Offset != 30 {
			t.Errorf("gateway %d: committed %d", i, sp.Offset)
		}
		ts, err := n.gateway.Topics(t.Context(), "t")
		if err != nil || len(ts) != 1 {
			t.Fatalf("%+v, %v", ts, err)
		}
		if p := ts[0].Partitions[0]; p.StartOffset != 0 || p.EndOffset != 32 || p.Messages != 2 || p.LastSeq != 2 {
			t.Errorf("gateway %d: %+v", i, p)
		}
		if os, err := n.gateway.Offsets(t.Context(), "", ""); err != nil || !slices.Equal(os, []admin.Offset{{Group: "g", Topic: "t", Offset: 30}}) {
			t.Errorf("gateway %d: %+v, %v", i, os, err)
		}
	}
}

// TestC23PollUntilTheEnd: a loop that reads until its position is the end ends,
// on a topic without records, and where plain messages and batches alternate.
// Compacted topics and markers belong to compaction and transactions.
func TestC23PollUntilTheEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	a, b := w.nodes[0], w.nodes[1]
	for name, fill := range map[string]func(){
		"empty": func() {},
		"one":   func() { a.mustProduce("one", records(0, 0, 1, "x")) },
		"batches": func() {
			a.mustProduce("batches", records(0, 0, 7, "x"))
			b.mustProduce("batches", records(5, 0, 3, "x"))
		},
		"plain": func() {
			for range 3 {
				if _, err := w.server.Publish("kafka.plain.0", nil, nil); err != nil {
					t.Fatal(err)
				}
				a.mustProduce("plain", records(0, 0, 2, "x"))
			}
		},
	} {
		a.mustCreate(name, 1)
		fill()
		for i, n := range w.nodes {
			start, end := n.list(7, name, -2), n.list(7, name, -1)
			position, polls := start.Offset, 0
			for ; position < end.Offset; polls++ {
				bs := batches(t, n.fetch(12, name, types.TopicID{}, position))
				if len(bs) == 0 {
					t.Fatalf("%s, gateway %d: nothing at %d, the end is %d", name, i, position, end.Offset)
				}
				position = bs[len(bs)-1].LastOffset() + 1
			}
			if want := map[string]int64{"empty": 0, "one": 1, "batches": 10, "plain": 9}[name]; position != want || start.Offset != 0 || (polls == 0) != (want == 0) {
				t.Errorf("%s, gateway %d: %d polls from %d to %d, want %d", name, i, polls, start.Offset, position, want)
			}
		}
	}
}

// TestC28OneLeaderEpoch: all that tells a leader epoch tells the same, before
// and after a gateway's death; what a client committed comes back unchanged.
func TestC28OneLeaderEpoch(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	w.nodes[0].mustCreate("t", 1)
	w.nodes[0].mustProduce("t", records(0, 0, 3, "x"))
	check := func(n *node) {
		t.Helper()
		for v := int16(7); v <= 13; v++ {
			if sp := n.metadata(v, "t", false)[0].Partitions[0]; sp.LeaderEpoch != 0 {
				t.Errorf("metadata v%d: %d", v, sp.LeaderEpoch)
			}
		}
		for _, b := range batches(t, n.fetch(12, "t", types.TopicID{}, 0)) {
			if b.LeaderEpoch() != 0 {
				t.Errorf("batch at %d: %d", b.BaseOffset(), b.LeaderEpoch())
			}
		}
		for _, at := range []int64{-1, -2, -3, 0} {
			if sp := n.list(7, "t", at); sp.ErrorCode != 0 || sp.LeaderEpoch != 0 {
				t.Errorf("list %d: %+v", at, sp)
			}
		}
		for group, epoch := range map[string]int32{"five": 5, "none": -1} {
			if code := w.commit(group, "t", 2, epoch); code != 0 {
				t.Errorf("commit with epoch %d: %d", epoch, code)
			}
			for v := int16(5); v <= 7; v++ {
				if sp := w.committed(v, group, "t"); sp.LeaderEpoch != epoch || sp.Offset != 2 {
					t.Errorf("committed v%d: %+v, want epoch %d", v, sp, epoch)
				}
			}
		}
	}
	check(w.nodes[0])
	check(w.nodes[1])
	w.nodes[0].kill()
	check(w.start())
	if got := w.nodes[1].mustProduce("t", records(0, 0, 1, "x")); got != 3 {
		t.Errorf("base %d", got)
	}
	check(w.nodes[1])
}

// TestC31NeverTwice: ids over gateways that come and go.
func TestC31NeverTwice(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3)
	seen := map[int64]bool{}
	for i := range 7000 { // more than two blocks for each of those that live
		if i%500 == 499 {
			w.nodes[2].kill()
			w.nodes = append(w.nodes[:2], w.start())
		}
		resp := ask[*kmsg.InitProducerIDResponse](w.nodes[i%3], int16(i%6), kmsg.NewPtrInitProducerIDRequest())
		if resp.ErrorCode != 0 || resp.ProducerEpoch != 0 || resp.ProducerID < 0 || seen[resp.ProducerID] {
			t.Fatalf("call %d: %+v, given before: %v", i, resp, seen[resp.ProducerID])
		}
		seen[resp.ProducerID] = true
	}
	for v := range int16(6) {
		req := kmsg.NewPtrInitProducerIDRequest()
		req.TransactionalID = new(string)
		if resp := ask[*kmsg.InitProducerIDResponse](w.nodes[0], v, req); resp.ErrorCode != kerr.InvalidRequest.Code || resp.ProducerID != -1 {
			t.Errorf("v%d, empty transactional id: %+v", v, resp)
		}
	}
}
