package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hanzoai/stream/pubsub"
)

// Run renews the membership and watches the peers until ctx ends. When this
// gateway is found dead it begins a new life, under another node id if somebody
// has taken a leased one; who owns something under the old life learns it from
// Changed. It returns an error only for what it cannot go on from: ErrNodeTaken if
// somebody has taken a fixed one.
func (c *Cluster) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c.deps.Store.OnConnection(c.connection)
	defer func() { c.unserve() }()
	watch := make(chan error, 1)
	go func() {
		watch <- c.deps.Table.Watch(ctx, pubsub.WatchOptions{}, func(v pubsub.Value) error {
			c.observe(v)
			return nil
		})
	}()
	defer func() { <-watch }()
	var asking sync.WaitGroup
	defer asking.Wait()
	defer cancel()
	tick := time.NewTicker(c.cfg.Renew)
	defer tick.Stop()
	for renew := true; ; {
		if renew {
			if err := c.renew(ctx); err != nil {
				if ctx.Err() != nil {
					return nil
				}
				if mode := (*ModeError)(nil); errors.As(err, &mode) || errors.Is(err, ErrNodeTaken) {
					return err
				}
				c.deps.Logger.Warn("renewal failed", "error", err)
			}
		}
		renew = true
		select {
		case <-ctx.Done():
			return nil
		case err := <-watch:
			watch <- nil
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("watch gateways: %w", err)
		case <-tick.C:
		case <-c.kick:
		case <-c.reached:
			c.bury(ctx)
			c.doubt(ctx, &asking)
			renew = false
		}
	}
}

func (c *Cluster) connection(up bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if up {
		c.upSince = c.now()
	} else {
		c.upSince = time.Time{}
	}
}

// renew writes our key once more. It repeats at once what timed out.
func (c *Cluster) renew(ctx context.Context) error {
	if c.evicted {
		return c.move(ctx)
	}
	c.mu.Lock()
	c.renewals++
	self, rev := c.self, c.rev
	r := c.recordLocked(self, Alive)
	r.Renewals = c.renewals
	c.mu.Unlock()
	w := pubsub.Write{Key: keyOf(self.Node), Data: r.encode(), Expect: rev}
	// The first of several identical sends is the one that may have been
	// stored: freshness counts from it.
	first := c.now()
	for {
		attempt, cancel := context.WithTimeout(ctx, c.cfg.Renew)
		got, err := c.deps.Table.Set(attempt, w)
		cancel()
		switch {
		case err == nil:
			c.renewed(got, first, r)
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, pubsub.ErrOutcomeUnknown):
			continue
		case !errors.Is(err, pubsub.ErrConflict):
			return err // not stored: the next tick tries again
		}
		read, cancel := context.WithTimeout(ctx, c.cfg.Renew)
		v, err := c.deps.Table.Get(read, w.Key)
		cancel()
		if err != nil && !errors.Is(err, pubsub.ErrNotFound) {
			return err
		}
		p, derr := decode(w.Key, nil2json(v))
		switch {
		case derr == nil && p.Identity == self && p.State == Alive && v.Rev > rev:
			c.renewed(v.Rev, first, r)
			return nil
		case derr == nil && v.Rev <= rev:
			// A leader that does not know our own last write yet: no news.
			return fmt.Errorf("read gateway %d: %w: leader is behind", self.Node, pubsub.ErrUnavailable)
		case derr == nil && p.Identity != self && p.State == Alive:
			// While we were cut off nobody answered under our node id, and
			// another gateway has it now.
			c.deps.Logger.Warn("another gateway has our node id", "node", self.Node, "incarnation", self.Incarnation, "by", p.Incarnation)
			return c.move(ctx)
		}
		c.deps.Logger.Warn("found dead; beginning a new life", "node", self.Node, "incarnation", self.Incarnation)
		if err := c.register(ctx, self.Node, v.Rev); err != nil {
			return err
		}
		return c.agree(ctx, c.written()) // with those who came while we were dead
	}
}

// move begins a new life under another node id, or finds that a fixed one is
// taken (ErrNodeTaken). After another error it is to be tried again.
func (c *Cluster) move(ctx context.Context) error {
	c.evicted = true
	c.unserve()
	if err := c.Join(ctx); err != nil {
		return fmt.Errorf("join anew: %w", err)
	}
	c.evicted = false
	return nil
}

