package sim

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/pubsub/memory"
)

// weather decides about faults. It can be calmed for the end of a run.
type weather struct {
	mu    sync.Mutex // guards: rng
	rng   *rand.Rand
	rate  float64 // probability of a fault per call
	calm  bool
	lying bool // leaders deny the newest messages (only on replicated logs)
}

func (w *weather) roll() (r *rand.Rand, fault bool, unlock func()) {
	w.mu.Lock()
	return w.rng, !w.calm && w.rng.Float64() < w.rate, w.mu.Unlock
}

func (w *weather) clear() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calm, w.lying = true, false
}

func (w *weather) lie(on bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lying = on && !w.calm
}

func ms(r *rand.Rand, most int) time.Duration {
	return time.Duration(1+r.IntN(most)) * time.Millisecond
}

func (w *weather) write(memory.Op) (f memory.WriteFault) {
	r, fault, unlock := w.roll()
	defer unlock()
	// Every round trip takes a moment, so that things overlap.
	f.After = time.Duration(r.IntN(3000)) * time.Microsecond
	if !fault {
		return f
	}
	switch r.IntN(8) {
	case 0:
		f.Err = pubsub.ErrUnavailable
	case 1:
		f.Err = pubsub.ErrFull
	case 2:
		f.Drop = true
	case 3, 4:
		f.LoseAck = true
	case 5:
		f.Late = ms(r, 3000)
	case 6:
		f.Before = ms(r, 60)
	case 7:
		f.After = ms(r, 7000) // beyond the ack timeout at times
	}
	return f
}

func (w *weather) replica(memory.Op) (f memory.ReadFault) {
	r, fault, unlock := w.roll()
	defer unlock()
	f.Delay = time.Duration(r.IntN(500)) * time.Microsecond
	if !fault {
		return f
	}
	switch r.IntN(4) {
	case 0:
		f.Err = pubsub.ErrUnavailable
	case 1:
		f.Delay = ms(r, 1000)
	case 2:
		f.Behind = 1 + uint64(r.IntN(3))
	case 3:
		f.Short = 1 + r.IntN(3)
	}
	return f
}

func (w *weather) leader(op memory.Op) (f memory.ReadFault) {
	f = w.replica(op)
	f.Behind = 0
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lying && w.rng.IntN(2) == 0 {
		f.Behind = 1 + uint64(w.rng.IntN(2))
	}
	return f
}

func (w *weather) table(op memory.Op) (f memory.ReadFault) {
	f = w.replica(op)
	f.Behind, f.Short = 0, 0
	return f
}

func (w *weather) news(string, pubsub.Message) bool {
	_, fault, unlock := w.roll()
	defer unlock()
	return fault
}

func (w *weather) faults() memory.Faults {
	return memory.Faults{
		Append: w.write, Set: w.write, Trim: w.write,
		Read: w.replica, Get: w.leader, Bounds: w.leader, Headers: w.leader,
		TableGet: w.table, Scan: w.table, News: w.news,
	}
}
