package cluster

import (
	"hash/fnv"
	"slices"
)

// Choose picks the peer that should act first for a key, by rendezvous hash:
// gateways with the same view of who lives choose alike, and a gateway that
// comes or goes moves only the keys that it gets or had. It is a hint, never a
// right: ownership is a field of what is owned. Who drains or is suspect is
// chosen only if all do. It returns false if nobody lives. The order of peers
// does not matter.
func Choose(peers []Peer, key string) (best Peer, ok bool) {
	for _, fit := range []func(Peer) bool{Peer.fit, Peer.alive} {
		var most uint64
		for _, p := range peers {
			if !fit(p) {
				continue
			}
			// By node id, not by life: a gateway that restarts gets back what it had.
			w := weight(key, p.Node)
			if !ok || w > most || w == most && p.Node < best.Node {
				best, most, ok = p, w, true
			}
		}
		if ok {
			break
		}
	}
	return best, ok
}

// Fit are the peers that something new should go to: those that live, neither
// drain nor are suspect; if there are none, all that live.
func Fit(peers []Peer) []Peer {
	for _, fit := range []func(Peer) bool{Peer.fit, Peer.alive} {
		if i := slices.IndexFunc(peers, fit); i >= 0 {
			var out []Peer
			for _, p := range peers[i:] {
				if fit(p) {
					out = append(out, p)
				}
			}
			return out
		}
	}
	return nil
}

// Rank orders peers by their weight for a key, the one that Choose takes first.
// It sorts in place and returns at most n of them.
func Rank(peers []Peer, key string, n int) []Peer {
	slices.SortFunc(peers, func(a, b Peer) int {
		if wa, wb := weight(key, a.Node), weight(key, b.Node); wa != wb {
			if wa > wb {
				return -1
			}
			return 1
		}
		return int(a.Node) - int(b.Node)
	})
	return peers[:min(n, len(peers))]
}

func (p Peer) alive() bool { return p.State == Alive }

func (p Peer) fit() bool { return p.State == Alive && !p.Draining && !p.Suspect }

// weight mixes key and node. FNV alone differs too little between nodes, whose
// bytes come last; the finalizer of SplitMix64 spreads it.
func weight(key string, node int32) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(key)) // never fails
	x := h.Sum64() ^ uint64(uint32(node))*0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
