package partition

import (
	"context"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hanzoai/stream/pubsub"
)

const (
	// copiesFor is how long what a stream's leader said of its copies counts as
	// new, and copiesWanted how long it is kept new after somebody wanted to know.
	copiesFor    = 10 * time.Second
	copiesWanted = 5 * time.Minute
	// shortEvery is how often a partition that refuses for want of copies asks
	// whether it still has to.
	shortEvery = time.Second
	// minInsyncFor is how long after a write with acks=all the copies of a topic
	// with min.insync.replicas above 1 are watched.
	minInsyncFor = time.Minute
)

// Copies says on how many servers a partition's stream is, as its leader said
// last.
type Copies struct {
	Replicas int // configured
	InSync   int // up to date, the leader among them
	Offline  int // on servers that are away
	// Leader is the server that leads the stream; "" if that is not known.
	Leader string
	// Silent says that no leader answered the last question; the numbers are older.
	Silent bool
	At     time.Time
}

// Under reports fewer up-to-date copies than configured, as far as is known.
func (c Copies) Under() bool { return c.Silent || c.InSync < c.Replicas }

// copies is what this gateway knows of all streams. It is fed by every answer
// that tells it and by a listing while somebody wants to know.
type copies struct {
	mu      sync.Mutex // guards: all below
	streams map[string]Copies
	// siblings are those of the last listing of them, by main stream.
	siblings map[string][]string
	listed   time.Time // when the last listing of all began
	listing  *flight

	wanted atomic.Int64 // when somebody last wanted to know, Unix nanoseconds
}

// saw notes what a stream's leader said.
func (h *Host) saw(stream string, b pubsub.Bounds, at time.Time) {
	k := &h.copies
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.streams == nil {
		k.streams = map[string]Copies{}
	}
	if !k.streams[stream].At.After(at) {
		k.streams[stream] = Copies{Replicas: b.Replicas, InSync: b.InSync, Offline: b.Offline, Leader: b.Leader, At: at}
	}
}

// forget drops what is known of a stream that is gone.
func (h *Host) forget(stream string) {
	h.copies.mu.Lock()
	defer h.copies.mu.Unlock()
	delete(h.copies.streams, stream)
}

// Copies tells what is known of the copies of a partition, whose main stream it is
// asked for, from memory; false if nothing is. What was compacted is in another
// stream: the partition has no more copies than either. It keeps the knowledge of all
// streams new for a while.
func (h *Host) Copies(stream string) (Copies, bool) {
	k := &h.copies
	k.wanted.Store(h.clock().UnixNano())
	k.mu.Lock()
	defer k.mu.Unlock()
	c, ok := k.streams[stream]
	for _, name := range k.siblings[stream] {
		if s, known := k.streams[name]; ok && known {
			c.InSync, c.Offline, c.Silent = min(c.InSync, s.InSync), max(c.Offline, s.Offline), c.Silent || s.Silent
		}
	}
	return c, ok
}

func (h *Host) known(stream string) (Copies, bool) {
	h.copies.mu.Lock()
	defer h.copies.mu.Unlock()
	c, ok := h.copies.streams[stream]
	return c, ok
}

// Logs is the store's Logs; what it says of copies is noted.
func (h *Host) Logs(ctx context.Context, filter string) (logs []pubsub.LogInfo, missing []string, err error) {
	began := h.clock()
	logs, missing, err = h.store.Logs(ctx, filter)
	if err != nil {
		return nil, nil, err
	}
	for _, l := range logs {
		h.saw(l.Name, l.Bounds, began)
	}
	k := &h.copies
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, name := range missing {
		if c, ok := k.streams[name]; ok && !c.At.After(began) {
			c.Silent = true
			k.streams[name] = c
		}
	}
	if filter == h.list && began.After(k.listed) {
		k.listed = began
	}
	if filter == h.allSiblings() {
		k.keepSiblingsLocked(logs, missing)
	}
	return logs, missing, nil
}

// allSiblings matches the subjects of all siblings; "" if there is no such filter.
func (h *Host) allSiblings() string {
	prefix, ok := strings.CutSuffix(h.list, ".>")
	if !ok {
		return ""
	}
	return prefix + "-clean.>"
}

