package protocol

import (
	"slices"
	"sync/atomic"
	"time"
)

// answers bounds the bytes of all answers that are not written out yet
// (fetch.held.bytes). Fetch reserves what it may read and gives less when little
// is left. Other answers are counted once they are encoded; those that can be
// much larger than their request (api.large) are made a few at a time, and not
// at all while there is no room. Clients that do not take what they asked for
// are cut when the room is used up; see evict.
type answers struct {
	max      int64
	held     atomic.Int64
	waiting  atomic.Int32  // for room
	building chan struct{} // a token for each large answer that is being made
	room     chan struct{} // signalled when held has fallen
	beyond   chan struct{} // a token for each fetch that has a batch though there is no room
}

// largeAtOnce is how many large answers are made at the same time.
const largeAtOnce = 4

func newAnswers(max int64) *answers {
	return &answers{max: max, building: make(chan struct{}, largeAtOnce), room: make(chan struct{}, 1), beyond: make(chan struct{}, beyondAtOnce)}
}

// beyondAtOnce is how many fetches may have their first batch at a time while
// there is no room for it; smallFetch is what passes in any case.
const (
	beyondAtOnce = 4
	smallFetch   = 64 << 10
)

// add counts n bytes more, or less.
func (a *answers) add(n int64) {
	if a.held.Add(n); n < 0 {
		signal(a.room)
	}
}

func (a *answers) full() bool { return a.held.Load() >= a.max }

// enter waits until a large answer may be made; leave must follow once it was
// counted. It fails only when stop is closed.
func (a *answers) enter(stop <-chan struct{}) error {
	select {
	case a.building <- struct{}{}:
	case <-stop:
		return errCut
	}
	a.waiting.Add(1)
	defer a.waiting.Add(-1)
	for a.full() {
		select {
		case <-a.room:
		case <-stop:
			a.leave()
			return errCut
		}
	}
	return nil
}

func (a *answers) leave() {
	<-a.building
	signal(a.room) // another one may wait, and this one took the signal
}

// stalled is how long a client may take nothing while there is no room.
const stalled = time.Second

// evict cuts, while there is no room for answers, those connections whose
// client has taken nothing of its answer for longest: a quarter of them each
// time, because what each one holds is not known.
func (s *Server) evict(now int64) {
	if !s.handler.answers.full() {
		return
	}
	var stuck []*conn
	for c := range s.conns {
		if at := c.writeAt.Load(); at != 0 && now-at > int64(stalled) {
			stuck = append(stuck, c)
		}
	}
	slices.SortFunc(stuck, func(a, b *conn) int { return int(a.writeAt.Load() - b.writeAt.Load()) })
	for _, c := range stuck[:(len(stuck)+3)/4] {
		c.close("fetch.held.bytes")
	}
}
