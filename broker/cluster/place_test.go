package cluster

import (
	"fmt"
	"slices"
	"testing"
)

func gateways(n int32) []Peer {
	ps := make([]Peer, n)
	for i := range ps {
		ps[i] = Peer{Identity: Identity{Node: int32(i + 1), Incarnation: fmt.Sprint(i)}, State: Alive}
	}
	return ps
}

// TestChoose: every gateway gets its share, and only keys of a gateway that
// comes or goes move.
func TestChoose(t *testing.T) {
	if _, ok := Choose(nil, "k"); ok {
		t.Error("nobody was chosen")
	}
	const keys = 10_000
	ps := gateways(5)
	reversed := slices.Clone(ps)
	slices.Reverse(reversed)
	less := slices.Clone(ps)
	less[2].State = Dead
	share := map[int32]int{}
	for i := range keys {
		k := fmt.Sprintf("topic-%d", i)
		p, ok := Choose(ps, k)
		if !ok {
			t.Fatal("nobody")
		}
		share[p.Node]++
		if r, _ := Choose(reversed, k); r != p {
			t.Fatalf("%s: %d and %d", k, p.Node, r.Node)
		}
		q, _ := Choose(less, k)
		if q.State != Alive || p.Node != 3 && q != p {
			t.Fatalf("%s moved from %d to %d when 3 died", k, p.Node, q.Node)
		}
	}
	for n, got := range share {
		if got < keys/5*85/100 || got > keys/5*115/100 {
			t.Errorf("gateway %d has %d of %d keys", n, got, keys)
		}
	}
}
