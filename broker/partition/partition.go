package partition

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/types"
)

// Partition is one partition of one incarnation of a topic on this gateway. It
// costs nothing until used; then it holds the state of the log as far as this
// gateway has heard. All methods are safe for concurrent use.
//
// At most one goroutine at a time appends (see append.go), and only while there
// is something to append. News, reads and the appender all apply what they see
// of the log under mu, each message once, in sequence order; nothing is sent to
// the store under mu.
type Partition struct {
	host  *Host
	topic string // for logs and messages only
	id    types.TopicID
	n     int32
	idTxt string
	key   string // of the partition record
	log   pubsub.Log

	config atomic.Pointer[Config]

	draft  draft         // owned by the appender
	queued chan struct{} // capacity 1, never closed: something was queued

	mu sync.Mutex // guards: all below
	// queue holds what was submitted and not yet taken by the appender.
	queue      []*pending
	queueBytes int // of its batches
	appending  bool
	slow       bool // the append takes long, see share.go
	closed     bool
	broken     map[int64]broken // by producer id
	parked     map[int64]*parked
	unparking  int // calls of unpark that have answers to give
	inflight   inflight
	rivals     rivals

	st    *state // nil: not loaded
	ix    index
	start types.Offset // log start
	first pubsub.Seq   // first message of the log, from the partition record
	base  types.Offset // its base offset
	stop  *stopInfo
	// cuts and when they were made, from the partition record; what is loaded
	// obeys them.
	cuts     cuts
	repaired int64
	term     uint64 // of the maintenance lease, in the record

	// clean, run, runs and want are the record's. moves counts the changes of what
	// readers go by: log start, first message, sibling.
	clean    *manifest
	run      *cleanRun
	runs     uint64
	want     types.Offset
	moves    uint64
	sibling  pubsub.Log // the last one used, nil before
	rewrites bool       // Compact runs here
	trims    bool       // trimInSteps does
	since    since
	told     pubsub.Bounds // what the store said last of the main stream

	recordRev pubsub.Rev
	snapshot  pubsub.Seq // of the snapshot that the record names
	load      *flight    // running load
	syncing   *asking    // running question to the leader
	syncNext  *asking    // the one after it

	waiters map[int]chan<- struct{}
	waiter  int
	changed chan struct{} // closed and replaced at every change, if someone asked for it

	follow   following
	replicas int        // of the log, 0 if not known yet
	interest time.Time  // last time someone wanted to know the end of the log
	checked  time.Time  // last time the leader was asked
	acksAll  time.Time  // last write that min.insync.replicas was looked up for
	wentBack time.Time  // since when the leader's last sequence is below ours
	reached  pubsub.Seq // the last sequence applied before the state was unloaded

	hints  hints
	snap   snapshots
	purge  purging
	oldest oldest
}

// flight is one call that several wait for.
type flight struct {
	done chan struct{}
	err  error // valid once done is closed
}

func newFlight() *flight { return &flight{done: make(chan struct{})} }

func (f *flight) end(err error) { f.err = err; close(f.done) }

func (f *flight) wait(ctx context.Context) error {
	select {
	case <-f.done:
		return f.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// own turns the end of a context of ours, which no caller knows of, into a
// failure of the store: it did not answer in time.
func own(err error) error {
	if (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)) && !errors.Is(err, pubsub.ErrUnavailable) {
		return fmt.Errorf("%w: %w", pubsub.ErrUnavailable, err)
	}
	return err
}

// String is topic-partition, as in logs.
func (p *Partition) String() string { return fmt.Sprintf("%s-%d", p.topic, p.n) }

// Stream is the name of the partition's stream.
func (p *Partition) Stream() string { return p.log.Name() }

// Configure replaces the configuration, for what is submitted and for retention
// from now on.
func (p *Partition) Configure(c Config) { p.config.Store(&c) }

// Config is the newest configuration. Whoever needs one asks each time: a change
// reaches an open partition by Configure, within a second of its being stored.
// What it points to is never written to.
func (p *Partition) Config() *Config { return p.config.Load() }

// ready returns nil if the state is loaded; else it loads it.
func (p *Partition) ready(ctx context.Context) error {
	p.mu.Lock()
	if err := p.refusedLocked(); err != nil {
		p.mu.Unlock()
		return err
	}
	if p.st != nil {
		p.mu.Unlock()
		return nil
	}
	f := p.load
	if f == nil {
		f = newFlight()
		p.load = f
		if !p.host.spawn(func() {
			err := p.open(p.host.ctx)
			p.mu.Lock()
			p.load = nil
			p.mu.Unlock()
			f.end(own(err))
		}) {
			p.load = nil
			f.end(errClosed)
		}
	}
	p.mu.Unlock()
	return f.wait(ctx)
}

// errClosed: the host has shut down.
var errClosed = fmt.Errorf("partition host is closed: %w", pubsub.ErrUnavailable)

// refusedLocked is the error that everything gets while the partition is
// stopped or gone.
func (p *Partition) refusedLocked() error {
	switch {
	case p.closed:
		return kerr.UnknownTopicOrPartition
	case p.stop != nil:
		return kerr.KafkaStorageError
	}
	return nil
}

// stopMessage explains a KAFKA_STORAGE_ERROR of a stopped partition.
func (p *Partition) stopMessage() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stopMessageLocked()
}

