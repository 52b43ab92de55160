package memory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/hanzoai/stream/pubsub"
)

// table is one table's state: the last value of each key, markers included,
// and the one before it (which only ReadFault.Old shows).
type table struct {
	name string
	keys map[string]*cell
	last pubsub.Rev
}

type cell struct {
	pubsub.Value
	old pubsub.Value
}

func (t *table) clone() *table {
	c := &table{name: t.name, keys: make(map[string]*cell, len(t.keys)), last: t.last}
	for k, v := range t.keys {
		n := *v
		c.keys[k] = &n
	}
	return c
}

// Table opens or creates a table; see pubsub.Store.
func (c *Client) Table(ctx context.Context, tc pubsub.TableConfig) (pubsub.Table, error) {
	f := writeFault(c.faults.Create, Op{Name: tc.Name})
	_, err := c.write(ctx, f, func() (uint64, error) {
		s := c.server
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.tables[tc.Name] == nil {
			s.tables[tc.Name] = &table{name: tc.Name, keys: map[string]*cell{}}
		}
		return 0, nil
	})
	if err != nil && errors.Is(err, pubsub.ErrOutcomeUnknown) {
		err = unavailable(err)
	}
	if err != nil {
		return nil, fmt.Errorf("open table %s: %w", tc.Name, err)
	}
	return &handle{client: c, name: tc.Name}, nil
}

// handle is a client's handle to a table.
type handle struct {
	client *Client
	name   string
}

var _ pubsub.Table = (*handle)(nil)

func (h *handle) Name() string { return h.name }

// out prepares a stored value for a receiver. Data is shared: neither side
// writes to it.
func out(v pubsub.Value, headersOnly bool) pubsub.Value {
	if headersOnly {
		v.Data = nil
	}
	return v
}

func (h *handle) Get(ctx context.Context, key string) (pubsub.Value, error) {
	c := h.client
	f := readFault(c.faults.TableGet, Op{Name: h.name, Key: key})
	if err := c.read(ctx, f); err != nil {
		return pubsub.Value{}, fmt.Errorf("get %s %s: %w", h.name, key, err)
	}
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	v := pubsub.Value{Key: key}
	if e := c.server.tables[h.name].keys[key]; e != nil && !f.Deny {
		if v = e.Value; f.Old {
			v = e.old
		}
	}
	if v.Rev == 0 || v.Deleted {
		return v, fmt.Errorf("get %s %s: %w", h.name, key, pubsub.ErrNotFound)
	}
	return out(v, false), nil
}

func (h *handle) Set(ctx context.Context, w pubsub.Write) (pubsub.Rev, error) {
	c := h.client
	if !validSubject(w.Key) {
		return 0, fmt.Errorf("set %s %q: no valid key", h.name, w.Key)
	}
	if hs := headerSize(w.Header); hs > maxHeaders || hs+len(w.Data) > c.server.config.MaxPayload {
		return 0, fmt.Errorf("set %s %s: %d bytes: %w", h.name, w.Key, hs+len(w.Data), pubsub.ErrTooLarge)
	}
	f := writeFault(c.faults.Set, Op{Name: h.name, Key: w.Key, Rev: w.Expect, Size: len(w.Data), Delete: w.Delete})
	v := pubsub.Value{Key: w.Key, Header: cloneHeader(w.Header), Deleted: w.Delete}
	if !w.Delete {
		v.Data = slices.Clone(w.Data)
	}
	n, err := c.write(ctx, f, func() (uint64, error) {
		s := c.server
		s.mu.Lock()
		defer s.mu.Unlock()
		t := s.tables[h.name]
		e := t.keys[w.Key]
		if e == nil {
			e = &cell{}
		}
		if e.Rev != w.Expect {
			return 0, pubsub.ErrConflict
		}
		t.last++
		v.Rev, v.Time = t.last, s.config.Clock()
		t.keys[w.Key] = &cell{Value: v, old: e.Value}
		for _, o := range s.clients {
			for _, wt := range o.watches {
				if o.up && wt.table == h.name && wt.wants(w.Key) {
					wt.queue = append(wt.queue, v)
					wt.wake()
				}
			}
		}
		return uint64(t.last), nil
	})
	if err != nil {
		return 0, fmt.Errorf("set %s %s at %d: %w", h.name, w.Key, w.Expect, err)
	}
	return pubsub.Rev(n), nil
}

