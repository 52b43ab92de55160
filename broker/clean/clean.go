package clean

import (
	"context"
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
	Store pubsub.Store
	// Subjects matches the subjects of all partitions.
	Subjects string
	// Partitions opens all partitions of the active topics.
	Partitions func() []Partition
	// Mine reports whether this gateway is the one that cleans.
	Mine func() bool
	// Ahead tells how far our clock is ahead of the store's, and whether that is
	// known: without it nothing is deleted.
	Ahead  func() (time.Duration, bool)
	Clock  func() time.Time // nil: time.Now
	Logger *slog.Logger     // nil: silent
}

// Partition is one partition; partition.Partition is the real one.
type Partition interface {
	// Stream is the name of its stream.
	Stream() string
	// Retain lets go of what the settings do not keep; now is the store's time.
	Retain(ctx context.Context, now time.Time, b pubsub.Bounds) error
	String() string
}

var _ Partition = (*partition.Partition)(nil)

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
		if c.d.Mine() {
			c.Pass(ctx)
		}
	}
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
	for range atOnce {
		wg.Go(func() {
			for p := range work {
				now := c.d.Clock().Add(-ahead)
				if err := p.Retain(ctx, now, bounds[p.Stream()]); err != nil && ctx.Err() == nil {
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
}
