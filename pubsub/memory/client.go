package memory

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/hanzoai/stream/pubsub"
)

// Client is one gateway's connection to a Server. It is a pubsub.Store.
type Client struct {
	server *Server
	faults Faults
	calls  sync.WaitGroup // goroutines of follows and services

	// All below is guarded by server.mu.
	up      bool
	closed  bool
	broken  chan struct{} // closed when the connection breaks; new with each connection
	frozen  chan struct{} // not nil while frozen; closed by Thaw
	apart   chan struct{} // not nil while isolated; closed by Rejoin
	pending []func()      // writes under way while isolated, in order
	follows []*follow
	watches []*watch
	onConn  []func(bool)
}

var _ pubsub.Store = (*Client)(nil)

// Client connects to the server. Close it to end its goroutines.
func (s *Server) Client(f Faults) *Client {
	c := &Client{server: s, faults: f, up: true, broken: make(chan struct{})}
	s.mu.Lock()
	s.clients = append(s.clients, c)
	s.mu.Unlock()
	return c
}

// Info describes the server.
func (c *Client) Info() pubsub.Info {
	return pubsub.Info{
		Version: c.server.config.Version, URL: "memory",
		MaxPayload: c.server.config.MaxPayload, MaxReplicas: c.server.config.MaxReplicas,
	}
}

// Connected reports whether the connection is up.
func (c *Client) Connected() bool {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	return c.up
}

// OnConnection registers fn for losses and returns of the connection. It is
// called from Disconnect and Reconnect.
func (c *Client) OnConnection(fn func(up bool)) {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	c.onConn = append(c.onConn, fn)
}

// Disconnect breaks the connection: what is under way ends with an unknown
// outcome, later calls are unavailable, news and changes are lost, and its
// services answer nobody.
func (c *Client) Disconnect() { c.connect(false) }

// Reconnect brings the connection back: followers are told that news was lost,
// watches start over.
func (c *Client) Reconnect() { c.connect(true) }

func (c *Client) connect(up bool) {
	s := c.server
	s.mu.Lock()
	if c.up == up || c.closed {
		s.mu.Unlock()
		return
	}
	c.up = up
	if up {
		c.broken = make(chan struct{})
		c.restartLocked("")
	} else {
		close(c.broken)
		c.pending = nil
	}
	fns := slices.Clone(c.onConn)
	s.mu.Unlock()
	for _, fn := range fns {
		fn(up)
	}
}

// restartLocked starts the follows and watches of one log or table over, or of
// all if name is "".
func (c *Client) restartLocked(name string) {
	for _, f := range c.follows {
		if name == "" || f.log.name == name {
			f.queue = f.queue[:0]
			f.pushZeroLocked()
		}
	}
	for _, w := range c.watches {
		if name == "" || w.table == name {
			w.restart = true
			w.wake()
		}
	}
}

// Freeze stops the client as SIGSTOP stops a process: calls neither leave nor
// return, no news is delivered, no request served, until Thaw. The server goes
// on, and what had arrived there counts.
func (c *Client) Freeze() {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	if c.frozen == nil {
		c.frozen = make(chan struct{})
	}
}

// Thaw ends a freeze.
func (c *Client) Thaw() {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	if c.frozen != nil {
		close(c.frozen)
		c.frozen = nil
	}
}

