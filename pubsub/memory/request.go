package memory

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/hanzoai/stream/pubsub"
)

// service is one Serve.
type service struct {
	client  *Client
	subject string
	fn      func(context.Context, []byte) []byte
	ctx     context.Context // ends with the client
	stop    context.CancelFunc
	running sync.WaitGroup
}

// Serve answers requests; see pubsub.Store. If several clients serve a subject,
// the first of them that is connected is asked.
func (c *Client) Serve(subject string, fn func(ctx context.Context, request []byte) []byte) (cancel func(), err error) {
	v := &service{client: c, subject: subject, fn: fn}
	v.ctx, v.stop = context.WithCancel(context.Background())
	s := c.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.closed {
		v.stop()
		return nil, errClosed
	}
	s.services = append(s.services, v)
	return func() {
		s.mu.Lock()
		s.services = slices.DeleteFunc(s.services, func(o *service) bool { return o == v })
		s.mu.Unlock()
		v.running.Wait()
		v.stop()
	}, nil
}

// Request asks whoever serves the subject; see pubsub.Store.
func (c *Client) Request(ctx context.Context, subject string, request []byte) ([]byte, error) {
	if len(request) > c.server.config.MaxPayload {
		return nil, fmt.Errorf("request %s: %d bytes: %w", subject, len(request), pubsub.ErrTooLarge)
	}
	f := writeFault(c.faults.Request, Op{Name: subject, Size: len(request)})
	if err := c.ready(ctx); err != nil {
		return nil, fmt.Errorf("request %s: %w", subject, err)
	}
	if err := c.sleep(ctx, f.Before); err != nil {
		return nil, fmt.Errorf("request %s: %w", subject, unknown(err))
	}
	if f.Err != nil {
		return nil, fmt.Errorf("request %s: %w", subject, f.Err)
	}
	if err := c.thawed(ctx); err != nil {
		return nil, fmt.Errorf("request %s: %w", subject, unknown(err))
	}
	answer := make(chan []byte, 1)
	if !f.Drop && !c.server.ask(subject, slices.Clone(request), answer) {
		return nil, fmt.Errorf("request %s: %w", subject, pubsub.ErrNotFound)
	}
	wait := answer
	if f.LoseAck || f.Drop {
		wait = nil
	}
	select {
	case b := <-wait:
		if err := c.sleep(ctx, f.After); err != nil {
			return nil, fmt.Errorf("request %s: %w", subject, unknown(err))
		}
		if err := c.thawed(ctx); err != nil {
			return nil, fmt.Errorf("request %s: %w", subject, unknown(err))
		}
		return b, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("request %s: %w", subject, unknown(ctx.Err()))
	case <-c.life():
		return nil, fmt.Errorf("request %s: %w", subject, unknown(errDisconnected))
	}
}

// ask starts a handler and reports whether there was one. A handler whose
// client has gone by the time it ends answers nobody.
func (s *Server) ask(subject string, request []byte, answer chan<- []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.services, func(v *service) bool { return v.subject == subject && v.client.up })
	if i < 0 {
		return false
	}
	v := s.services[i]
	v.running.Add(1)
	v.client.calls.Go(func() {
		defer v.running.Done()
		if v.client.thawed(v.ctx) != nil {
			return
		}
		b := v.fn(v.ctx, request)
		if v.client.thawed(v.ctx) != nil || !v.client.Connected() {
			return
		}
		answer <- b
	})
	return true
}
