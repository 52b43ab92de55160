package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/broker"
	"github.com/hanzoai/stream/broker/partition"
	"github.com/hanzoai/stream/serde"
	"github.com/hanzoai/stream/test/history"
	"github.com/hanzoai/stream/test/sim"
	"github.com/hanzoai/stream/types"
)

// target is a partition as a client knows it.
type target struct {
	name      string
	id        types.TopicID
	partition int32
}

func (t target) log() history.Log {
	return history.Log{Topic: t.name, ID: t.id.String(), Partition: t.partition}
}

// find asks for a topic until somebody answers; ok is false if it is denied, or
// stop was closed.
func (s *run) find(r *rand.Rand, name string, stop <-chan struct{}) (id types.TopicID, partitions int32, ok bool) {
	for !sim.Over(stop) {
		type found struct {
			id types.TopicID
			n  int32
		}
		f, err := ask(r, s.any(r), sim.Millis(r, 5000), false, func(ctx context.Context, b *broker.Broker) (found, error) {
			t, err := b.Topic(ctx, name)
			if err != nil {
				return found{}, err
			}
			return found{t.ID, t.Partitions}, nil
		})
		switch {
		case err == nil:
			return f.id, f.n, true
		case gone(err):
			s.denied(name)
			return id, 0, false
		}
		sim.Pause(stop, sim.Millis(r, 200))
	}
	return id, 0, false
}

// denied notes that somebody said that there is no such topic.
func (s *run) denied(name string) {
	for _, n := range s.names {
		if n == name {
			s.t.Errorf("topic %s, which was never deleted, is denied", name)
		}
	}
}

// open is a partition on the gateway that is asked, by the topic's id.
func open(ctx context.Context, b *broker.Broker, to target) (*partition.Partition, error) {
	t, err := b.TopicByID(ctx, to.id)
	if err != nil {
		return nil, err
	}
	return b.Partition(ctx, t, to.partition)
}

// records makes a batch. A value is the name of the record, a bar, and padding.
func records(pid int64, seq int32, names []string, pad int) []byte {
	f := serde.BatchFields{ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1}
	if pid >= 0 {
		f.ProducerID, f.ProducerEpoch, f.BaseSequence = pid, 0, seq
	}
	rs := make([]serde.NewRecord, len(names))
	for i, n := range names {
		rs[i] = serde.NewRecord{TimestampMillis: time.Now().UnixMilli(), Value: append([]byte(n+"|"), make([]byte, pad)...)}
	}
	return serde.Build(f, rs)
}

// values reads the names of a batch's records.
func values(b serde.Batch) ([]history.Record, error) {
	var rs []history.Record
	it := serde.NewRecords(b.Records(), b.Count())
	for it.Next() {
		name, _, _ := bytes.Cut(it.Record.Value, []byte("|"))
		rs = append(rs, history.Record{Offset: b.BaseOffset() + int64(len(rs)), Value: string(name)})
	}
	return rs, it.Err()
}

// batch is a batch under way.
type batch struct {
	span     history.Span
	names    []string
	seq      int32
	pad      int
	done     bool
	base     int64
	attempts int
	first    *process
}

// producer is an idempotent producer that writes to one partition for a while,
// then to another, under a new producer id.
func (s *run) producer(r *rand.Rand, name string) {
	for n := 0; !sim.Over(s.ended); n++ {
		all := append(s.names[:len(s.names):len(s.names)], s.fleeting...)
		topic := all[r.IntN(len(all))]
		id, partitions, ok := s.find(r, topic, s.ended)
		if ok {
			s.session(r, fmt.Sprintf("%s.%d", name, n), target{topic, id, r.Int32N(partitions)})
		}
		sim.Pause(s.ended, sim.Millis(r, 1000))
	}
}

