package clients

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/test/testkit"
)

// librdkafkaFenced is librdkafka's own code of a fenced producer.
const librdkafkaFenced = -144

// transform is what a pipe does to a record.
func (pipe) transform(r record) record {
	r.Value = append(r.Value[:len(r.Value):len(r.Value)], '!')
	return r
}

// positions are the offsets after rs, which still have those they were read at.
func (pipe) positions(rs []record) map[int32]int64 {
	next := map[int32]int64{}
	for _, r := range rs {
		next[r.Partition] = max(next[r.Partition], r.Offset+1)
	}
	return next
}

// stranger is a library that is not w's.
func (w world) stranger() reader {
	if w.lib.name == franzLibrary.name {
		return reader{confluent{w.other.(franz).addr}, confluentLibrary}
	}
	return reader{w.other, franzLibrary}
}

// story is what transactions wrote to one topic: every record, and those that
// were committed, by partition, with the offsets that they must have.
type story struct {
	parts          int
	next           map[int32]int64
	all, committed map[int32][]record
}

func newStory(parts int) *story {
	return &story{parts: parts, next: map[int32]int64{}, all: map[int32][]record{}, committed: map[int32][]record{}}
}

// transaction makes the 30 records of one and, after them, the marker of each
// partition.
func (s *story) transaction(what string, commit bool) []record {
	rs := batch(30, s.parts, what)
	for i := range rs {
		r := &rs[i]
		r.Time = r.Time.Truncate(time.Millisecond)
		r.Offset = s.next[r.Partition]
		s.next[r.Partition]++
		s.all[r.Partition] = append(s.all[r.Partition], *r)
		if commit {
			s.committed[r.Partition] = append(s.committed[r.Partition], *r)
		}
	}
	for p := range s.parts {
		s.next[int32(p)]++
	}
	return rs
}

// check reads the topic with both levels of isolation. Reading waits for records,
// so it goes to the last of each kind.
func (w world) check(ctx context.Context, t *testing.T, s *story, readers ...reader) {
	t.Helper()
	for p := range s.parts {
		for _, cl := range readers {
			w.read(ctx, t, cl, start{isolation: committed}, s.committed[int32(p)])
			w.read(ctx, t, cl, start{isolation: uncommitted}, s.all[int32(p)])
		}
	}
}

// ends waits until each partition ends where the story does, markers of open
// transactions left out, and says whether all that is stored is stable.
func (w world) ends(ctx context.Context, t *testing.T, s *story, open bool) {
	t.Helper()
	testkit.Poll(t, 20*time.Second, "ends of "+w.topic, func() error {
		ends, err := w.adm.ListEndOffsets(ctx, w.topic)
		if err != nil {
			return err
		}
		stable, err := w.adm.ListCommittedOffsets(ctx, w.topic)
		if err != nil {
			return err
		}
		for p := range int32(s.parts) {
			want, first := s.next[p], s.next[p]
			if open {
				want, first = want-1, first-1-int64(30/s.parts)
			}
			end, _ := ends.Lookup(w.topic, p)
			lso, _ := stable.Lookup(w.topic, p)
			if end.Offset != want || lso.Offset != first {
				return fmt.Errorf("partition %d ends at %d, is stable to %d, want %d and %d", p, end.Offset, lso.Offset, want, first)
			}
		}
		return nil
	})
}

// tell writes a story to w's topic with a client: committed and aborted
// transactions, and one that is left open until a second producer has the id,
// which fences the first.
func (w world) tell(ctx context.Context, t *testing.T, cl reader) *story {
	t.Helper()
	s := newStory(3)
	if cl.limits.onePartition {
		s.parts = 1
	}
	open := func() transactor {
		t.Helper()
		x, err := cl.client.(transactional).transactor(ctx, "x."+w.topic)
		if err != nil {
			t.Fatalf("a producer with a transactional id: %v", err)
		}
		t.Cleanup(func() { _ = x.close(context.Background()) })
		return x
	}
	send := func(x transactor, what string, commit bool) {
		t.Helper()
		if err := x.send(ctx, w.topic, s.transaction(what, commit)); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		w.ends(ctx, t, s, true)
	}
	end := func(x transactor, commit bool) {
		t.Helper()
		if err := x.end(ctx, commit); err != nil {
			t.Fatalf("end (commit: %v): %v", commit, err)
		}
		w.ends(ctx, t, s, false)
	}
	first := open()
	send(first, "committed", true)
	end(first, true)
	send(first, "aborted", false)
	end(first, false)
	send(first, "committed again", true)
	end(first, true)
	send(first, "fenced", false)
	second := open()
	send(second, "of the second", true)
	err := first.end(ctx, true)
	switch code(err) {
	case int(kerr.ProducerFenced.Code), int(kerr.InvalidProducerEpoch.Code), librdkafkaFenced:
	default:
		t.Errorf("a producer whose id another one has commits: %v, code %d", err, code(err))
	}
	end(second, true)
	return s
}

