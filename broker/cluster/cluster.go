package cluster

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/hanzoai/stream/pubsub"
)

// ErrNodeTaken: another gateway answers under the node id asked for.
var ErrNodeTaken = errors.New("node id is taken by a running gateway")

// Deps are what a Cluster works on.
type Deps struct {
	Table  pubsub.Table // the bucket of gateways
	Store  pubsub.Store // requests between gateways, connection events
	Logger *slog.Logger
	// Clock is this machine's clock, wall and monotonic; nil: time.Now.
	Clock func() time.Time
}

// Cluster is this gateway's membership and its view of the peers. All methods
// are safe for concurrent use; Join comes first, then Run.
type Cluster struct {
	cfg  Config
	deps Deps

	// mu guards everything below. It is never held while waiting.
	mu       sync.Mutex
	self     Identity
	rev      pubsub.Rev // of our key's last acknowledged write
	renewals uint64
	sent     time.Time // when the last acknowledged renewal was sent
	upSince  time.Time // last return of the connection; zero while it is down
	peers    map[int32]*seen
	lives    map[string]time.Time // by incarnation: when each other life was last seen renewing
	asked    map[string]time.Time // lives that the watch never showed: first asked about
	settled  time.Time            // sending time of the last own renewal that the watch delivered
	inFlight map[pubsub.Rev]time.Time
	asking   map[int32]bool // peers that are being asked whether they live
	probed   *probe         // the last round that began
	probing  *probe         // the next one; nil: nobody waits for it
	draining bool
	drained  chan struct{} // closed when peers were told that we drain
	ahead    time.Duration // of our wall clock before the store's, for certain
	compared bool          // ahead is known
	early    early
	changed  chan struct{}
	kick     chan struct{} // capacity 1: renew now
	reached  chan struct{} // capacity 1: the watch delivered an own renewal

	// evicted: another gateway has our node id, and we have no other yet. Run's.
	evicted bool

	// unserve ends answering peers, who ask whether we live or make calls; set by
	// Join.
	unserve func()
	caller  *caller
	desk    *desk
}

// seen is a peer's key in the watch.
type seen struct {
	Peer
	rev   pubsub.Rev
	since time.Time // sending time of the first own renewal delivered after rev; zero before one was
}

// New makes a Cluster that is not a member yet.
func New(cfg Config, deps Deps) *Cluster {
	cfg.defaults()
	if deps.Clock == nil {
		deps.Clock = time.Now
	}
	c := &Cluster{
		cfg: cfg, deps: deps,
		upSince: deps.Clock(),
		peers:   map[int32]*seen{}, lives: map[string]time.Time{}, asked: map[string]time.Time{},
		inFlight: map[pubsub.Rev]time.Time{}, asking: map[int32]bool{},
		changed: make(chan struct{}), drained: make(chan struct{}), kick: make(chan struct{}, 1), reached: make(chan struct{}, 1),
	}
	c.caller, c.desk = newCaller(c), newDesk(c)
	return c
}

// Self is this gateway's present life.
func (c *Cluster) Self() Identity {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.self
}

// Fresh reports whether an answer from memory may leave now: the last
// acknowledged renewal was sent less than the time-to-live (less a margin) ago,
// and after the connection last came back.
func (c *Cluster) Fresh() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.upSince.IsZero() || c.sent.Before(c.upSince) {
		return false
	}
	return atMost(c.sent, c.now()) < c.cfg.TTL-c.cfg.margin()
}

// Ahead tells by how much our wall clock is ahead of the store's (negative:
// behind), as far as that is certain: a renewal was stored after it was sent and
// before the watch delivered it. ok is false before the first one.
func (c *Cluster) Ahead() (d time.Duration, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ahead, c.compared
}

// Changed returns a channel that is closed when the view of the cluster changes:
// a gateway came, died or left, or this one had to begin a new life.
func (c *Cluster) Changed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
}

func (c *Cluster) announceLocked() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// Peers lists the gateways that are alive, this one included, by node id.
func (c *Cluster) Peers() []Peer {
	c.mu.Lock()
	defer c.mu.Unlock()
	var ps []Peer
	for _, p := range c.peers {
		if p.State != Alive {
			continue
		}
		ps = append(ps, p.Peer)
		if p.Identity == c.self { // the watch may not have shown it yet
			ps[len(ps)-1].Draining = c.draining
		}
	}
	sortPeers(ps)
	return ps
}

// MayAdopt reports whether what id owned may be taken over: that life has ended
// for certain, and a time-to-live has passed since its last sign of life, so
// that it no longer answers from memory either. It may turn true later: ask
// again after Changed or a while.
func (c *Cluster) MayAdopt(id Identity) bool { return c.Ended(id.Incarnation) }

