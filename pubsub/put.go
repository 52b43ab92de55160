package pubsub

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"
)

// WriteIDHeader carries the id of the call that wrote a value, by which a
// writer recognises its own write after a lost acknowledgement.
const WriteIDHeader = "Write-Id"

// Put does one compare-and-set and resolves an unknown outcome: it repeats the
// identical write, which the expectation makes harmless, and on a conflict
// reads back: its own write id means success. It returns ErrOutcomeUnknown only
// when ctx ends first. ErrConflict means that the value in force is not ours
// (ours may have been stored and overwritten meanwhile).
func Put(ctx context.Context, t Table, w Write) (Rev, error) {
	h := make(Header, len(w.Header)+1)
	for k, v := range w.Header {
		h[k] = v
	}
	id := rand.Text()
	h[WriteIDHeader] = []string{id}
	w.Header = h
	unknown := false
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		rev, err := t.Set(ctx, w)
		switch {
		case err == nil:
			return rev, nil
		case errors.Is(err, ErrOutcomeUnknown):
			unknown = true
		case errors.Is(err, ErrConflict) && unknown:
			v, gerr := t.Get(ctx, w.Key)
			if gerr == nil || errors.Is(gerr, ErrNotFound) {
				if v.Header.Get(WriteIDHeader) == id {
					return v.Rev, nil
				}
				// The write in flight may be ours and not readable yet: only a
				// value newer than the expectation settles it.
				if v.Rev != w.Expect {
					return 0, err
				}
			}
		case unknown && ctx.Err() == nil && errors.Is(err, ErrUnavailable):
		default:
			if unknown {
				return 0, fmt.Errorf("put %s %s: %w (then: %v)", t.Name(), w.Key, ErrOutcomeUnknown, err)
			}
			return 0, err
		}
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("put %s %s: %w", t.Name(), w.Key, ErrOutcomeUnknown)
		case <-time.After(wait):
		}
	}
}

// Result is the outcome of one write of PutAll.
type Result struct {
	Rev Rev
	Err error
}

// PutAll does independent writes to different keys concurrently, at most 64 in
// flight, and returns their results in the order given.
func PutAll(ctx context.Context, t Table, ws []Write) []Result {
	rs := make([]Result, len(ws))
	if len(ws) == 1 {
		rs[0].Rev, rs[0].Err = Put(ctx, t, ws[0])
		return rs
	}
	slots := make(chan struct{}, 64)
	var wg sync.WaitGroup
	for i := range ws {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			rs[i].Rev, rs[i].Err = Put(ctx, t, ws[i])
		})
	}
	wg.Wait()
	return rs
}
