package coord

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/hanzoai/stream/logging"
	"github.com/hanzoai/stream/pubsub"
)

// load finds the key's record and takes it over if its owner may be followed:
// compare-and-set on the record, then everything below the key up to that very
// revision, so that whatever the owner before wrote in time is seen. A key
// without a record gets a fresh state.
func (c *cell[S]) load() error {
	ctx, cancel := context.WithTimeout(c.r.ctx, c.r.c.LoadTimeout)
	defer cancel()
	// A restart adopts everything at once, and NATS drops all calls in flight if
	// there are too many.
	select {
	case c.r.loads <- struct{}{}:
		defer func() { <-c.r.loads }()
	case <-ctx.Done():
		return ErrLoading
	}
	for try := 0; ; try++ {
		err := c.takeOver(ctx)
		if err == nil {
			return nil
		}
		c.drop(err)
		if !errors.Is(err, pubsub.ErrConflict) {
			return err
		}
		if try == 2 { // somebody was faster, again: let it be theirs
			return ErrNotOwner
		}
	}
}

func (c *cell[S]) takeOver(ctx context.Context) error {
	// Asked once: what a state without a record does is proven by the creating
	// compare-and-set, or by confirm.
	v, err := c.find(ctx, 1)
	switch {
	case errors.Is(err, pubsub.ErrNotFound):
		c.state, c.has, c.exists, c.rev = c.r.c.New(c.key), true, false, v.Rev
		c.state.Start(time.Now(), Envelope{})
		return nil
	case err != nil:
		return err
	}
	body, env, err := open(v)
	if err != nil {
		return c.unreadable(v, err)
	}
	self := c.r.c.Members.Self()
	if !env.Released && env.Owner.Identity() != self && !c.r.c.Members.MayAdopt(env.Owner.Identity()) {
		c.r.index.put(v, false) // so that it is known who
		return ErrNotOwner
	}
	before := env
	c.state = c.r.c.New(c.key)
	if err := c.state.Decode(body); err != nil {
		return c.unreadable(v, fmt.Errorf("decode record %s at revision %d: %w", c.key, v.Rev, err))
	}
	c.has, c.exists, c.rev, c.env = true, true, v.Rev, env
	c.env.Owner = c.self(env.Owner.Term + 1)
	if !env.Released {
		c.env.Fence = c.env.Owner.Term
	}
	if err := c.save(ctx, false); err != nil {
		return err
	}
	c.held.Store(false) // not before it is complete
	complete := false
	err = c.r.c.Table.Scan(ctx, pubsub.WatchOptions{Patterns: []string{c.key, c.key + ".>"}}, c.rev, func(v pubsub.Value) error {
		switch {
		case v.Key != c.key:
			if v.Rev < c.rev {
				c.state.Value(v)
			}
		case v.Rev == c.rev:
			complete = true
		case v.Rev > c.rev:
			return ErrNotOwner
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("load record %s: %w", c.key, err)
	}
	if !complete {
		return fmt.Errorf("load record %s: it ended before revision %d: %w", c.key, c.rev, pubsub.ErrUnavailable)
	}
	c.state.Start(time.Now(), c.env)
	c.show()
	c.r.place(c.key)
	c.r.c.Logger.LogAttrs(ctx, slog.LevelDebug, "record taken over", slog.String("key", c.key),
		slog.Int("node", int(before.Owner.Node)), slog.Uint64("term", c.env.Owner.Term), slog.Bool("released", before.Released))
	return nil
}

// unreadable leaves a record alone that this version cannot serve.
func (c *cell[S]) unreadable(v pubsub.Value, err error) error {
	c.r.index.unreadable(c.key, v.Rev)
	c.r.c.Logger.Error("record cannot be served and is left alone", "key", c.key, logging.Error, err)
	return err
}

// find reads the record. ErrNotFound, with the revision to expect, is believed
// only from a leader that was asked after the question came, while our own
// renewal is fresh, and with replicas twice, a second apart: a leader that woke
// from a freeze denies what is there.
func (c *cell[S]) find(ctx context.Context, asks int) (pubsub.Value, error) {
	for {
		v, err := c.r.c.Table.Get(ctx, c.key)
		if err == nil {
			return v, nil
		}
		if !errors.Is(err, pubsub.ErrNotFound) {
			return v, fmt.Errorf("read record %s: %w", c.key, err)
		}
		if !c.r.c.Members.Fresh() {
			return v, ErrStale
		}
		if asks--; asks == 0 {
			return v, err
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return v, fmt.Errorf("read record %s: %w", c.key, pubsub.ErrUnavailable)
		}
	}
}

// Find reads a record that need not be owned, from the store's leader, for
// views of it. ErrNotFound is as certain as in Do.
func (r *Runtime[S]) Find(ctx context.Context, key string) (pubsub.Value, error) {
	c := cell[S]{r: r, key: key}
	asks := 1
	if r.c.Replicated {
		asks = 2
	}
	return c.find(ctx, asks)
}

// confirm asks a replicated store a second time for a record that it denied.
func (c *cell[S]) confirm(ctx context.Context) error {
	if !c.r.c.Replicated {
		return nil
	}
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
		return fmt.Errorf("read record %s: %w", c.key, pubsub.ErrUnavailable)
	}
	_, err := c.find(ctx, 1)
	switch {
	case errors.Is(err, pubsub.ErrNotFound):
		return nil
	case err != nil:
		return err
	}
	return ErrLoading // it is there: whoever asked asks again
}
