package contract

import (
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/hanzoai/stream/pubsub"
)

// news collects what a follow hears.
type news struct {
	mu  sync.Mutex
	all []pubsub.Message
	got chan struct{}
}

func (n *news) hear(m pubsub.Message) {
	n.mu.Lock()
	n.all = append(n.all, m)
	n.mu.Unlock()
	select {
	case n.got <- struct{}{}:
	default:
	}
}

// wait returns the news once there are enough.
func (n *news) wait(t *testing.T, enough func([]pubsub.Message) bool) []pubsub.Message {
	t.Helper()
	deadline := time.After(patience)
	for {
		n.mu.Lock()
		all := slices.Clone(n.all)
		n.mu.Unlock()
		if enough(all) {
			return all
		}
		select {
		case <-n.got:
		case <-deadline:
			t.Fatalf("news stayed at %d messages", len(all))
		}
	}
}

// followNews: alone, following begins and nothing has to come; what does come is
// as true as ever.
func followNews(t *testing.T, s pubsub.Store, alone bool) {
	l := newLog(t, s)
	mustAppend(t, l, 0, pubsub.Entry{Data: []byte("before")})
	other := newLog(t, s)
	a, b := &news{got: make(chan struct{}, 1)}, &news{got: make(chan struct{}, 1)}
	for _, n := range []*news{a, b} {
		cancel, err := l.Follow(n.hear)
		noErr(t, "Follow", err)
		defer cancel()
		all := n.wait(t, func(all []pubsub.Message) bool { return len(all) > 0 })
		if m := all[0]; m.Seq != 0 {
			t.Fatalf("following began with %+v, want a zero message", m)
		}
	}
	const n = 20
	mustAppend(t, other, 0, pubsub.Entry{Data: []byte("elsewhere")})
	for i := 1; i <= n; i++ {
		h := pubsub.Header{"I": {strconv.Itoa(i + 1)}, "Two": {"a", "b"}}
		mustAppend(t, l, pubsub.Seq(i), pubsub.Entry{Header: h, Data: number(pubsub.Seq(i + 1))})
	}
	for _, f := range []*news{a, b} {
		all := f.wait(t, func(all []pubsub.Message) bool { return alone || all[len(all)-1].Seq == n+1 })
		next := pubsub.Seq(2)
		for _, m := range all {
			if m.Seq == 0 {
				continue
			}
			if m.Seq != next || m.Data != nil || m.Size != len(number(m.Seq)) || m.Time.IsZero() ||
				!sameHeader(m.Header, pubsub.Header{"I": {strconv.Itoa(int(m.Seq))}, "Two": {"a", "b"}}) {
				t.Errorf("news %+v, want sequence %d", m, next)
			}
			next++
		}
		if next != n+2 && !alone {
			t.Errorf("news of %d messages, want %d", next-2, n)
		}
	}
}

func followCancel(t *testing.T, s pubsub.Store, alone bool) {
	l := newLog(t, s)
	entered, release := make(chan struct{}, 100), make(chan struct{})
	var mu sync.Mutex
	ended, after := false, 0
	cancel, err := l.Follow(func(pubsub.Message) {
		mu.Lock()
		if ended {
			after++
		}
		mu.Unlock()
		entered <- struct{}{}
		<-release
	})
	noErr(t, "Follow", err)
	receive(t, "the beginning", entered)
	mustAppend(t, l, 0, pubsub.Entry{Data: []byte("1")})
	done := make(chan struct{})
	go func() {
		cancel()
		mu.Lock()
		ended = true
		mu.Unlock()
		close(done)
	}()
	select {
	case <-done:
		t.Error("cancel did not wait for fn")
	case <-time.After(50 * time.Millisecond): // cannot prove it, only fail to disprove
	}
	close(release)
	receive(t, "cancel", done)
	mustAppend(t, l, 1, pubsub.Entry{Data: []byte("2")})
	cancel() // again: harmless
	n := &news{got: make(chan struct{}, 1)}
	cancel2, err := l.Follow(n.hear)
	noErr(t, "Follow", err)
	defer cancel2()
	n.wait(t, func(all []pubsub.Message) bool { return len(all) > 0 })
	mustAppend(t, l, 2, pubsub.Entry{Data: []byte("3")})
	n.wait(t, func(all []pubsub.Message) bool { return alone || all[len(all)-1].Seq == 3 })
	mu.Lock()
	defer mu.Unlock()
	if after > 0 {
		t.Errorf("fn was called %d times after cancel", after)
	}
}
