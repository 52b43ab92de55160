package cluster

import "hash/fnv"

// Choose picks the peer that should act first for a key, by rendezvous hash:
// gateways with the same view of who lives choose alike, and a gateway that
// comes or goes moves only the keys that it gets or had. It is a hint, never a
// right: ownership is a field of what is owned. It returns false if nobody
// lives. The order of peers does not matter.
func Choose(peers []Peer, key string) (best Peer, ok bool) {
	var most uint64
	for _, p := range peers {
		if p.State != Alive {
			continue
		}
		// By node id, not by life: a gateway that restarts gets back what it had.
		w := weight(key, p.Node)
		if !ok || w > most || w == most && p.Node < best.Node {
			best, most, ok = p, w, true
		}
	}
	return best, ok
}

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