// viewLocked lists a table's values in revision order as a replica has them that
// lags behind by so many revisions.
func (h *handle) viewLocked(behind uint64) (vs []pubsub.Value, last pubsub.Rev) {
	t := h.client.server.tables[h.name]
	last = t.last - min(t.last, pubsub.Rev(behind))
	for _, e := range t.keys {
		v := e.Value
		if v.Rev > last {
			v = e.old
		}
		if v.Rev > 0 && v.Rev <= last {
			vs = append(vs, v)
		}
	}
	slices.SortFunc(vs, func(a, b pubsub.Value) int { return cmp.Compare(a.Rev, b.Rev) })
	return vs, last
}

func (h *handle) Read(ctx context.Context, from pubsub.Rev, limit pubsub.Limit) ([]pubsub.Value, error) {
	c := h.client
	f := readFault(c.faults.TableRead, Op{Name: h.name, Rev: from})
	if err := c.read(ctx, f); err != nil {
		return nil, fmt.Errorf("read %s from %d: %w", h.name, from, err)
	}
	limit = f.limited(limit)
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	all, _ := h.viewLocked(f.Behind)
	all = slices.DeleteFunc(all, func(v pubsub.Value) bool { return v.Rev < from })
	end, bytes := 0, 0
	for end < len(all) && end < limit.MaxMessages && bytes < limit.MaxBytes {
		bytes += headerSize(all[end].Header) + len(all[end].Data)
		end++
	}
	return all[:end:end], nil
}

func (h *handle) Bounds(ctx context.Context) (pubsub.Bounds, error) {
	c := h.client
	f := readFault(c.faults.TableRead, Op{Name: h.name})
	if err := c.read(ctx, f); err != nil {
		return pubsub.Bounds{}, fmt.Errorf("bounds of %s: %w", h.name, err)
	}
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	all, last := h.viewLocked(f.Behind)
	b := pubsub.Bounds{First: pubsub.Seq(last) + 1, Last: pubsub.Seq(last), Messages: uint64(len(all)), Replicas: 1, InSync: 1, Leader: "memory"}
	if f.Behind > 0 {
		b.Leader = "" // nobody's name: it was another server
	}
	for i, v := range all {
		if i == 0 {
			b.First = pubsub.Seq(v.Rev)
		}
		b.Bytes += uint64(headerSize(v.Header) + len(v.Data) + 30)
		b.LastTime = v.Time
	}
	return b, nil
}

// watch is one Scan or Watch: a queue that its caller's goroutine empties.
type watch struct {
	table    string
	patterns []string
	after    pubsub.Rev
	signal   chan struct{} // capacity 1; never closed

	// guarded by server.mu
	queue   []pubsub.Value
	restart bool // the queue is worthless: take the present values anew
}

func (w *watch) wants(key string) bool {
	return len(w.patterns) == 0 || slices.ContainsFunc(w.patterns, func(p string) bool { return match(p, key) })
}

func (w *watch) wake() {
	select {
	case w.signal <- struct{}{}:
	default:
	}
}

// presentLocked lists the values that w wants, in revision order.
func (s *Server) presentLocked(w *watch) []pubsub.Value {
	var vs []pubsub.Value
	for _, e := range s.tables[w.table].keys {
		if w.wants(e.Key) && e.Rev > w.after {
			vs = append(vs, e.Value)
		}
	}
	slices.SortFunc(vs, func(a, b pubsub.Value) int { return cmp.Compare(a.Rev, b.Rev) })
	return vs
}

