package memory

import (
	"context"
	"fmt"
	"slices"

	"github.com/hanzoai/stream/pubsub"
)

// log is a client's handle to a log.
type log struct {
	client        *Client
	name, subject string
}

var _ pubsub.Log = (*log)(nil)

func (l *log) Name() string { return l.name }

func (l *log) Append(ctx context.Context, prev pubsub.Seq, e pubsub.Entry) (pubsub.Seq, error) {
	c := l.client
	if hs := headerSize(e.Header); hs > maxHeaders || hs+len(e.Data) > c.server.config.MaxPayload {
		return 0, fmt.Errorf("append %s: %d bytes: %w", l.name, hs+len(e.Data), pubsub.ErrTooLarge)
	}
	f := writeFault(c.faults.Append, Op{Name: l.name, Seq: prev, Size: len(e.Data)})
	h, data := cloneHeader(e.Header), slices.Clone(e.Data)
	n, err := c.write(ctx, f, func() (uint64, error) {
		s := c.server
		s.mu.Lock()
		defer s.mu.Unlock()
		st := s.subjects[l.subject]
		if st == nil || st.config.Name != l.name {
			return 0, pubsub.ErrNotFound
		}
		if st.last != prev {
			return 0, pubsub.ErrConflict
		}
		return uint64(s.storeLocked(st, h, data)), nil
	})
	if err != nil {
		return 0, fmt.Errorf("append %s after %d: %w", l.name, prev, err)
	}
	return pubsub.Seq(n), nil
}

// viewLocked returns the stored messages without the newest `behind`. The
// slice is never written to in place, so it may be read without the lock.
func (l *log) viewLocked(behind uint64) (*stream, []pubsub.Message, error) {
	st := l.client.server.logs[l.name]
	if st == nil {
		return nil, nil, pubsub.ErrNotFound
	}
	n := len(st.messages)
	if behind > 0 {
		for n > 0 && uint64(st.messages[n-1].Seq)+behind > uint64(st.last) {
			n--
		}
	}
	return st, st.messages[:n:n], nil
}

func (l *log) Read(ctx context.Context, from pubsub.Seq, limit pubsub.Limit) ([]pubsub.Message, error) {
	c := l.client
	f := readFault(c.faults.Read, Op{Name: l.name, Seq: from})
	if err := c.read(ctx, f); err != nil {
		return nil, fmt.Errorf("read %s from %d: %w", l.name, from, err)
	}
	limit = f.limited(limit)
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	st, all, err := l.viewLocked(f.Behind)
	if err != nil {
		return nil, fmt.Errorf("read %s from %d: %w", l.name, from, err)
	}
	i := min(st.find(from), len(all))
	end, bytes := i, 0
	for end < len(all) && end-i < limit.MaxMessages && bytes < limit.MaxBytes {
		bytes += headerSize(all[end].Header) + len(all[end].Data)
		end++
	}
	if end == i {
		return nil, nil
	}
	return slices.Clone(all[i:end]), nil
}

func (l *log) Get(ctx context.Context, seq pubsub.Seq) (pubsub.Message, error) {
	c := l.client
	f := readFault(c.faults.Get, Op{Name: l.name, Seq: seq})
	if err := c.read(ctx, f); err != nil {
		return pubsub.Message{}, fmt.Errorf("get %s %d: %w", l.name, seq, err)
	}
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	st, all, err := l.viewLocked(f.Behind)
	if err == nil {
		if i := st.find(seq); !f.Deny && i < len(all) && all[i].Seq == seq {
			return all[i], nil
		}
		err = pubsub.ErrNotFound
	}
	return pubsub.Message{}, fmt.Errorf("get %s %d: %w", l.name, seq, err)
}

func (l *log) Bounds(ctx context.Context) (pubsub.Bounds, error) {
	c := l.client
	f := readFault(c.faults.Bounds, Op{Name: l.name})
	if err := c.read(ctx, f); err != nil {
		return pubsub.Bounds{}, fmt.Errorf("bounds of %s: %w", l.name, err)
	}
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	st, all, err := l.viewLocked(f.Behind)
	if err != nil {
		return pubsub.Bounds{}, fmt.Errorf("bounds of %s: %w", l.name, err)
	}
	b := st.bounds()
	if f.Behind > 0 {
		b.Leader = "" // nobody's name: it was another server
		b.Last -= min(b.Last, pubsub.Seq(f.Behind))
		b.Messages, b.Bytes, b.First = uint64(len(all)), 0, b.Last+1
		for _, m := range all {
			b.Bytes += size(m)
		}
		if len(all) > 0 {
			b.First, b.LastTime = all[0].Seq, all[len(all)-1].Time
		}
	}
	return b, nil
}