// session has up to five batches in flight and resends what failed, in order,
// perhaps through another gateway, until all is acknowledged or the topic is gone.
func (s *run) session(r *rand.Rand, name string, to target) {
	var pid int64
	for {
		var err error
		pid, err = ask(r, s.any(r), 5*time.Second, true, func(ctx context.Context, b *broker.Broker) (int64, error) { return b.ProducerID(ctx) })
		if err == nil {
			break
		}
		if sim.Over(s.ended) {
			return
		}
		sim.Pause(s.ended, sim.Millis(r, 200))
	}
	over := make(chan struct{})
	timer := time.AfterFunc(sim.Millis(r, 20_000), func() { close(over) })
	defer timer.Stop()
	going := func() bool { return !sim.Over(s.ended) && !sim.Over(over) }
	var window []*batch
	seq, made, calm := int32(0), 0, 0
	at := r.IntN(len(s.seats)) // it moves on when something fails, and now and then
	for going() || len(window) > 0 {
		for n := 1 + r.IntN(5); len(window) < n && going(); {
			b := &batch{span: s.rec.Begin(), seq: seq, pad: r.IntN(1000)}
			for range 1 + r.IntN(4) {
				b.names = append(b.names, fmt.Sprintf("%s-%d", name, made))
				made++
			}
			seq += int32(len(b.names))
			window = append(window, b)
		}
		p := s.seats[at].now()
		if r.IntN(10) == 0 {
			at = r.IntN(len(s.seats))
		}
		for i, res := range s.submit(r, p, to, pid, window) {
			b := window[i]
			if res.err != nil && i == 0 {
				at = r.IntN(len(s.seats))
			}
			if b.attempts++; b.attempts == 1 {
				b.first = p
			}
			s.trace("%s %v seq %d try %d: base %d, %v", name, b.names[0], b.seq, b.attempts, res.v, res.err)
			switch err := res.err; {
			case err == nil && b.done && res.v != b.base:
				s.t.Errorf("%s acknowledged at %d and at %d", b.names[0], b.base, res.v)
			case err == nil:
				if b.base, b.done = res.v, true; b.attempts > 1 {
					s.tally.note(retried)
					if b.first != p {
						s.tally.note(elsewhere)
					}
				}
			case gone(err):
				s.denied(to.name)
				for _, b := range window {
					s.sent(name, to, b, true)
				}
				return
			case errors.Is(err, kerr.OutOfOrderSequenceNumber) && i > 0:
			case errors.Is(err, errCut), errors.Is(err, errRefused), kerr.IsRetriable(err):
			default:
				if !b.done { // of a batch that is stored, only a repetition may be refused
					s.t.Errorf("%s (sequence %d, try %d on %s): %v", b.names[0], b.seq, b.attempts, to.log(), err)
				}
				for _, b := range window {
					s.sent(name, to, b, true)
				}
				return
			}
		}
		for len(window) > 0 && window[0].done {
			s.sent(name, to, window[0], true)
			window = window[1:]
		}
		if len(window) > 0 && sim.Over(s.healed) {
			if calm++; calm > 300 {
				s.t.Errorf("%s is not acknowledged although nothing fails any more", window[0].names[0])
				return
			}
		}
		if len(window) > 0 {
			sim.Pause(s.healed, sim.Millis(r, 200))
			time.Sleep(sim.Millis(r, 50))
		} else {
			sim.Pause(s.ended, sim.Millis(r, 400))
		}
	}
}

// sent records a batch's end.
func (s *run) sent(producer string, to target, b *batch, idempotent bool) {
	for i, n := range b.names {
		x := history.Send{Span: b.span, Log: to.log(), Producer: producer, Idempotent: idempotent, Attempts: b.attempts, Value: n, Outcome: history.OK, Offset: b.base + int64(i)}
		if !b.done {
			x.Outcome, x.Offset = history.Unknown, -1
			if b.attempts == 0 { // it was never sent
				x.Outcome = history.Failed
			}
			s.tally.note(unknownSends)
		}
		s.rec.Send(x)
	}
}

// submit sends batches over one connection and returns their answers, in order.
func (s *run) submit(r *rand.Rand, p *process, to target, pid int64, window []*batch) []answer[int64] {
	var mu sync.Mutex
	answers := make([]answer[int64], len(window))
	for i := range answers {
		answers[i].err = errCut
	}
	type request struct {
		data []byte
		done chan partition.AppendResult
	}
	reqs := make([]request, len(window))
	for i, b := range window {
		reqs[i] = request{records(pid, b.seq, b.names, b.pad), make(chan partition.AppendResult, 1)}
	}
	_, err := call(r, p, sim.Millis(r, 10_000), func(ctx context.Context, b *broker.Broker) bool {
		var missed *partition.Missed // as the wire remembers it
		for i, q := range reqs {
			pt, err := open(ctx, b, to)
			if err != nil {
				if missed == nil {
					missed = &partition.Missed{First: window[i].seq}
				}
				q.done <- partition.AppendResult{Err: err}
				continue
			}
			pt.Submit(partition.AppendRequest{Records: q.data, AcksAll: true, Missed: missed}, func(a partition.AppendResult) { q.done <- a })
		}
		for i, q := range reqs {
			var a partition.AppendResult
			select {
			case a = <-q.done:
			case <-p.ctx.Done():
				return false
			}
			if p.thawed() != nil {
				return false
			}
			mu.Lock()
			answers[i] = answer[int64]{int64(a.BaseOffset), seen(b, a.Err, false)}
			mu.Unlock()
		}
		return true
	})
	mu.Lock()
	defer mu.Unlock()
	if errors.Is(err, errRefused) {
		for i := range answers {
			answers[i].err = errRefused
		}
	}
	return append([]answer[int64](nil), answers...)
}

// plain is a producer without idempotence that does not resend.
func (s *run) plain(r *rand.Rand, name string) {
	for n := 0; !sim.Over(s.ended); n++ {
		topic := s.names[r.IntN(len(s.names))]
		if id, partitions, ok := s.find(r, topic, s.ended); ok {
			to := target{topic, id, r.Int32N(partitions)}
			b := &batch{span: s.rec.Begin(), names: []string{fmt.Sprintf("%s-%d", name, n)}, pad: r.IntN(100)}
			res := s.submit(r, s.any(r), to, -1, []*batch{b})[0]
			if !errors.Is(res.err, errRefused) {
				b.attempts++
			}
			switch {
			case res.err == nil:
				b.base, b.done = res.v, true
			case gone(res.err):
				s.denied(topic)
			case errors.Is(res.err, errRefused):
			case !errors.Is(res.err, errCut) && !kerr.IsRetriable(res.err):
				s.t.Errorf("%s: %v", b.names[0], res.err)
			}
			s.sent(name, to, b, false)
		}
		sim.Pause(s.ended, sim.Millis(r, 500))
	}
}