// errDone ends a Scan that saw what it waited for.
var errDone = errors.New("done")

func (h *handle) Scan(ctx context.Context, o pubsub.WatchOptions, until pubsub.Rev, fn func(pubsub.Value) error) error {
	f := readFault(h.client.faults.Scan, Op{Name: h.name, Rev: until})
	if err := h.client.read(ctx, f); err != nil {
		return fmt.Errorf("scan %s: %w", h.name, err)
	}
	synced := o.Synced
	o.Synced = nil
	o.Reset = nil
	err := h.follow(ctx, o, false, func(present []pubsub.Value, end bool) error {
		for _, v := range present {
			if err := fn(v); err != nil {
				return err
			}
			if until > 0 && v.Rev >= until {
				if synced != nil {
					synced()
				}
				return errDone
			}
		}
		if end && synced != nil {
			synced()
			synced = nil
		}
		if end && until == 0 {
			return errDone
		}
		return nil
	})
	switch {
	case errors.Is(err, errDone):
		return nil
	case err == nil: // the context ended
		return fmt.Errorf("scan %s: %w", h.name, ctx.Err())
	}
	return err
}

func (h *handle) Watch(ctx context.Context, o pubsub.WatchOptions, fn func(pubsub.Value) error) error {
	return h.follow(ctx, o, true, func(vs []pubsub.Value, end bool) error {
		for _, v := range vs {
			if ctx.Err() != nil {
				return nil
			}
			if err := fn(v); err != nil {
				return err
			}
		}
		if end && o.Synced != nil {
			o.Synced()
			o.Synced = nil
		}
		return nil
	})
}

// follow hands the present values and then changes to fn, in batches; end marks
// the batch that completes the present ones. It returns nil when ctx ends, an
// error when fn fails, the client is closed or, unless it survives losses, the
// connection breaks.
func (h *handle) follow(ctx context.Context, o pubsub.WatchOptions, survives bool, fn func(vs []pubsub.Value, end bool) error) error {
	c, s := h.client, h.client.server
	w := &watch{table: h.name, patterns: slices.Clone(o.Patterns), after: o.After, signal: make(chan struct{}, 1), restart: true}
	s.mu.Lock()
	c.watches = append(c.watches, w)
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		c.watches = slices.DeleteFunc(c.watches, func(x *watch) bool { return x == w })
		s.mu.Unlock()
	}()
	w.wake()
	for first := true; ; {
		var broken <-chan struct{}
		if !survives {
			broken = c.life()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-broken:
			return fmt.Errorf("watch %s: %w", h.name, unavailable(errDisconnected))
		case <-w.signal:
		}
		if lag := c.faults.Watch; lag != nil {
			_ = c.sleep(ctx, lag(h.name)) // a connection that breaks starts it over
		}
		if c.thawed(ctx) != nil {
			return nil
		}
		s.mu.Lock()
		if c.closed {
			s.mu.Unlock()
			return fmt.Errorf("watch %s: %w", h.name, errClosed)
		}
		end := w.restart && c.up
		if end {
			w.queue, w.restart = s.presentLocked(w), false
		}
		vs := w.queue
		w.queue = nil
		s.mu.Unlock()
		if end {
			if !first && o.Reset != nil {
				o.Reset()
			}
			first = false
		}
		if o.HeadersOnly {
			vs = slices.Clone(vs)
			for i := range vs {
				vs[i] = out(vs[i], true)
			}
		}
		if err := fn(vs, end); err != nil {
			return err
		}
	}
}

// Keys lists a table's keys that have a value, sorted.
func (s *Server) Keys(table string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tables[table]
	if t == nil {
		return nil
	}
	var keys []string
	for _, k := range slices.Sorted(maps.Keys(t.keys)) {
		if !t.keys[k].Deleted {
			keys = append(keys, k)
		}
	}
	return keys
}
