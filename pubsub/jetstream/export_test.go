package jetstream

import "time"

// SetBatched switches between the read path of 2.11 and that of 2.10.
func (st *Store) SetBatched(on bool) {
	for _, c := range st.reads {
		c.batched.Store(on)
	}
}

// SetRuns makes consumers for readers that have read after bytes in one go, which
// wait so long; fresh is how old what they read ahead may be. Call it before the
// first read.
func (st *Store) SetRuns(after int, idle, fresh time.Duration) {
	st.runAfter, st.runIdle, st.runFresh = after, idle, fresh
}

// Ahead is the number of bytes read ahead.
func (st *Store) Ahead() int { return int(st.ahead.Load()) }

// Runs is the number of consumers of sequential reads.
func (st *Store) Runs() int { return int(st.runs.Load()) }

// Bypassed is the number of bytes read past nats.go.
func (st *Store) Bypassed() (n uint64) {
	for _, c := range st.reads {
		n += c.bypass.received.Load()
	}
	return n
}

// Conns is the number of connections.
func (st *Store) Conns() int { return len(st.conns()) }
