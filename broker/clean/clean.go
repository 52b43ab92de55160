package clean

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/hanzoai/stream/broker/partition"
	"github.com/hanzoai/stream/logging"
	"github.com/hanzoai/stream/pubsub"
)

const (
	// Every is how often all partitions are looked at. What is due is gone a
	// minute later, the pass included.
	Every = 15 * time.Second
	// atOnce is how many partitions are worked on together.
	atOnce = 4
	// skew is how far our clock may be from the store's: above it nothing is
	// deleted until it is right again.
	skew = time.Minute
)

// Deps are what a Cleaner works with.
type Deps struct {
	Store Store
	// Subjects matches the subjects of all partitions.
	Subjects string
	// Partitions opens all partitions of the active topics.
	Partitions func() []Partition
	// Lease is the maintenance lease: whoever holds it cleans.
	Lease Lease
	// Ahead tells how far our clock is ahead of the store's, and whether that is
	// known: without it nothing is deleted.
	Ahead  func() (time.Duration, bool)
	Clock  func() time.Time // nil: time.Now
	Logger *slog.Logger     // nil: silent
}

// Lease is what a Cleaner needs of the maintenance lease; cluster.Lease is the real
// one. Partitions ask it themselves before each write.
type Lease interface {
	// Holds reports whether this gateway holds it at this moment, and its term.
	Holds() (term uint64, held bool)
	// Outgrow raises the term of a lease that this gateway holds above one that it
	// met.
	Outgrow(ctx context.Context, term uint64) error
}

// Store lists logs; partition.Host is the real one.
type Store interface {
	Logs(ctx context.Context, filter string) (logs []pubsub.LogInfo, missing []string, err error)
}

// Partition is one partition; partition.Partition is the real one.
type Partition interface {
	// Stream is the name of its stream.
	Stream() string
	// Retain lets go of what the settings do not keep; now is the store's time.
	Retain(ctx context.Context, now time.Time, b pubsub.Bounds) error
	String() string
}

var (
	_ Partition = (*partition.Partition)(nil)
	_ Store     = (*partition.Host)(nil)
)

// Cleaner goes over all partitions from time to time. Make it with New.
type Cleaner struct{ d Deps }

// New makes a Cleaner; nothing happens before Run.
func New(d Deps) *Cleaner {
	if d.Clock == nil {
		d.Clock = time.Now
	}
	if d.Logger == nil {
		d.Logger = slog.New(slog.DiscardHandler)
	}
	return &Cleaner{d}
}

// Run works until ctx ends.
func (c *Cleaner) Run(ctx context.Context) error {
	t := time.NewTicker(Every)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
		if c.holds() {
			c.Pass(ctx)
		}
	}
}

func (c *Cleaner) holds() bool {
	_, held := c.d.Lease.Holds()
	return held
}

// Pass looks at all partitions once. What fails is logged and tried again by the
// next pass.
func (c *Cleaner) Pass(ctx context.Context) {
	ahead, known := c.d.Ahead()
	if !known || ahead.Abs() > skew {
		c.d.Logger.Warn("retention waits: the store's time is not known, or this gateway's clock is too far off", "ahead", ahead)
		return
	}
	ps := c.d.Partitions()
	if len(ps) == 0 {
		return
	}
	// One listing for all: most partitions have nothing that is due, which its
	// numbers tell.
	logs, _, err := c.d.Store.Logs(ctx, c.d.Subjects)
	if err != nil {
		if ctx.Err() == nil {
			c.d.Logger.Warn("retention could not list the streams", logging.Error, err)
		}
		return
	}
	bounds := make(map[string]pubsub.Bounds, len(logs))
	for _, l := range logs {
		bounds[l.Name] = l.Bounds
	}
	work := make(chan Partition)
	var wg sync.WaitGroup
	var mu sync.Mutex // guards: met
	met := uint64(0)  // the highest term beyond our own
	for range atOnce {
		wg.Go(func() {
			for p := range work {
				if !c.holds() {
					continue // another goes over what is left
				}
				now := c.d.Clock().Add(-ahead)
				err := p.Retain(ctx, now, bounds[p.Stream()])
				var later *partition.TermError
				if errors.As(err, &later) {
					mu.Lock()
					met = max(met, later.Term)
					mu.Unlock()
				}
				if err != nil && ctx.Err() == nil && !errors.Is(err, partition.ErrNotMaintainer) {
					c.d.Logger.Warn("retention failed; it will be tried again", "partition", p.String(), logging.Error, err)
				}
			}
		})
	}
	for _, p := range ps {
		if _, ok := bounds[p.Stream()]; !ok || ctx.Err() != nil {
			continue // not there, or it could not answer: the next pass
		}
		work <- p
	}
	close(work)
	wg.Wait()
	if met > 0 {
		if err := c.d.Lease.Outgrow(ctx, met); err != nil && ctx.Err() == nil {
			c.d.Logger.Warn("could not raise the term of the maintenance lease", logging.Error, err)
		}
	}
}
