package partition

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/broker/partition"
	"github.com/hanzoai/stream/serde"
	"github.com/hanzoai/stream/test/sim"
	"github.com/hanzoai/stream/types"
)

// decision is what the coordinator knows of one transactional producer.
type decision struct {
	mu    sync.Mutex // guards: all below
	epoch int16
	n     int64
	open  bool
}

// verify answers for a batch of an epoch.
func (d *decision) verify(epoch int16) func(context.Context) (int64, error) {
	return func(ctx context.Context) (int64, error) {
		select {
		case <-time.After(time.Duration(epoch%3) * 20 * time.Millisecond):
		case <-ctx.Done():
			return 0, ctx.Err()
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		switch {
		case epoch != d.epoch:
			return 0, kerr.InvalidProducerEpoch
		case !d.open:
			return 0, kerr.InvalidTxnState
		}
		return d.n, nil
	}
}

// txnRecords is records for a transaction.
func txnRecords(pid int64, epoch int16, seq int32, id string, n, pad int) []byte {
	return serde.Build(serde.BatchFields{Attributes: 0x10, ProducerID: pid, ProducerEpoch: epoch, BaseSequence: seq}, padded(id, n, pad))
}

// transactional is a producer that commits and aborts through any gateway, as do
// those that carry out what it decided, sometimes late or twice.
func (s *run) transactional(r *rand.Rand, pid int64) {
	bumps := r.IntN(2) == 0
	d := &decision{}
	seq, made := int32(0), 0
	var markers []partition.Marker
	submit := func(p *partition.Partition, f *fact, epoch int16) chan partition.AppendResult {
		ch := make(chan partition.AppendResult, 1)
		f.attempts++
		p.Submit(partition.AppendRequest{
			Records: txnRecords(pid, epoch, f.seq, f.id, f.n, r.IntN(1000)), Transactional: true, Verify: d.verify(epoch), FromZero: bumps,
		}, func(a partition.AppendResult) { ch <- a })
		return ch
	}
	next := func() *fact {
		f := &fact{id: fmt.Sprintf("t%d-%d-%d.", pid, d.n, made), pid: pid, seq: seq, n: 1 + r.IntN(3), base: -1}
		made++
		seq += int32(f.n)
		return f
	}
	for !sim.Over(s.ended) {
		d.mu.Lock()
		d.n, d.open = d.n+1, true
		d.mu.Unlock()
		for range 1 + r.IntN(3) {
			var window []*fact
			for range 1 + r.IntN(3) {
				window = append(window, next())
			}
			if !s.storeAll(r, window, submit, d.epoch) {
				return
			}
			sim.Pause(s.ended, sim.Millis(r, 500))
		}
		var late *fact
		var answer chan partition.AppendResult
		if bumps && r.IntN(3) == 0 { // on its way when the transaction ends
			late = next()
			p, _ := s.seat(r).now()
			answer = submit(p, late, d.epoch)
		}
		m := partition.Marker{ProducerID: pid, N: d.n, Commit: r.IntN(2) == 0, CoordinatorEpoch: 1}
		d.mu.Lock()
		d.open = false
		if bumps {
			d.epoch, seq = d.epoch+1, 0
		}
		m.Epoch = d.epoch
		d.mu.Unlock()
		s.mu.Lock()
		s.fates[fmt.Sprintf("t%d-%d", pid, d.n)] = m.Commit
		s.mu.Unlock()
		markers = append(markers, m)
		if !s.endTxn(r, m) {
			return
		}
		if late != nil {
			a := <-answer
			late.base, late.unknown = a.BaseOffset, a.Err != nil && !settled(a.Err)
			s.mu.Lock()
			s.log = append(s.log, *late)
			s.mu.Unlock()
		}
		if r.IntN(4) == 0 && !s.endTxn(r, markers[r.IntN(len(markers))]) {
			return
		}
		sim.Pause(s.ended, sim.Millis(r, 1500))
	}
}

// storeAll sends batches of one producer, all at once, in order and through one
// gateway, until they are stored.
func (s *run) storeAll(r *rand.Rand, window []*fact, submit func(*partition.Partition, *fact, int16) chan partition.AppendResult, epoch int16) bool {
	for calm := 0; len(window) > 0; {
		answers := make([]chan partition.AppendResult, len(window))
		p, _ := s.seat(r).now()
		for i, f := range window {
			answers[i] = submit(p, f, epoch)
		}
		for i, f := range window {
			a := <-answers[i]
			s.trace("%s seq %d, try %d: base %d, %v", f.id, f.seq, f.attempts, a.BaseOffset, a.Err)
			switch {
			case a.Err == nil && f.base >= 0 && a.BaseOffset != f.base:
				s.t.Errorf("%s acknowledged at %d and at %d", f.id, f.base, a.BaseOffset)
			case a.Err == nil:
				f.base = a.BaseOffset
				s.shown(a.BaseOffset + types.Offset(f.n))
			case errors.Is(a.Err, kerr.OutOfOrderSequenceNumber) && i == 0,
				errors.Is(a.Err, kerr.InvalidProducerEpoch), errors.Is(a.Err, kerr.InvalidTxnState), errors.Is(a.Err, kerr.InvalidRecord):
				s.t.Errorf("%s (epoch %d sequence %d): %v (%s)", f.id, epoch, f.seq, a.Err, a.Message)
				return false
			default:
				f.unknown = f.unknown || !settled(a.Err)
			}
		}
		for len(window) > 0 && window[0].base >= 0 {
			s.mu.Lock()
			s.log = append(s.log, *window[0])
			s.mu.Unlock()
			window = window[1:]
		}
		if len(window) > 0 && sim.Over(s.healed) {
			if calm++; calm > 500 || s.t.Failed() {
				s.t.Errorf("%s is not acknowledged although nothing fails any more", window[0].id)
				return false
			}
		}
		if len(window) > 0 {
			time.Sleep(50 * time.Millisecond)
		}
	}
	return true
}

// endTxn carries out a decision, however often it takes.
func (s *run) endTxn(r *rand.Rand, m partition.Marker) bool {
	for calm := 0; ; {
		p, _ := s.seat(r).now()
		ctx, stop := context.WithTimeout(context.Background(), time.Second+sim.Millis(r, 9000))
		err := p.EndTransaction(ctx, m)
		stop()
		s.trace("end %+v: %v", m, err)
		if err == nil {
			return true
		}
		var refusal *kerr.Error
		if errors.As(err, &refusal) && !refusal.Retriable {
			s.t.Errorf("end %+v: %v", m, err)
			return false
		}
		if sim.Over(s.healed) {
			if calm++; calm > 500 || s.t.Failed() {
				s.t.Errorf("%+v is not stored although nothing fails any more", m)
				return false
			}
		}
		time.Sleep(sim.Millis(r, 200))
	}
}

// verifyTxns compares the fate that the stored bytes give each batch of a
// transaction with what was decided, and what committed readers see through a
// gateway with both.
func (s *run) verifyTxns(ps []*partition.Partition, start types.Offset) {
	type seen struct {
		id   string
		last types.Offset
		fate *bool // nil: it is in no transaction
	}
	var all []seen
	open, ends := map[int64]*bool{}, map[int64]int{}
	next := types.Offset(0)
	for _, m := range s.server.History(logName, 0) {
		if m.Header.Get("Stream-Log") == "" {
			all = append(all, seen{id: string(m.Data), last: next})
			next++
			continue
		}
		for data := m.Data; len(data) > 0; {
			b, rest, err := serde.ParseBatch(data)
			if err != nil {
				s.t.Fatal(err)
			}
			data, next = rest, types.Offset(b.LastOffset())+1
			if b.Control() {
				kind, _, err := serde.ParseControl(b)
				if err != nil {
					s.t.Fatal(err)
				}
				if f := open[b.ProducerID()]; f != nil {
					*f = kind == serde.ControlCommit
				}
				delete(open, b.ProducerID())
				ends[b.ProducerID()]++
				continue
			}
			x := seen{id: batchOf(s.t, b).id, last: types.Offset(b.LastOffset())}
			if b.Transactional() {
				if open[b.ProducerID()] == nil {
					open[b.ProducerID()] = new(bool)
				}
				x.fate = open[b.ProducerID()]
			}
			all = append(all, x)
		}
	}
	if len(open) > 0 {
		s.t.Errorf("%d transactions are open", len(open))
	}
	var want []string
	decided := map[int64]int{}
	for key := range s.fates {
		var pid, n int64
		if _, err := fmt.Sscanf(key, "t%d-%d", &pid, &n); err != nil {
			s.t.Fatal(err)
		}
		decided[pid]++
	}
	for pid, n := range decided {
		if ends[pid] != n {
			s.t.Errorf("producer %d: %d markers, %d transactions", pid, ends[pid], n)
		}
	}
	for _, x := range all {
		if x.fate != nil {
			var pid, n, k int64
			if _, err := fmt.Sscanf(x.id, "t%d-%d-%d.", &pid, &n, &k); err != nil {
				s.t.Fatal(err)
			}
			if commit, ok := s.fates[fmt.Sprintf("t%d-%d", pid, n)]; *x.fate != (ok && commit) {
				s.t.Errorf("%s: committed %v, decided %v %v", x.id, *x.fate, ok, commit)
			}
		}
		if x.last >= start && (x.fate == nil || *x.fate) {
			want = append(want, x.id)
		}
	}
	for i, p := range ps {
		if got := s.committed(p, start, next); !slices.Equal(got, want) {
			s.t.Errorf("gateway %d shows committed readers %d batches, want %d", i, len(got), len(want))
		}
	}
}

// committed lists the batches that a client with isolation read_committed keeps.
func (s *run) committed(p *partition.Partition, start, end types.Offset) (ids []string) {
	for deadline := time.Now().Add(time.Minute); start < end; {
		res, err := p.Read(context.Background(), partition.ReadRequest{Offset: start, MaxBytes: 4000, Whole: true, Committed: true})
		if err != nil || len(res.Batches) == 0 {
			if time.Now().After(deadline) {
				s.t.Errorf("committed read at %d of %d: stable %d, %v", start, end, res.LastStable, err)
				return ids
			}
			time.Sleep(50 * time.Millisecond)
			continue
		}
		aborted, skip := res.Aborted, map[int64]bool{}
		for _, data := range res.Batches {
			for len(data) > 0 {
				b, rest, err := serde.ParseBatch(data)
				if err != nil {
					s.t.Error(err)
					return ids
				}
				data, start = rest, types.Offset(b.LastOffset())+1
				for len(aborted) > 0 && aborted[0].First <= types.Offset(b.LastOffset()) {
					skip[aborted[0].ProducerID], aborted = true, aborted[1:]
				}
				if b.Control() {
					if kind, _, _ := serde.ParseControl(b); kind == serde.ControlAbort {
						delete(skip, b.ProducerID())
					}
					continue
				}
				if !b.Transactional() || !skip[b.ProducerID()] {
					ids = append(ids, batchOf(s.t, b).id)
				}
			}
		}
	}
	return ids
}