// Ended is MayAdopt for a life known by its incarnation alone.
func (c *Cluster) Ended(incarnation string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	if incarnation == c.self.Incarnation {
		return false
	}
	if c.cfg.Alone {
		return true
	}
	for _, p := range c.peers {
		if p.Incarnation != incarnation {
			continue
		}
		switch p.State {
		case Alive:
			return false
		case Gone: // it said so itself, after it stopped answering
			return true
		}
	}
	if last, ok := c.lives[incarnation]; ok {
		return atLeast(last, now) >= c.cfg.TTL
	}
	// A life that the watch never showed: either it ended before we came, or
	// the watch is behind. An own renewal sent after the question and
	// delivered by the watch proves that it is not behind.
	first, ok := c.asked[incarnation]
	if !ok {
		c.asked[incarnation] = now
		return false
	}
	return atLeast(first, now) >= c.cfg.TTL && c.settled.After(first)
}

// Join makes this gateway a member under a node id and returns when its key is
// written. ErrNodeTaken: the fixed id belongs to a gateway that answers, or
// that still renews. *ModeError: a gateway of another address mode lives. It
// waits out who is silent.
func (c *Cluster) Join(ctx context.Context) error {
	for {
		node, expect, err := c.pick(ctx)
		if err != nil {
			return err
		}
		// Answer before the key is written, or who comes next finds a key
		// without anyone behind it.
		if err = c.serve(node); err != nil {
			return fmt.Errorf("serve peers: %w", err)
		}
		if err = c.register(ctx, node, expect); err == nil {
			// Who joined at the same time was not there to be seen before.
			if err = c.agree(ctx, c.written()); err == nil {
				return nil
			}
			err = errors.Join(err, c.Leave(ctx))
		}
		c.unserve()
		if !errors.Is(err, pubsub.ErrConflict) {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

// serve answers peers under a node id.
func (c *Cluster) serve(node int32) error {
	life, err := c.deps.Store.Serve(c.subject(node), func(context.Context, []byte) []byte {
		return []byte(c.Self().Incarnation)
	})
	if err != nil {
		return err
	}
	calls, err := c.desk.open(node)
	if err != nil {
		life()
		return err
	}
	c.unserve = sync.OnceFunc(func() { calls(); life() })
	return nil
}

// pick chooses a node id and the revision of its key to overwrite.
func (c *Cluster) pick(ctx context.Context) (int32, pubsub.Rev, error) {
	if err := c.agree(ctx, 0); err != nil {
		return 0, 0, err
	}
	keys, err := c.scan(ctx, 0)
	if err != nil {
		return 0, 0, err
	}
	if c.cfg.Node != 0 {
		rev, err := c.claim(ctx, c.cfg.Node, keys[c.cfg.Node])
		return c.cfg.Node, rev, err
	}
	// In this mode clients see ids with addresses, and remember them.
	sticky := c.cfg.Mode == PerGateway && !c.cfg.Alone
	if sticky {
		if v, ok := c.former(keys); ok {
			switch rev, err := c.claim(ctx, v.node, v.Value); {
			case err == nil:
				return v.node, rev, nil
			case !errors.Is(err, ErrNodeTaken):
				return 0, 0, err
			}
		}
	}
	// Ids whose holder is certainly gone first, so that restarts keep ids low.
	for node := int32(1); ; node++ {
		v, ok := keys[node]
		if !ok {
			return node, 0, nil
		}
		p, err := decode(v.Key, nil2json(v))
		if err != nil || sticky && p.Mode == PerGateway && !c.forgotten(v) {
			continue
		}
		if p.State != Alive || c.cfg.Alone {
			c.remember(p)
			return node, v.Rev, nil
		}
		switch alive, err := c.ask(ctx, p); {
		case err != nil:
			return 0, 0, err
		case alive == no:
			c.remember(p)
			return node, v.Rev, nil
		}
	}
}

// clientMemory is for how long clients may go on taking a node id for the address
// that they were told with it: three times Kafka's default of metadata.max.age.ms.
// Some look an address up by the id alone: franz-go asks for a coordinator, is told
// an id that it has an address for, and goes there as often as it is sent away.
const clientMemory = 15 * time.Minute

// forgotten reports that a key is so old that its id may get another address.
func (c *Cluster) forgotten(v pubsub.Value) bool {
	return c.now().Sub(v.Time) >= clientMemory
}

// former finds the key of the gateway that had our address last.
func (c *Cluster) former(keys map[int32]pubsub.Value) (f formerKey, ok bool) {
	for node, v := range keys {
		p, err := decode(v.Key, nil2json(v))
		if err == nil && p.Host == c.cfg.Host && p.Port == c.cfg.Port && p.Mode == PerGateway && (!ok || v.Rev > f.Rev) {
			f, ok = formerKey{node, v}, true
		}
	}
	return f, ok
}

type formerKey struct {
	node int32
	pubsub.Value
}

// claim gets the revision at which a fixed node id may be taken.
func (c *Cluster) claim(ctx context.Context, node int32, v pubsub.Value) (pubsub.Rev, error) {
	if v.Rev == 0 {
		return 0, nil
	}
	p, err := decode(v.Key, nil2json(v))
	if err != nil {
		return 0, err
	}
	lives, rev, err := c.living(ctx, p, v)
	switch {
	case err != nil:
		return 0, err
	case lives:
		return 0, fmt.Errorf("%w: node %d at %s:%d", ErrNodeTaken, node, p.Host, p.Port)
	}
	c.remember(p)
	return rev, nil
}

// living finds out whether the gateway of a key lives: it answers, or, if it is
// silent, renews its key within a time-to-live. rev is that of the key of one
// that does not.
func (c *Cluster) living(ctx context.Context, p Peer, v pubsub.Value) (lives bool, rev pubsub.Rev, err error) {
	if p.State != Alive || c.cfg.Alone {
		return false, v.Rev, nil
	}
	alive, err := c.ask(ctx, p)
	if err != nil || alive != silent {
		return alive == yes, v.Rev, err
	}
	// It may be frozen or cut off. Wait as a peer would.
	timer := time.NewTimer(c.cfg.TTL)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false, 0, ctx.Err()
	case <-timer.C:
	}
	now, err := c.deps.Table.Get(ctx, v.Key)
	if err != nil && !errors.Is(err, pubsub.ErrNotFound) {
		return false, 0, fmt.Errorf("read gateway %d: %w", p.Node, err)
	}
	return err == nil && now.Rev != v.Rev, now.Rev, nil
}

// scan reads all keys, by node id, as a replica has them that knows our write of
// a revision (0: any replica). Unreadable ones are left out.
func (c *Cluster) scan(ctx context.Context, written pubsub.Rev) (map[int32]pubsub.Value, error) {
	for {
		keys := map[int32]pubsub.Value{}
		newest := pubsub.Rev(0)
		err := c.deps.Table.Scan(ctx, pubsub.WatchOptions{}, 0, func(v pubsub.Value) error {
			newest = max(newest, v.Rev)
			if p, err := decode(v.Key, nil2json(v)); err == nil {
				keys[p.Node] = v // a key may come twice, its present value last
			} else {
				c.deps.Logger.Warn("unreadable gateway key", "key", v.Key, "error", err)
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("read gateways: %w", err)
		}
		if newest >= written {
			return keys, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("read gateways: the replica is behind: %w", ctx.Err())
		case <-time.After(c.cfg.Renew / 10):
		}
	}
}

// remember notes a life that we are about to end, as seen now.
func (c *Cluster) remember(p Peer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p.State == Gone {
		c.lives[p.Incarnation] = time.Time{}
		return
	}
	c.lives[p.Incarnation] = c.now()
}

type answer int

const (
	silent answer = iota
	yes
	no
)

// ask asks the holder of a node id whether it is the life named in the table.
func (c *Cluster) ask(ctx context.Context, p Peer) (answer, error) {
	rctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	b, err := c.deps.Store.Request(rctx, c.subject(p.Node), nil)
	switch {
	case err == nil && string(b) == p.Incarnation:
		return yes, nil
	case err == nil: // a later life under the same id: the table will tell
		return yes, nil
	case errors.Is(err, pubsub.ErrNotFound):
		return no, nil
	case ctx.Err() != nil:
		return silent, ctx.Err()
	}
	return silent, nil
}

func (c *Cluster) subject(node int32) string {
	return c.cfg.Prefix + "-gateways." + keyOf(node)
}

// register writes the key of a new life.
func (c *Cluster) register(ctx context.Context, node int32, expect pubsub.Rev) error {
	id := Identity{Node: node, Incarnation: rand.Text()}
	c.mu.Lock()
	r := c.recordLocked(id, Alive)
	c.mu.Unlock()
	sent := c.now()
	rev, err := pubsub.Put(ctx, c.deps.Table, pubsub.Write{Key: keyOf(node), Data: r.encode(), Expect: expect})
	if err != nil {
		return fmt.Errorf("register as node %d: %w", node, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.self.Incarnation != "" {
		c.lives[c.self.Incarnation] = sent // our former life: ended now
	}
	c.self, c.rev, c.sent, c.renewals = id, rev, sent, 0
	c.inFlight[rev] = sent
	c.toldLocked(r)
	c.announceLocked()
	c.deps.Logger.Info("joined", "node", node, "incarnation", id.Incarnation)
	return nil
}

// recordLocked is what we say of ourselves. The caller holds mu.
func (c *Cluster) recordLocked(id Identity, s State) record {
	return record{V: recordVersion, Incarnation: id.Incarnation, State: s, Host: c.cfg.Host, Port: c.cfg.Port,
		Draining: c.draining, Mode: c.cfg.Mode, Formats: &c.cfg.Formats}
}

func nil2json(v pubsub.Value) []byte {
	if v.Deleted || len(v.Data) == 0 {
		return []byte(`{"state":"gone"}`)
	}
	return v.Data
}