// keepSiblingsLocked notes which siblings there are and forgets all others.
func (k *copies) keepSiblingsLocked(logs []pubsub.LogInfo, missing []string) {
	there := map[string]bool{}
	for _, l := range logs {
		there[l.Name] = true
	}
	for _, name := range missing {
		there[name] = true
	}
	k.siblings = map[string][]string{}
	for name := range there {
		if main, _, ok := strings.Cut(name, siblingMark); ok {
			k.siblings[main] = append(k.siblings[main], name)
		}
	}
	maps.DeleteFunc(k.streams, func(name string, _ Copies) bool {
		return strings.Contains(name, siblingMark) && !there[name]
	})
}

// RefreshCopies makes what Copies tells new, if it is not, and waits for that at
// most as long as ctx lasts.
func (h *Host) RefreshCopies(ctx context.Context) {
	if f := h.listCopies(); f != nil {
		_ = f.wait(ctx) // what is known is used then
	}
}

// listCopies lists all streams in the background, one listing at a time; nil if
// the last one is not old.
func (h *Host) listCopies() *flight {
	k := &h.copies
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.listing != nil {
		return k.listing
	}
	if h.list == "" || h.clock().Sub(k.listed) < copiesFor {
		return nil
	}
	f := newFlight()
	if !h.spawn(func() {
		ctx, cancel := context.WithTimeout(h.ctx, 2*askTimeout)
		defer cancel()
		_, _, err := h.Logs(ctx, h.list)
		if err == nil && h.compacts() && h.allSiblings() != "" {
			_, _, err = h.Logs(ctx, h.allSiblings())
		}
		k.mu.Lock()
		k.listing = nil
		if err != nil {
			k.listed = h.clock() // not at once again
		}
		k.mu.Unlock()
		f.end(err)
	}) {
		return nil
	}
	k.listing = f
	return f
}

// tickCopies lists all streams while somebody wants to know of their copies.
func (h *Host) tickCopies(now time.Time) {
	if wanted := h.copies.wanted.Load(); wanted != 0 && now.Sub(time.Unix(0, wanted)) < copiesWanted {
		h.listCopies()
	}
}

// leaderBounds is the log's Bounds; what they say of copies is noted.
func (p *Partition) leaderBounds(ctx context.Context) (pubsub.Bounds, error) {
	began := p.host.clock()
	b, err := p.log.Bounds(ctx)
	if err == nil {
		p.host.saw(p.log.Name(), b, began)
		p.noteBounds(b)
	}
	return b, err
}

// noteBounds notes what the store says of the main stream.
func (p *Partition) noteBounds(b pubsub.Bounds) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.told = b
}

// insync reports whether a write with acks=all may be tried: min.insync.replicas
// copies are up to date, and an acknowledgement will stand for as many. The store
// gives one once a majority of the stream's replicas have the message and says
// nothing of the others, so more than a majority is never promised. More than
// there are replicas means all of them (Partition.effectiveMinIsr).
//
// A majority that is missing would leave the write without any answer; as in
// Kafka it is refused before it is sent. What happens to the copies while it is on
// its way changes nothing: without a majority there is no acknowledgement, and
// with one min.insync.replicas have it.
func (p *Partition) insync() bool {
	n := p.Config().MinInsync
	if n <= 1 {
		return true
	}
	now := p.host.clock()
	p.mu.Lock()
	p.acksAll = now
	replicas := p.replicas
	p.mu.Unlock()
	if replicas == 0 {
		return true
	}
	return min(n, replicas) <= replicas/2+1 && !p.short(min(n, replicas), now)
}

// short reports that fewer than n copies are up to date, as far as is known. Old
// knowledge counts for nothing: then the store decides.
func (p *Partition) short(n int, now time.Time) bool {
	c, ok := p.host.known(p.log.Name())
	return ok && !c.Silent && c.InSync < n && now.Sub(c.At) < copiesFor
}

// watchesCopiesLocked reports whether the leader should be asked for the copies'
// sake: somebody writes with acks=all to a topic that wants several.
func (p *Partition) watchesCopiesLocked(now time.Time) bool {
	n := p.Config().MinInsync
	if n <= 1 || p.acksAll.IsZero() || now.Sub(p.acksAll) > minInsyncFor || p.replicas == 1 {
		return false
	}
	every := checkEvery
	if p.short(min(n, max(p.replicas, 1)), now) {
		every = shortEvery
	}
	return now.Sub(p.checked) >= every
}
