package coord

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hanzoai/stream/broker/cluster"
	"github.com/hanzoai/stream/pubsub/memory"
)

// TestAwait: a request waits at the seat until the record can be taken over, is
// refused elsewhere, and is given up by a gateway that may have stood still.
func TestAwait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := memory.NewServer(memory.Config{})
		a := newHost(t, srv, 1, memory.Faults{}, nil)
		b := newHost(t, srv, 2, memory.Faults{}, nil)
		peers := func(draining, suspect bool) []cluster.Peer {
			return []cluster.Peer{
				{Identity: a.members.self, State: cluster.Alive, Draining: draining, Suspect: suspect},
				{Identity: b.members.self, State: cluster.Alive},
			}
		}
		view := func(ps []cluster.Peer) {
			for _, h := range []*host{a, b} {
				h.members.set(func() { h.members.peers = ps })
			}
			synctest.Wait()
		}
		view(peers(false, false))
		if _, err := a.add(t, "k", 1); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		await := func(h *host) (time.Duration, error) {
			began := time.Now()
			err := h.Await(t.Context(), "k", func(context.Context) error { _, err := h.add(t, "k", 1); return err })
			return time.Since(began), err
		}
		seat := func(want cluster.Identity) {
			t.Helper()
			for _, h := range []*host{a, b} {
				if id, ok := h.Seat("k"); !ok || id != want {
					t.Errorf("node %d: the seat is %v, %v, want %v", h.members.self.Node, id, ok, want)
				}
			}
		}
		seat(a.members.self)
		if d, err := await(b); !errors.Is(err, ErrNotOwner) || d != 0 {
			t.Errorf("elsewhere: %v after %v", err, d)
		}
		if _, err := await(a); err != nil {
			t.Errorf("at the owner: %v", err)
		}
		// The owner seems to be gone: the next one lets requests wait.
		for _, ps := range [][]cluster.Peer{peers(true, false), peers(false, true)} {
			view(ps)
			seat(b.members.self)
			if d, err := await(b); !errors.Is(err, ErrNotOwner) || d < 5*time.Second || d > 6*time.Second {
				t.Errorf("nobody lets go: %v after %v", err, d)
			}
		}
		go func() {
			time.Sleep(time.Second)
			b.members.set(func() { b.members.adopt = true })
		}()
		if d, err := await(b); err != nil || d < time.Second || d > 1300*time.Millisecond {
			t.Errorf("taken over: %v after %v", err, d)
		}
		// Stands still while it waits.
		a.members.set(func() { a.members.peers = []cluster.Peer{{Identity: a.members.self, State: cluster.Alive}} })
		synctest.Wait()
		time.AfterFunc(time.Second, func() { a.members.set(func() { a.members.self.Incarnation = "next" }) })
		if _, err := await(a); !errors.Is(err, ErrStale) {
			t.Errorf("another life: %v", err)
		}
	})
}

// A dead owner's next life is not the first to take over what that one had: it has
// not seen the silence, so it may do so last.
func TestHeirs(t *testing.T) {
	id := func(node int32, life string) cluster.Identity {
		return cluster.Identity{Node: node, Incarnation: life}
	}
	peer := func(i cluster.Identity) cluster.Peer { return cluster.Peer{Identity: i, State: cluster.Alive} }
	all := []cluster.Peer{peer(id(1, "b")), peer(id(2, "a")), peer(id(3, "a"))}
	draining := append([]cluster.Peer{}, all...)
	draining[1].Draining, draining[2].Suspect = true, true
	for name, c := range map[string]struct {
		e     Entry
		peers []cluster.Peer
		want  []int32
	}{
		"no record":                 {Entry{}, all, []int32{1, 2, 3}},
		"released":                  {Entry{Known: true, Released: true, Owner: Owner{Node: 1, Incarnation: "a"}}, all, []int32{1, 2, 3}},
		"its next life":             {Entry{Known: true, Owner: Owner{Node: 1, Incarnation: "a"}}, all, []int32{2, 3}},
		"away":                      {Entry{Known: true, Owner: Owner{Node: 7, Incarnation: "a"}}, all, []int32{1, 2, 3}},
		"nobody else":               {Entry{Known: true, Owner: Owner{Node: 1, Incarnation: "a"}}, all[:1], []int32{1}},
		"the others are on the way": {Entry{Known: true, Owner: Owner{Node: 1, Incarnation: "a"}}, draining, []int32{1, 2, 3}},
	} {
		var got []int32
		for _, p := range c.e.heirs(c.peers) {
			got = append(got, p.Node)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