func (p *Partition) stopMessageLocked() string {
	if p.stop == nil {
		return ""
	}
	return fmt.Sprintf("the partition is stopped: %s at sequence %d (%s); see `stream repair`", p.stop.Kind, p.stop.Seq, p.stop.Why)
}

// unloadLocked forgets the state. The next use loads it anew, and at least as far:
// what was shown of the log is not taken back.
func (p *Partition) unloadLocked() {
	if p.st != nil {
		p.reached = max(p.reached, p.st.seq)
	}
	p.st = nil
	p.ix = index{}
	p.hints = hints{}
	p.snap.unload()
	p.host.cache.drop(p)
	p.host.memo.drop(p)
}

// seq is the last sequence applied; ok is false if nothing is loaded.
func (p *Partition) seq() (s pubsub.Seq, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.st == nil {
		return 0, false
	}
	return p.st.seq, true
}

// take applies messages of the log as far as they follow the last one applied.
// Those known already are skipped. gap is true if a message was missing before
// one of ms. leader says that ms came from the leader: only then is a
// contradiction held against the log.
//
// Errors: errUnknownFormat, *corruption (the partition is stopped then, or the
// message will be asked of the leader).
func (p *Partition) take(ms []pubsub.Message, leader bool) (gap bool, err error) {
	for i := range ms {
		m := &ms[i]
		p.mu.Lock()
		if p.st == nil {
			p.mu.Unlock()
			return false, nil
		}
		at := p.st.seq
		p.mu.Unlock()
		if m.Seq <= at {
			continue
		}
		if m.Seq > at+1 {
			return true, nil
		}
		d, err := decodeHeader(p.idTxt, m)
		if err != nil {
			p.contradiction(err, leader)
			return false, err
		}
		if err := p.applyMessage(&d, m); err != nil {
			p.contradiction(err, leader)
			return false, err
		}
	}
	return false, nil
}

// applyMessage applies one decoded message if it is the next one.
func (p *Partition) applyMessage(d *meta, m *pubsub.Message) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.st == nil || d.seq != p.st.seq+1 {
		return nil
	}
	if c := p.st.verify(d); c != nil {
		return c
	}
	p.applyLocked(d)
	p.foreignLocked(d)
	if m != nil && m.Data != nil {
		p.cacheLocked(d, m)
	}
	return nil
}

// applyLocked applies a verified message, and wakes who waits.
func (p *Partition) applyLocked(d *meta) {
	p.st.apply(d)
	p.ix.add(d)
	p.snap.applied(d)
	if f := &p.inflight; f.id != "" && f.id == d.id && p.wantsCacheLocked(p.host.clock()) {
		data := f.data
		if f.shared {
			data = append([]byte(nil), data...)
		}
		p.host.cache.add(p, d.seq, data)
	}
	p.wentBack = time.Time{}
	p.wakeLocked()
}

// wakeLocked tells everyone that something changed.
func (p *Partition) wakeLocked() {
	for _, ch := range p.waiters {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
}

// changeLocked returns a channel that is closed at the next change.
func (p *Partition) changeLocked() <-chan struct{} {
	if p.changed == nil {
		p.changed = make(chan struct{})
	}
	return p.changed
}

// contradiction deals with a message that cannot be applied. Only what the
// leader itself says is held against the log; news and replica reads are asked
// again there.
func (p *Partition) contradiction(err error, leader bool) {
	var c *corruption
	switch {
	case errors.As(err, &c) && leader:
		p.stopFor(c)
	case errors.Is(err, errUnknownFormat):
		p.mu.Lock()
		p.unloadLocked()
		p.wakeLocked()
		p.mu.Unlock()
		p.host.warn(p, "partition is unavailable on this gateway", err)
	}
}

// stopFor stops the partition: at once here, everywhere by the record.
func (p *Partition) stopFor(c *corruption) {
	s := &stopInfo{Kind: c.kind, Seq: c.seq, Why: c.why, Finder: p.host.gateway, At: p.host.clock().UTC()}
	p.mu.Lock()
	if p.stop != nil {
		p.mu.Unlock()
		return
	}
	p.stop = s
	p.wakeLocked()
	p.mu.Unlock()
	p.host.metrics.corruption.WithLabelValues(c.kind).Inc()
	p.host.alarm(p, "partition stopped: its log contradicts itself or our record; nothing is appended until it is repaired", c)
	p.host.spawn(func() {
		for wait := 50 * time.Millisecond; ; wait = min(2*wait, 10*time.Second) {
			err := p.updateRecord(p.host.ctx, func(r *record) bool {
				if r.Stop != nil {
					return false
				}
				r.Stop = s
				return true
			})
			if err == nil || !sleep(p.host.ctx, wait) {
				return
			}
		}
	})
}

// sleep waits; it returns false if ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
