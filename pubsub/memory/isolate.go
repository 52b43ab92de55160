package memory

import (
	"context"
	"errors"
	"time"
)

// Isolate cuts the client off without anybody noticing, as a network does that
// swallows everything: the connection looks up, calls get no answer and end
// after Config.Timeout, no news comes, requests reach no handler.
func (c *Client) Isolate() {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	if c.apart == nil && !c.closed {
		c.apart = make(chan struct{})
	}
}

// Rejoin ends an isolation. What was sent meanwhile arrives now, in order, long
// after its callers were told that its outcome is unknown; what was to come is
// delivered. A connection that was broken meanwhile has lost the former.
func (c *Client) Rejoin() {
	c.server.mu.Lock()
	pending := c.pending
	c.rejoinLocked()
	c.server.mu.Unlock()
	for _, do := range pending {
		do()
	}
}

func (c *Client) rejoinLocked() {
	if c.apart != nil {
		close(c.apart)
		c.apart = nil
	}
	c.pending = nil
}

// swallowed keeps a write for Rejoin while the client is isolated.
func (c *Client) swallowed(do func()) bool {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	if c.apart == nil {
		return false
	}
	c.pending = append(c.pending, do)
	return true
}

var errSilence = errors.New("no answer")

// heard waits while the client is frozen or isolated, as long as a call waits for
// its answer.
func (c *Client) heard(ctx context.Context) error {
	c.server.mu.Lock()
	held, apart, life := c.heldLocked(), c.apart, c.broken
	c.server.mu.Unlock()
	switch {
	case held == nil:
		return nil
	case apart == nil:
		return c.thawed(ctx)
	}
	t := time.NewTimer(c.server.config.Timeout)
	defer t.Stop()
	select {
	case <-apart:
		return c.thawed(ctx)
	case <-t.C:
		return errSilence
	case <-life:
		return errDisconnected
	case <-ctx.Done():
		return ctx.Err()
	}
}
