package protocol

import (
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/broker/partition"
	"github.com/hanzoai/stream/serde"
)

// lender lends batches and spoils their memory as soon as it is given back, as
// its next user would.
type lender struct {
	t    *testing.T
	out  atomic.Int64
	lent atomic.Int64
}

func (l *lender) lend(r *partition.ReadResult) {
	for i, b := range r.Batches {
		mine := append([]byte{}, b...)
		r.Batches[i] = mine
		l.out.Add(1)
		l.lent.Add(1)
		var back atomic.Bool
		r.Release = append(r.Release, func() {
			if back.Swap(true) {
				l.t.Error("memory was given back twice")
			}
			for j := range mine {
				mine[j] = 0xee
			}
			l.out.Add(-1)
		})
	}
}

// TestLentMemory: what is written to clients that read slowly, leave in the middle,
// ask for several answers at once or for nothing new, is theirs until it was
// written, and then it is given back, once.
func TestLentMemory(t *testing.T) {
	t.Parallel()
	const n, size = 30, 60_000
	w := newWorld()
	l := &lender{t: t}
	for part := range int32(2) {
		log := w.log("t0", part)
		for i := range n {
			log.append(batch(int64(i), size+i))
		}
		log.lend = l.lend
	}
	s := startServer(t, w, nil)
	check := func(resp *kmsg.FetchResponse, from int64) (next int64) {
		next = from
		for _, tp := range resp.Topics {
			for _, p := range tp.Partitions {
				at := from
				for data := p.RecordBatches; len(data) > 0; {
					b, rest, err := serde.ParseBatch(data)
					if err != nil || !b.ChecksumOK() || b.BaseOffset() != at {
						t.Errorf("partition %d: batch at %d is not what was stored (%v)", p.Partition, at, err)
						return n
					}
					at, data = b.LastOffset()+1, rest
				}
				next = max(next, at)
			}
		}
		return next
	}
	var wg sync.WaitGroup
	client := func(seed uint64, fn func(p *peer, rnd *rand.Rand)) {
		p := s.dial(t)
		wg.Go(func() { fn(p, rand.New(rand.NewPCG(seed, 7))) })
	}
	ask1 := func(rnd *rand.Rand, from int64) *kmsg.FetchRequest {
		r := recordsOf(w, "t0", from, 0, 1)
		r.MaxBytes = int32(1 + rnd.IntN(2_000_000))
		return r
	}
	for i := range uint64(3) {
		client(i, func(p *peer, rnd *rand.Rand) { // slow
			_ = p.Conn.(*net.TCPConn).SetReadBuffer(64 << 10)
			p.Conn = dribble{p.Conn}
			for next := int64(0); next < n; {
				next = check(ask[*kmsg.FetchResponse](p, int16(4+rnd.IntN(9)), ask1(rnd, next)), next)
			}
		})
		client(10+i, func(p *peer, rnd *rand.Rand) { // three at once
			for range 5 {
				from := int64(rnd.IntN(n))
				p.send(12, ask1(rnd, from), ask1(rnd, from), ask1(rnd, from))
				for range 3 {
					_, resp := p.recv()
					check(resp.(*kmsg.FetchResponse), from)
				}
			}
		})
		client(20+i, func(p *peer, rnd *rand.Rand) { // a session
			r := ask1(rnd, 0)
			r.MaxBytes = 50 << 20
			first := ask[*kmsg.FetchResponse](p, 12, r)
			check(first, 0)
			for epoch := range int32(5) {
				r := recordsOf(w, "t0", n, 0) // the other stays where it was
				r.SessionID, r.SessionEpoch, r.MaxBytes = first.SessionID, epoch+1, int32(1+rnd.IntN(1_000_000))
				check(ask[*kmsg.FetchResponse](p, 12, r), 0)
			}
		})
		for j := range uint64(5) {
			client(100*i+30+j, func(p *peer, rnd *rand.Rand) { // leaves
				_ = p.Conn.(*net.TCPConn).SetReadBuffer(4 << 10)
				p.send(12, ask1(rnd, 0), ask1(rnd, 0), ask1(rnd, 0))
				_, _ = io.CopyN(io.Discard, p, int64(rnd.IntN(300_000)))
				_ = p.Conn.(*net.TCPConn).SetLinger(0)
				_ = p.Close()
			})
		}
	}
	wg.Wait()
	eventually(t, "all memory is given back", func() bool { return l.out.Load() == 0 })
	if l.lent.Load() < 100 {
		t.Errorf("only %d batches were lent", l.lent.Load())
	}
}

// dribble reads little at a time.
type dribble struct{ net.Conn }

func (d dribble) Read(p []byte) (int, error) {
	time.Sleep(20 * time.Microsecond) // the client's own time
	return d.Conn.Read(p[:min(len(p), 3000)])
}
