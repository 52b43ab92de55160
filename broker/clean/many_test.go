package clean

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hanzoai/stream/broker/partition"
)

// many are partitions of which each has enough to compact.
func many(n int, work func(ctx context.Context, o partition.CompactOptions) error) []*part {
	ps := make([]*part, n)
	for i := range ps {
		ps[i] = compacted(fmt.Sprint("p", i))
		ps[i].work = work
	}
	return ps
}

// TestManyAreListedOnce: hundreds of partitions that are due at the same time are not
// hundreds of listings of all streams; an operator who asks meanwhile does not
// wait for all of them.
func TestManyAreListedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ps := many(500, func(context.Context, partition.CompactOptions) error {
			time.Sleep(100 * time.Millisecond)
			return nil
		})
		last := ps[len(ps)-1]
		last.state.Bytes = 900 // the least dirty one
		b := newBench(t, ps...)
		defer b.start()()
		wait(5 * time.Second)
		last.set(func(p *part) { p.state.Want = 50 })
		wait(time.Second)
		if last.times() != 1 {
			t.Errorf("a second after an operator asked: %d runs", last.times())
		}
		wait(54 * time.Second)
		runs := 0
		for _, p := range ps {
			runs += p.times()
		}
		if n := b.store.called(); runs < len(ps) || n > 10 {
			t.Errorf("%d runs in a minute took %d listings", runs, n)
		}
	})
}

// TestManySmallOnesRest: partitions of a few bytes that change all the time are not
// rewritten every 15 seconds when there are many: each run makes a stream and deletes
// one. A large one does not wait for them.
func TestManySmallOnesRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ps := many(100, nil)
		for _, p := range ps {
			p.state.Bytes = 100
		}
		large := ps[7]
		large.read = 64 << 20
		b := newBench(t, ps...)
		defer b.start()()
		wait(10 * time.Minute)
		runs := 0
		for _, p := range ps {
			if p != large {
				runs += p.times()
			}
		}
		if runs > 8*len(ps) || runs < len(ps) {
			t.Errorf("%d runs in ten minutes on %d small partitions", runs, len(ps))
		}
		if n := large.times(); n < 30 {
			t.Errorf("%d runs on the large one", n)
		}
	})
}

// TestManyWithNothingRest: asking a partition whether it is worth a run costs requests
// to the store. With many that say no each is asked less often, but not so seldom
// that a maximal lag is late by more than a quarter.
func TestManyWithNothingRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ps := many(100, func(context.Context, partition.CompactOptions) error { return partition.ErrNothing })
		for _, p := range ps {
			p.cfg.MinLagMillis = time.Hour.Milliseconds()
		}
		soon := ps[7]
		soon.cfg.MaxLagMillis = (2 * time.Minute).Milliseconds()
		b := newBench(t, ps...)
		defer b.start()()
		wait(10 * time.Minute)
		asked := 0
		for _, p := range ps {
			if p != soon {
				asked += p.times()
			}
		}
		if asked > 8*len(ps) || asked < len(ps) {
			t.Errorf("%d partitions were asked %d times in ten minutes", len(ps), asked)
		}
		if n := soon.times(); n < 15 {
			t.Errorf("one with a maximal lag of two minutes was asked %d times", n)
		}
	})
}

// TestManyPassesYield: a partition whose keys take many passes, because an operator
// asked or not, lets others have their turn between two of them; alone it goes on.
func TestManyPassesYield(t *testing.T) {
	for _, wanted := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			passes := 0
			large, small := compacted("large"), compacted("small")
			large.read = 64 << 20
			large.work = func(_ context.Context, o partition.CompactOptions) error {
				for {
					time.Sleep(time.Minute)
					if passes++; passes == 10 {
						large.set(func(p *part) { p.state.Want, p.state.Bytes = 0, 1<<30 })
						return nil
					}
					if o.Enough() {
						large.more = true
						return nil
					}
					large.more = false
				}
			}
			if wanted {
				large.state.Want = 1000
			}
			small.state.Bytes = 900
			b := newBench(t, large, small)
			defer b.start()()
			wait(150 * time.Second)
			if small.times() == 0 && !wanted {
				t.Error("the small one waits for all passes")
			}
			small.set(func(p *part) { p.state.Want = 1000 })
			n := small.times()
			wait(70 * time.Second)
			if small.times() == n {
				t.Errorf("wanted %v: an operator waits for all passes", wanted)
			}
			small.set(func(p *part) { p.state.Want, p.state.Bytes = 0, 1<<30 })
			wait(10 * time.Minute)
			if passes != 10 || large.times() > 4 {
				t.Errorf("wanted %v: %d passes in %d runs", wanted, passes, large.times())
			}
		})
	}
}

// TestHorizonsAreGathered: where tombstones or markers come all the time, one may go
// at any time. That is no reason to rewrite the log every minute: it is the later done
// the longer they are kept and the longer a run takes.
func TestHorizonsAreGathered(t *testing.T) {
	for _, x := range []struct {
		run, retention time.Duration
		low, high      int // runs in four hours
	}{{time.Minute, 4 * time.Hour, 2, 4}, {time.Hour, 4 * time.Hour, 1, 1}, {time.Second, time.Minute, 100, 240}, {5 * time.Minute, 0, 2, 4}} {
		synctest.Test(t, func(t *testing.T) {
			p := compacted("p")
			p.cfg.DeleteRetentionMillis = x.retention.Milliseconds()
			p.cfg.MaxLagMillis = time.Hour.Milliseconds() // so that the run itself is asked
			p.state.Bytes, p.state.Horizon, p.state.Seq = 1<<30, time.Now().Add(time.Second), 9
			p.soon = true
			runs := 0
			p.work = func(_ context.Context, o partition.CompactOptions) error {
				if p.Clean().Horizon.After(o.Now) || o.Later {
					return partition.ErrNothing
				}
				runs++
				time.Sleep(x.run)
				return nil
			}
			b := newBench(t, p)
			defer b.start()()
			wait(4 * time.Hour)
			if runs < x.low || runs > x.high {
				t.Errorf("runs of %v, tombstones kept for %v: %d in four hours", x.run, x.retention, runs)
			}
		})
	}
}
