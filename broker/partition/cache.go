package partition

import (
	"container/list"
	"sync"
	"time"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/types"
)

const (
	// cacheMessages is the number of recent messages kept per partition.
	cacheMessages = 64
	// cacheInterest is how long after someone asked for the end of a partition
	// what is appended to it goes into the cache. A partition nobody reads is
	// not worth a copy.
	cacheInterest = 30 * time.Second
)

// cache holds the newest messages of partitions, as Fetch sends them, under one
// budget of bytes. Evicted is what was added first. Safe for concurrent use; it
// calls nobody.
type cache struct {
	budget int

	mu    sync.Mutex // guards: all below
	bytes int
	order list.List // of *cached, oldest first
	tails map[*Partition]*tail
}

// tail is what is cached of one partition: consecutive messages.
type tail struct{ messages []*list.Element }

type cached struct {
	p    *Partition
	seq  pubsub.Seq
	data []byte
}

func newCache(budget int) *cache {
	return &cache{budget: budget, tails: map[*Partition]*tail{}}
}

// add takes the message after the last one of the partition. The cache keeps
// data; nobody may write to it any more.
func (c *cache) add(p *Partition, seq pubsub.Seq, data []byte) {
	if len(data) > c.budget/4 {
		c.drop(p) // a gap would be useless
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.tails[p]
	if t == nil {
		t = &tail{}
		c.tails[p] = t
	}
	if n := len(t.messages); n > 0 {
		last := t.messages[n-1].Value.(*cached).seq
		if seq <= last {
			return
		}
		if seq != last+1 {
			c.dropLocked(t)
		}
	}
	t.messages = append(t.messages, c.order.PushBack(&cached{p, seq, data}))
	c.bytes += len(data)
	if len(t.messages) > cacheMessages {
		c.evictLocked(t.messages[0])
	}
	for c.bytes > c.budget {
		c.evictLocked(c.order.Front())
	}
}

// evictLocked removes the oldest message of a partition.
func (c *cache) evictLocked(e *list.Element) {
	m := c.order.Remove(e).(*cached)
	c.bytes -= len(m.data)
	t := c.tails[m.p]
	t.messages[0] = nil
	t.messages = t.messages[1:]
	if len(t.messages) == 0 {
		delete(c.tails, m.p)
	}
}

func (c *cache) dropLocked(t *tail) {
	for _, e := range t.messages {
		m := c.order.Remove(e).(*cached)
		c.bytes -= len(m.data)
	}
	t.messages = nil
}

// drop forgets a partition.
func (c *cache) drop(p *Partition) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := c.tails[p]; t != nil {
		c.dropLocked(t)
		delete(c.tails, p)
	}
}

// from calls fn with the cached messages of a partition from seq on, as long as
// it returns true. fn must not call the cache.
func (c *cache) from(p *Partition, seq pubsub.Seq, fn func(seq pubsub.Seq, data []byte) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.tails[p]
	if t == nil || len(t.messages) == 0 {
		return
	}
	first := t.messages[0].Value.(*cached).seq
	if seq < first {
		return
	}
	for i := int(seq - first); i < len(t.messages); i++ {
		m := t.messages[i].Value.(*cached)
		if !fn(m.seq, m.data) {
			return
		}
	}
}

// used is the number of bytes held.
func (c *cache) used() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bytes
}

// wantsCacheLocked reports whether what is appended is likely to be read soon.
func (p *Partition) wantsCacheLocked(now time.Time) bool {
	return len(p.waiters) > 0 || now.Sub(p.interest) < cacheInterest
}

// cacheLocked caches a message that was read at the end of the log.
func (p *Partition) cacheLocked(d *meta, m *pubsub.Message) {
	if !p.wantsCacheLocked(p.host.clock()) {
		return
	}
	data := m.Data
	if d.plain {
		data = plainBatch(d.base, m)
	}
	p.host.cache.add(p, d.seq, data)
}

// hints remember where sequential readers will go on: the offset after what
// they read, the message that contains it, and that message's base.
type hints struct {
	ring [16]hint
	next uint
}

type hint struct {
	offset types.Offset
	seq    pubsub.Seq
	base   types.Offset
	size   int // of the message before
}

func (h *hints) put(x hint) {
	h.ring[h.next%uint(len(h.ring))] = x
	h.next++
}

func (h *hints) find(offset types.Offset) (hint, bool) {
	for _, x := range h.ring {
		if x.offset == offset && x.seq != 0 {
			return x, true
		}
	}
	return hint{}, false
}

// memo keeps parts of indexes that were read from the store, the least recently
// used of all partitions forgotten first. Safe for concurrent use.
type memo struct {
	budget int

	mu    sync.Mutex // guards: all below
	bytes int
	order list.List // of *memoEntry, least recently used first
	all   map[memoKey]*list.Element
}

type memoKey struct {
	p    *Partition
	kind memoKind
	k    uint64
	// repaired is the partition record's: after a repair the same numbers mean
	// something else.
	repaired int64
	stream   string // of memoSibling
}

// memoKind is what memoKey.k counts.
type memoKind int8

const (
	memoPlaces  memoKind = iota // intervals of the index
	memoChunk                   // stored parts of the index, by their first interval
	memoAborted                 // stored aborted transactions, by their last marker
	memoSibling                 // parts of the index of a sibling
)

type memoEntry struct {
	key   memoKey
	value any
	bytes int
}

func newMemo(budget int) *memo { return &memo{budget: budget, all: map[memoKey]*list.Element{}} }

func (m *memo) get(k memoKey) any {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.all[k]
	if e == nil {
		return nil
	}
	m.order.MoveToBack(e)
	return e.Value.(*memoEntry).value
}

func (m *memo) put(k memoKey, value any, bytes int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.all[k]; e != nil {
		m.removeLocked(e)
	}
	m.all[k] = m.order.PushBack(&memoEntry{k, value, bytes})
	m.bytes += bytes
	for m.bytes > m.budget && m.order.Len() > 1 {
		m.removeLocked(m.order.Front())
	}
}

func (m *memo) removeLocked(e *list.Element) {
	x := m.order.Remove(e).(*memoEntry)
	m.bytes -= x.bytes
	delete(m.all, x.key)
}

func (m *memo) drop(p *Partition) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for k, e := range m.all {
		if k.p == p {
			m.removeLocked(e)
		}
	}
}
