package broker

import (
	"context"
	"time"

	"github.com/hanzoai/stream/broker/clean"
	"github.com/hanzoai/stream/logging"
)

// maintain begins what one gateway does for all, on whichever holds the lease.
func (b *Broker) maintain(ctx context.Context) {
	ctx, b.idle = context.WithCancel(ctx)
	cleaner := clean.New(clean.Deps{
		Store: b.host, Subjects: b.cfg.Prefix + ".>", Partitions: b.retained, Lease: b.lease, Ahead: b.cluster.Ahead,
		Clock: b.cfg.Clock, Logger: b.component("clean")})
	b.maintaining.Go(func() { b.check("compaction", ctx, b.compactor.Run(ctx)) })
	b.maintaining.Go(func() { b.check("maintenance lease", ctx, b.lease.Run(ctx)) })
	b.maintaining.Go(func() { b.check("retention", ctx, cleaner.Run(ctx)) })
	b.maintaining.Go(func() { b.sweep(ctx) })
}

// maintains reports whether this gateway does it at this moment.
func (b *Broker) maintains() bool {
	_, held := b.lease.Holds()
	return held
}

// release ends what only the holder does and hands the lease over.
func (b *Broker) release(ctx context.Context) {
	if b.idle == nil {
		return
	}
	b.idle()
	b.maintaining.Wait()
	if err := b.lease.Release(ctx); err != nil {
		b.logger.Warn("the maintenance lease was not released; others wait a time-to-live", logging.Error, err)
	}
}

// sweepEvery is how often the holder looks for what was left without any change of
// the membership: by a gateway that was long dead and did one thing more.
const sweepEvery = 5 * time.Minute

// sweep finishes what dead gateways left half done, when the lease comes here,
// whenever the membership changes and every so often.
func (b *Broker) sweep(ctx context.Context) {
	for {
		changed, moved := b.cluster.Changed(), b.lease.Changed()
		wait := time.Second // ours, perhaps, once renewals are acknowledged
		if b.maintains() {
			wait = sweepEvery
			if err := b.topics.Sweep(ctx); err != nil && ctx.Err() == nil {
				b.logger.Warn("sweep of topics failed; it is repeated", logging.Error, err)
				wait = 30 * time.Second
			}
		}
		again := time.After(wait)
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-moved:
		case <-again:
		}
	}
}

// retained opens the partitions that may have something to let go of.
func (b *Broker) retained() []clean.Partition {
	var ps []clean.Partition
	for _, t := range b.Known() {
		for n := range t.Partitions {
			ps = append(ps, b.open(t, n))
		}
	}
	return ps
}
