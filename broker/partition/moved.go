package partition

import (
	"context"
	"time"
)

const (
	// movedAfter is how long an append waits before it asks whether the stream has
	// another leader by now, and how long until it asks again.
	movedAfter = time.Second
	// moveEvery bounds how fast one of Host.moveSlots asks.
	moveEvery = 100 * time.Millisecond
)

// unlessMoved ends the wait for an acknowledgement once the stream has another
// leader than before: the old one, stopped or killed, took the append along, and
// its acknowledgement never comes. What became of it is then found out at once and
// not after ackTimeout. It asks nothing before movedAfter.
func (p *Partition) unlessMoved(ctx context.Context, moved context.CancelFunc) (stop func()) {
	c, ok := p.host.known(p.log.Name())
	if !ok || c.Replicas <= 1 || c.Leader == "" {
		return func() {}
	}
	t := time.AfterFunc(movedAfter, func() {
		p.host.spawn(func() {
			for {
				select {
				case p.host.moveSlots <- struct{}{}:
				case <-ctx.Done():
					return
				}
				b, err := p.leaderBounds(ctx)
				sleep(ctx, moveEvery)
				<-p.host.moveSlots
				if err == nil && b.Leader != "" && b.Leader != c.Leader {
					moved()
					return
				}
				if !sleep(ctx, movedAfter) {
					return
				}
			}
		})
	})
	return func() { t.Stop() }
}