// transactions are written by the client and read by it and another library.
func transactions(ctx context.Context, t *testing.T, w world) {
	s := w.tell(ctx, t, w.reader())
	readers := []reader{w.stranger()}
	if w.lib.limits.lacks["isolation"] == "" {
		readers = append(readers, w.reader())
	}
	w.check(ctx, t, s, readers...)
}

// isolation reads what another library wrote.
func isolation(ctx context.Context, t *testing.T, w world) {
	by := w.stranger()
	with := w
	with.cl, with.lib = by.client, by.library
	with.check(ctx, t, with.tell(ctx, t, by), w.reader())
}

// exactlyOnce consumes, transforms and produces: what one transaction aborted
// comes again, and every record of the input is once in the output.
func exactlyOnce(ctx context.Context, t *testing.T, w world) {
	l := pipe{id: "x." + w.topic, group: "group." + w.topic, from: w.topic, to: w.topic + ".out"}
	out := w
	out.topic = l.to
	out.create(ctx, t, 3, nil)
	run := func(n int, commit bool) {
		t.Helper()
		l.n, l.commit = n, commit
		if err := w.cl.(transactional).pipe(ctx, l); err != nil {
			t.Fatalf("%d records (commit: %v): %v", n, commit, err)
		}
		testkit.Poll(t, 20*time.Second, "group without members", func() error { return w.members(ctx, l.group) })
	}
	rs := batch(60, 3, "in")
	for i := range rs {
		rs[i].Time = rs[i].Time.Truncate(time.Millisecond)
	}
	with := w.others()
	with.produce(ctx, t, sending{codec: "none"}, rs[:30])
	run(30, true)
	w.committed(ctx, t, l.group)
	with.produce(ctx, t, sending{codec: "none"}, rs[30:])
	run(1, false)
	got, err := w.adm.FetchOffsets(ctx, l.group)
	for p := range int32(3) {
		if o, _ := got.Lookup(w.topic, p); err != nil || o.At != 10 {
			t.Errorf("partition %d after an abort: committed %d, %v, want 10", p, o.At, err)
		}
	}
	run(30, true)
	w.committed(ctx, t, l.group)

	want := map[int32][]string{}
	for _, r := range rs {
		want[r.Partition] = append(want[r.Partition], string(l.transform(r).Value))
	}
	for p := range int32(3) {
		cl := w.stranger()
		read, err := cl.read(ctx, l.to, p, start{isolation: committed}, len(want[p]))
		var got []string
		for _, r := range read {
			got = append(got, string(r.Value))
		}
		if err != nil || fmt.Sprint(got) != fmt.Sprint(want[p]) {
			t.Errorf("output, partition %d: %v\n  %q, want\n  %q", p, err, got, want[p])
		}
		all, err := cl.read(ctx, l.to, p, start{isolation: uncommitted}, len(want[p]))
		if err != nil || len(all) < len(want[p]) {
			t.Errorf("output, partition %d: %d records, %v", p, len(all), err)
		}
	}
	// The third transaction, at least, is there too, though nobody sees it.
	ends, err := w.adm.ListEndOffsets(ctx, l.to)
	sum := int64(0)
	for _, o := range ends[l.to] {
		sum += o.Offset
	}
	if err != nil || sum <= int64(len(rs))+6 {
		t.Errorf("the output ends at %d in all, %v: nothing of an aborted transaction", sum, err)
	}
}