// thawed waits while the client is frozen or isolated.
func (c *Client) thawed(ctx context.Context) error {
	for {
		c.server.mu.Lock()
		held := c.heldLocked()
		c.server.mu.Unlock()
		if held == nil {
			return nil
		}
		select {
		case <-held:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// heldLocked is closed when what holds the client back may be over; nil: nothing
// does.
func (c *Client) heldLocked() <-chan struct{} {
	if c.frozen != nil {
		return c.frozen
	}
	return c.apart
}

// ready is passed before anything is sent.
func (c *Client) ready(ctx context.Context) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		c.server.mu.Lock()
		frozen, closed, up := c.frozen, c.closed, c.up
		c.server.mu.Unlock()
		switch {
		case frozen == nil && closed:
			return errClosed
		case frozen == nil && !up:
			return unavailable(errDisconnected)
		case frozen == nil:
			return nil
		}
		select {
		case <-frozen:
		case <-ctx.Done():
		}
	}
}

// life is closed when the present connection breaks.
func (c *Client) life() <-chan struct{} {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	return c.broken
}

// Ping asks nothing of the server but to be there.
func (c *Client) Ping(ctx context.Context) error { return c.read(ctx, ReadFault{}) }

// Space implements pubsub.Store: no limit.
func (c *Client) Space(ctx context.Context, _ bool) (pubsub.Space, error) {
	return pubsub.Space{Total: -1, Free: -1}, c.read(ctx, ReadFault{})
}

// Close ends the connection, its follows, watches and services, and waits for
// their goroutines.
func (c *Client) Close() {
	s := c.server
	s.mu.Lock()
	if c.closed {
		s.mu.Unlock()
		return
	}
	c.closed = true
	if c.up {
		c.up = false
		close(c.broken)
	}
	if c.frozen != nil {
		close(c.frozen)
		c.frozen = nil
	}
	c.rejoinLocked()
	for _, f := range c.follows {
		f.endLocked()
	}
	for _, w := range c.watches {
		w.wake()
	}
	c.follows = nil
	s.services = slices.DeleteFunc(s.services, func(v *service) bool {
		if v.client == c {
			v.stop()
		}
		return v.client == c
	})
	s.clients = slices.DeleteFunc(s.clients, func(o *Client) bool { return o == c })
	s.mu.Unlock()
	c.calls.Wait()
}

// CreateLog creates a log; see pubsub.Store.
func (c *Client) CreateLog(ctx context.Context, l pubsub.LogConfig) error {
	if l.Name == "" || strings.ContainsAny(l.Name, ".*>\\/ \t\r\n") || len(l.Name) > 255 {
		return fmt.Errorf("create log %q: no valid name", l.Name)
	}
	if !validSubject(l.Subject) {
		return fmt.Errorf("create log %s: %q is no valid subject", l.Name, l.Subject)
	}
	l.Replicas = max(l.Replicas, 1)
	if l.Replicas > c.server.config.MaxReplicas {
		return fmt.Errorf("create log %s: %d replicas, the store has %d", l.Name, l.Replicas, c.server.config.MaxReplicas)
	}
	l.Metadata = maps.Clone(l.Metadata)
	f := writeFault(c.faults.Create, Op{Name: l.Name})
	_, err := c.write(ctx, f, func() (uint64, error) { return 0, c.server.createLog(l) })
	if err != nil && errors.Is(err, pubsub.ErrOutcomeUnknown) {
		err = unavailable(err)
	}
	if err != nil {
		return fmt.Errorf("create log %s: %w", l.Name, err)
	}
	return nil
}

func (s *Server) createLog(l pubsub.LogConfig) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.logs[l.Name]; old != nil {
		o := old.config
		if o.Subject == l.Subject && o.Replicas == l.Replicas && o.Memory == l.Memory && maps.Equal(o.Metadata, l.Metadata) {
			return nil
		}
		return pubsub.ErrExists
	}
	if s.subjects[l.Subject] != nil {
		return pubsub.ErrExists
	}
	st := &stream{config: l}
	s.logs[l.Name], s.subjects[l.Subject] = st, st
	return nil
}

// DeleteLog deletes the named log; see pubsub.Store.
func (c *Client) DeleteLog(ctx context.Context, name string) error {
	f := writeFault(c.faults.Delete, Op{Name: name, Delete: true})
	_, err := c.write(ctx, f, func() (uint64, error) {
		s := c.server
		s.mu.Lock()
		defer s.mu.Unlock()
		st := s.logs[name]
		if st == nil {
			return 0, pubsub.ErrNotFound
		}
		delete(s.logs, name)
		if s.subjects[st.config.Subject] == st {
			delete(s.subjects, st.config.Subject)
		}
		return 0, nil
	})
	if err != nil {
		return fmt.Errorf("delete log %s: %w", name, err)
	}
	return nil
}

// Log is a handle; nothing is sent.
func (c *Client) Log(name, subject string) pubsub.Log {
	return &log{client: c, name: name, subject: subject}
}

func (s *stream) info() pubsub.LogInfo {
	i := pubsub.LogInfo{LogConfig: s.config, Bounds: s.bounds()}
	i.Metadata = maps.Clone(i.Metadata)
	return i
}

// FindLog asks for one log; see pubsub.Store.
func (c *Client) FindLog(ctx context.Context, name string) (pubsub.LogInfo, error) {
	f := readFault(c.faults.Find, Op{Name: name})
	if err := c.read(ctx, f); err != nil {
		return pubsub.LogInfo{}, fmt.Errorf("find log %s: %w", name, err)
	}
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	st := c.server.logs[name]
	if st == nil || f.Deny {
		return pubsub.LogInfo{}, fmt.Errorf("find log %s: %w", name, pubsub.ErrNotFound)
	}
	return st.info(), nil
}

// Logs lists logs by subject, sorted by name; see pubsub.Store.
func (c *Client) Logs(ctx context.Context, filter string) (logs []pubsub.LogInfo, missing []string, err error) {
	f := readFault(c.faults.Find, Op{Name: filter})
	if err := c.read(ctx, f); err != nil {
		return nil, nil, fmt.Errorf("list logs %s: %w", filter, err)
	}
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(c.server.logs)) {
		st := c.server.logs[name]
		switch {
		case !match(filter, st.config.Subject):
		case f.Deny:
			missing = append(missing, name)
		default:
			logs = append(logs, st.info())
		}
	}
	return logs, missing, nil
}

// match reports whether a subject matches a pattern with * and >.
func match(pattern, subject string) bool {
	for {
		p, prest, pmore := strings.Cut(pattern, ".")
		if p == ">" {
			return true
		}
		s, srest, smore := strings.Cut(subject, ".")
		if p != "*" && p != s || pmore != smore {
			return false
		}
		if !pmore {
			return true
		}
		pattern, subject = prest, srest
	}
}

// validSubject accepts concrete subjects only.
func validSubject(s string) bool {
	for t := range strings.SplitSeq(s, ".") {
		if t == "" || strings.ContainsAny(t, "*> \t\r\n") {
			return false
		}
	}
	return true
}
