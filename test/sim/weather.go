package sim

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/pubsub/memory"
)

// Weather decides about the faults of clients of a store. It can be calmed for the
// end of a run. Safe for concurrent use.
type Weather struct {
	mu    sync.Mutex // guards: rng
	rng   *rand.Rand
	rate  float64 // probability of a fault per call
	calm  bool
	lying bool // leaders deny the newest messages (only on replicated logs)
}

// NewWeather makes a weather with a probability of a fault per call.
func NewWeather(r *rand.Rand, rate float64) *Weather { return &Weather{rng: r, rate: rate} }

// Rate is the probability of a fault per call.
func (w *Weather) Rate() float64 { return w.rate }

func (w *Weather) roll() (r *rand.Rand, fault bool, unlock func()) {
	w.mu.Lock()
	return w.rng, !w.calm && w.rng.Float64() < w.rate, w.mu.Unlock
}

// Clear ends all faults for good.
func (w *Weather) Clear() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calm, w.lying = true, false
}

// Lie lets leaders deny the newest messages, as one does that woke from a freeze:
// for less than a second, and only of logs with several replicas.
func (w *Weather) Lie(on bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lying = on && !w.calm
}

func (w *Weather) write(memory.Op) (f memory.WriteFault) {
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
		f.Late = Millis(r, 3000)
	case 6:
		f.Before = Millis(r, 60)
	case 7:
		f.After = Millis(r, 7000) // beyond the ack timeout at times
	}
	return f
}

// request is one between gateways.
func (w *Weather) request(memory.Op) (f memory.WriteFault) {
	r, fault, unlock := w.roll()
	defer unlock()
	f.After = time.Duration(r.IntN(1000)) * time.Microsecond
	if !fault {
		return f
	}
	switch r.IntN(3) {
	case 0:
		f.Drop = true
	case 1:
		f.LoseAck = true
	case 2:
		f.Before = Millis(r, 3000) // it may arrive when nobody waits any more
	}
	return f
}

func (w *Weather) replica(memory.Op) (f memory.ReadFault) {
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
		f.Delay = Millis(r, 1000)
	case 2:
		f.Behind = 1 + uint64(r.IntN(3))
	case 3:
		f.Short = 1 + r.IntN(3)
	}
	return f
}

func (w *Weather) leader(op memory.Op) (f memory.ReadFault) {
	f = w.replica(op)
	f.Behind = 0
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lying && w.rng.IntN(2) == 0 {
		f.Behind = 1 + uint64(w.rng.IntN(2))
	}
	return f
}

func (w *Weather) table(op memory.Op) (f memory.ReadFault) {
	f = w.replica(op)
	f.Behind, f.Short = 0, 0
	return f
}

func (w *Weather) news(string, pubsub.Message) bool {
	_, fault, unlock := w.roll()
	defer unlock()
	return fault
}

// Faults are the hooks of a client of this weather.
func (w *Weather) Faults() memory.Faults {
	return memory.Faults{
		Append: w.write, Set: w.write, Trim: w.write,
		Read: w.replica, Get: w.leader, Bounds: w.leader, Headers: w.leader,
		Request:  w.request,
		TableGet: w.table, Scan: w.table, News: w.news,
	}
}

// All are the hooks of a whole gateway: also what topics, groups and membership
// ask, and changes of tables that come late.
func (w *Weather) All() memory.Faults {
	f := w.Faults()
	f.Create, f.Delete, f.Request = w.write, w.write, w.write
	f.TableGet, f.TableRead, f.Find = w.leaderTable, w.replicaTable, w.table
	f.Watch = w.lag
	return f
}

// leaderTable is a table's leader: it denies a key's last change while leaders lie.
func (w *Weather) leaderTable(op memory.Op) (f memory.ReadFault) {
	f = w.table(op)
	w.mu.Lock()
	defer w.mu.Unlock()
	f.Old = w.lying && w.rng.IntN(2) == 0
	return f
}

func (w *Weather) replicaTable(op memory.Op) memory.ReadFault { return w.replica(op) }

func (w *Weather) lag(string) time.Duration {
	r, fault, unlock := w.roll()
	defer unlock()
	if !fault {
		return time.Duration(r.IntN(2000)) * time.Microsecond
	}
	return Millis(r, 3000)
}