func (l *log) Headers(ctx context.Context, from, to pubsub.Seq, fn func(pubsub.Message) error) error {
	c := l.client
	f := readFault(c.faults.Headers, Op{Name: l.name, Seq: from})
	if err := c.read(ctx, f); err != nil {
		return fmt.Errorf("headers of %s from %d: %w", l.name, from, err)
	}
	c.server.mu.Lock()
	st, all, err := l.viewLocked(f.Behind)
	if err == nil {
		all = all[min(st.find(from), len(all)):]
	}
	c.server.mu.Unlock()
	if err != nil {
		return fmt.Errorf("headers of %s from %d: %w", l.name, from, err)
	}
	for i, m := range all {
		if m.Seq > to {
			return nil
		}
		if f.Short > 0 && i == f.Short {
			return fmt.Errorf("headers of %s at %d: %w", l.name, m.Seq, pubsub.ErrUnavailable)
		}
		if i%1024 == 1023 && ctx.Err() != nil {
			return ctx.Err()
		}
		m.Data = nil
		if err := fn(m); err != nil {
			return err
		}
	}
	return nil
}

func (l *log) Trim(ctx context.Context, to pubsub.Seq) error {
	c := l.client
	f := writeFault(c.faults.Trim, Op{Name: l.name, Seq: to})
	_, err := c.write(ctx, f, func() (uint64, error) {
		s := c.server
		s.mu.Lock()
		defer s.mu.Unlock()
		st := s.logs[l.name]
		if st == nil {
			return 0, pubsub.ErrNotFound
		}
		i := min(st.find(to), max(len(st.messages)-1, 0))
		for _, m := range st.messages[:i] {
			st.bytes -= size(m)
		}
		if s.config.Remember {
			st.trimmed = append(st.trimmed, st.messages[:i]...)
		}
		// A copy: readers may hold the old slice, and it must be freed.
		if i > 0 {
			st.messages = slices.Clone(st.messages[i:])
		}
		return 0, nil
	})
	if err != nil {
		return fmt.Errorf("trim %s to %d: %w", l.name, to, err)
	}
	return nil
}

// follow delivers news of one log, in a goroutine of its own.
type follow struct {
	client *Client
	log    *log
	fn     func(pubsub.Message)
	signal chan struct{} // capacity 1; never closed
	done   chan struct{} // closed by the goroutine at its end

	// guarded by server.mu
	queue []pubsub.Message
	ended bool
}

// Follow delivers news; see pubsub.Log.
func (l *log) Follow(fn func(pubsub.Message)) (cancel func(), err error) {
	c := l.client
	f := &follow{client: c, log: l, fn: fn, signal: make(chan struct{}, 1), done: make(chan struct{})}
	s := c.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.closed {
		return nil, errClosed
	}
	c.follows = append(c.follows, f)
	if c.up {
		f.pushZeroLocked()
	}
	c.calls.Go(f.run)
	return func() {
		s.mu.Lock()
		c.follows = slices.DeleteFunc(c.follows, func(o *follow) bool { return o == f })
		f.endLocked()
		s.mu.Unlock()
		<-f.done
	}, nil
}

func (f *follow) pushLocked(m pubsub.Message) {
	if !f.client.up {
		return
	}
	f.queue = append(f.queue, m)
	f.wake()
}

func (f *follow) pushZeroLocked() { f.pushLocked(pubsub.Message{}) }

func (f *follow) endLocked() { f.ended = true; f.wake() }

func (f *follow) wake() {
	select {
	case f.signal <- struct{}{}:
	default:
	}
}

func (f *follow) run() {
	defer close(f.done)
	s := f.client.server
	for range f.signal {
		s.mu.Lock()
		queue, ended, held := f.queue, f.ended, f.client.heldLocked()
		if held == nil {
			f.queue = nil
		}
		s.mu.Unlock()
		if ended {
			return
		}
		if held != nil {
			select {
			case <-held: // closed by Thaw, Rejoin and Close
			case <-f.signal: // perhaps cancelled
			}
			f.wake()
			continue
		}
		for _, m := range queue {
			if m.Seq > 0 && f.client.faults.News != nil && f.client.faults.News(f.log.name, m) {
				continue
			}
			f.fn(m)
			s.mu.Lock()
			ended := f.ended
			s.mu.Unlock()
			if ended {
				return
			}
		}
	}
}