func (c *Cluster) renewed(rev pubsub.Rev, sent time.Time, r record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.toldLocked(r)
	if rev > c.rev {
		c.rev = rev
	}
	if sent.After(c.sent) {
		c.sent = sent
	}
	c.inFlight[rev] = sent
	if c.early.rev == rev {
		c.compareLocked(sent, c.early.stored, c.early.seen)
	}
}

// early is the last of our own renewals that the watch showed before its
// acknowledgement came.
type early struct {
	rev          pubsub.Rev
	stored, seen time.Time // by the store's clock, by ours
}

// compareLocked learns from a renewal by how much our wall clock is ahead of the
// store's: it was stored after it was sent and before it was seen.
func (c *Cluster) compareLocked(sent, stored, seen time.Time) {
	if stored.IsZero() {
		return
	}
	c.ahead = max(sent.Round(0).Sub(stored), min(0, seen.Round(0).Sub(stored)))
	c.compared = true
}

// observe applies one value of the watch.
func (c *Cluster) observe(v pubsub.Value) {
	p, err := decode(v.Key, nil2json(v))
	if err != nil {
		c.deps.Logger.Warn("unreadable gateway key", "key", v.Key, "error", err)
		return
	}
	now := c.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.peers[p.Node]
	c.peers[p.Node] = &seen{Peer: p, rev: v.Rev}
	if p.Identity != c.self && p.State == Alive {
		c.lives[p.Incarnation] = now
		delete(c.asked, p.Incarnation)
	}
	if p.Identity == c.self && p.State == Alive {
		// Everything stored before this revision was delivered. The watch may
		// be ahead of the acknowledgement: then it counts from now, later
		// than the sending, which errs towards waiting.
		sent, ok := c.inFlight[v.Rev]
		if ok {
			c.compareLocked(sent, v.Time, now)
		} else {
			sent, c.early = now, early{v.Rev, v.Time, now}
		}
		for rev := range c.inFlight {
			if rev <= v.Rev {
				delete(c.inFlight, rev)
			}
		}
		if sent.After(c.settled) {
			c.settled = sent
		}
		for _, s := range c.peers {
			if s.since.IsZero() && s.rev < v.Rev {
				s.since = sent
			}
		}
		select {
		case c.reached <- struct{}{}:
		default:
		}
	}
	if old == nil || old.Peer != p { // doubt of it has ended, too
		c.announceLocked()
	}
}

// bury marks peers dead: those of whom the watch showed no revision between two
// own renewals at least a time-to-live apart. The write names the revision last
// seen, so a renewal that comes in between makes it fail.
func (c *Cluster) bury(ctx context.Context) {
	type body struct {
		key  string
		data []byte
		rev  pubsub.Rev
	}
	var dead []body
	c.mu.Lock()
	for node, s := range c.peers {
		if node == c.self.Node || s.State != Alive || s.since.IsZero() || atLeast(s.since, c.settled) < c.cfg.TTL {
			continue
		}
		r := record{V: recordVersion, Incarnation: s.Incarnation, State: Dead, Host: s.Host, Port: s.Port, Mode: s.Mode}
		dead = append(dead, body{keyOf(node), r.encode(), s.rev})
	}
	c.mu.Unlock()
	for _, d := range dead {
		attempt, cancel := context.WithTimeout(ctx, c.cfg.Renew)
		_, err := c.deps.Table.Set(attempt, pubsub.Write{Key: d.key, Data: d.data, Expect: d.rev})
		cancel()
		c.deps.Logger.Warn("peer shows no sign of life; marked dead", "node", d.key, "error", err)
	}
}

// Leave writes that this gateway has gone, after it stopped answering, so that
// others take over without waiting. Run must have ended.
func (c *Cluster) Leave(ctx context.Context) error {
	c.mu.Lock()
	self, rev := c.self, c.rev
	c.sent = time.Time{} // never fresh again
	r := c.recordLocked(self, Gone)
	c.mu.Unlock()
	for range 2 {
		_, err := pubsub.Put(ctx, c.deps.Table, pubsub.Write{Key: keyOf(self.Node), Data: r.encode(), Expect: rev})
		if !errors.Is(err, pubsub.ErrConflict) {
			return err
		}
		// A last renewal whose acknowledgement was lost.
		v, gerr := c.deps.Table.Get(ctx, keyOf(self.Node))
		if gerr != nil {
			return gerr
		}
		if p, derr := decode(v.Key, nil2json(v)); derr != nil || p.Identity != self {
			return nil // someone else's by now
		}
		rev = v.Rev
	}
	return nil
}

func sortPeers(ps []Peer) {
	slices.SortFunc(ps, func(a, b Peer) int { return cmp.Compare(a.Node, b.Node) })
}
