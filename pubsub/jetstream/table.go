package jetstream

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/hanzoai/stream/pubsub"
)

// table implements pubsub.Table on a KV bucket: the stream KV_<name> with one
// message per subject $KV.<name>.<key>. A revision is a stream sequence.
type table struct {
	st     *Store
	name   string
	stream string
	root   string // $KV.<name>.
	write  string // what a key is written to is this and the key
	log    *log   // the stream, for reads
}

var _ pubsub.Table = (*table)(nil)

var bucketRE = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)

// Table implements pubsub.Store. The bucket is one that NATS's own KV clients
// can open; one that exists is used as it is.
func (st *Store) Table(ctx context.Context, c pubsub.TableConfig) (pubsub.Table, error) {
	if !bucketRE.MatchString(c.Name) {
		return nil, fmt.Errorf("open table %q: only letters, digits, _ and - are allowed", c.Name)
	}
	t := &table{st: st, name: c.Name, stream: "KV_" + c.Name, root: "$KV." + c.Name + "."}
	t.write = st.tableWrites(t.root)
	t.log = &log{st: st, name: t.stream, keyed: true, read: st.readConn(t.stream), directGet: st.apiPrefix + "DIRECT.GET." + t.stream}
	want := streamConfig{
		Name: t.stream, Subjects: []string{t.root + ">"}, Retention: "limits",
		MaxConsumers: -1, MaxMsgs: -1, MaxBytes: -1, MaxMsgsPerSubject: 1, MaxMsgSize: -1,
		Discard: "new", Storage: storage(c.Memory), Replicas: max(1, c.Replicas),
		Duplicates: dedupeWindow, AllowDirect: true, AllowRollup: true, DenyDelete: true,
	}
	// A bucket that another gateway is making has no leader for a moment, and
	// then nobody answers.
	patience := time.Now().Add(4 * st.cfg.APITimeout)
	for wait := 20 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		_, err := st.streamInfo(ctx, t.stream)
		if err == nil {
			return t, nil
		}
		silent := errors.Is(err, errNoAnswer) && time.Now().Before(patience) && ctx.Err() == nil
		if !silent && !hasCode(err, codeStreamNotFound) {
			return nil, fmt.Errorf("open table %s: %w", c.Name, readError(err))
		}
		if silent {
			continue // each question waits by itself
		}
		err = st.api(ctx, 3*st.cfg.APITimeout, "STREAM.CREATE."+t.stream, want, nil)
		switch {
		case err == nil:
			st.await(ctx, st.control, nats.Msg{Subject: t.write + "probe", Header: neverStored()})
			st.await(ctx, t.log.read, nats.Msg{Subject: t.log.directGet})
			return t, nil
		case hasCode(err, codeNameTaken): // another gateway was faster: look again
		case errors.Is(err, errNoAnswer) && time.Now().Before(patience):
		case hasCode(err, codeCreateFailed) && time.Now().Before(patience):
			// The folder of a bucket that was just deleted is still going away.
		default:
			return nil, fmt.Errorf("create table %s: %w", c.Name, apiWriteError(err))
		}
		select {
		case <-time.After(wait):
			continue
		case <-ctx.Done():
		case <-st.life.Done():
		}
		return nil, fmt.Errorf("create table %s: %w: %w", c.Name, pubsub.ErrUnavailable, err)
	}
}

// tableWrites is where messages for subjects below root are sent. Between a leaf
// node and the domain that it uses, subjects of buckets pass only in the form
// that the server maps (server.generateJSMappingTable).
func (st *Store) tableWrites(root string) string {
	if st.cfg.Domain == "" {
		return root
	}
	return st.apiPrefix + root
}

// Name implements pubsub.Table.
func (t *table) Name() string { return t.name }

// Get implements pubsub.Table.
func (t *table) Get(ctx context.Context, key string) (pubsub.Value, error) {
	fail := func(err error) error { return fmt.Errorf("get %s %s: %w", t.name, key, err) }
	sm, err := t.st.getFromLeader(ctx, t.stream, leaderGet{Last: t.root + key})
	if err != nil {
		return pubsub.Value{Key: key}, fail(readError(err))
	}
	m, marker, err := stored(sm)
	if err != nil {
		return pubsub.Value{}, fail(err)
	}
	v := pubsub.Value{Key: key, Data: m.Data, Header: valueHeader(m.Header), Rev: pubsub.Rev(m.Seq), Time: m.Time, Deleted: marker}
	if marker {
		v.Data = nil
		return v, fail(pubsub.ErrNotFound)
	}
	return v, nil
}

func valueHeader(h pubsub.Header) pubsub.Header {
	delete(h, hdrKVOperation)
	if len(h) == 0 {
		return nil
	}
	return h
}

// Set implements pubsub.Table.
func (t *table) Set(ctx context.Context, w pubsub.Write) (pubsub.Rev, error) {
	pairs := []string{
		hdrExpectedSubject, strconv.FormatUint(uint64(w.Expect), 10),
		hdrExpectedStream, t.stream,
	}
	data := w.Data
	if w.Delete {
		pairs = append(pairs, hdrKVOperation, "DEL")
		data = nil
	}
	seq, err := t.st.publish(ctx, t.st.control, t.stream, t.write+w.Key, withHeaders(w.Header, pairs...), data)
	if err != nil {
		return 0, fmt.Errorf("set %s %s at %d: %w", t.name, w.Key, w.Expect, err)
	}
	return pubsub.Rev(seq), nil
}

// Read implements pubsub.Table.
func (t *table) Read(ctx context.Context, from pubsub.Rev, limit pubsub.Limit) ([]pubsub.Value, error) {
	ms, err := t.log.Read(ctx, pubsub.Seq(from), limit)
	if err != nil {
		return nil, err
	}
	vs := make([]pubsub.Value, 0, len(ms))
	for _, m := range ms {
		key, ok := strings.CutPrefix(m.Header.Get(hdrSubject), t.root)
		if !ok {
			return nil, fmt.Errorf("read %s from %d: message %d has subject %q", t.name, from, m.Seq, m.Header.Get(hdrSubject))
		}
		v := pubsub.Value{Key: key, Rev: pubsub.Rev(m.Seq), Time: m.Time, Deleted: isMarker(nats.Header(m.Header))}
		if !v.Deleted {
			v.Data = m.Data
		}
		v.Header = valueHeader(strip(nats.Header(m.Header)))
		vs = append(vs, v)
	}
	return vs, nil
}

// Bounds implements pubsub.Table.
func (t *table) Bounds(ctx context.Context) (pubsub.Bounds, error) { return t.log.Bounds(ctx) }

// Scan implements pubsub.Table.
func (t *table) Scan(ctx context.Context, o pubsub.WatchOptions, until pubsub.Rev, fn func(pubsub.Value) error) error {
	w := t.newWatch(o, fn)
	w.until = until
	for {
		before := w.last
		done, err := w.run(ctx)
		switch {
		case done, w.failed != nil:
			return w.failed
		case ctx.Err() != nil:
			return fmt.Errorf("scan %s: %w: %w", t.name, pubsub.ErrUnavailable, ctx.Err())
		case t.st.isClosed() || w.last == before && !errors.Is(err, errStalled):
			// No progress: the caller knows better how long to try.
			return fmt.Errorf("scan %s: %w", t.name, readError(err))
		}
	}
}

// Watch implements pubsub.Table.
func (t *table) Watch(ctx context.Context, o pubsub.WatchOptions, fn func(pubsub.Value) error) error {
	w := t.newWatch(o, fn)
	w.endless = true
	wait := time.Duration(0)
	for {
		before := w.last
		_, err := w.run(ctx)
		if w.failed != nil {
			return w.failed
		}
		if ctx.Err() != nil || t.st.isClosed() {
			return nil
		}
		t.st.logError("watch of "+t.name+" interrupted", err)
		if wait = min(max(2*wait, 20*time.Millisecond), 2*time.Second); w.last != before {
			wait = 20 * time.Millisecond
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil
		case <-t.st.life.Done():
			return nil
		}
	}
}

// watch is the progress of one Scan or Watch over the cursors it needs. History
// is one message per key, so a cursor opened behind the last message seen
// delivers exactly the keys that changed since: a loss needs no new start,
// unless the bucket is another one than before.
type watch struct {
	t       *table
	o       pubsub.WatchOptions
	fn      func(pubsub.Value) error
	filters []string
	match   []string // if set, checked here because the server could not
	until   pubsub.Rev
	endless bool

	last    uint64    // last sequence seen
	created time.Time // of the bucket that last belongs to
	back    time.Time // since when the bucket seems to have gone back
	synced  bool
	failed  error // of fn: final
}

// goneBack is how long a leader must insist that the bucket ends before what
// we have seen; one that woke from a freeze may say so for a moment.
const goneBack = 20 * time.Second

// errStalled: for maxStalled times recheck a consumer delivered nothing though the
// leader has more. Another one, perhaps on another replica, does better.
var errStalled = fmt.Errorf("%w: it delivers nothing", errCursorLost)

const maxStalled = 3

func (t *table) newWatch(o pubsub.WatchOptions, fn func(pubsub.Value) error) *watch {
	w := &watch{t: t, o: o, fn: fn, last: uint64(o.After)}
	w.filters, w.match = t.filterSubjects(o.Patterns)
	return w
}

// filterSubjects turns patterns into the consumer's filters. Servers refuse
// filters that overlap: what others cover is left out, and if some still
// overlap everything is read and match says what to keep.
func (t *table) filterSubjects(patterns []string) (filters, match []string) {
	if len(patterns) == 0 {
		return []string{t.root + ">"}, nil
	}
	var kept []string
	for i, p := range patterns {
		covered := slices.ContainsFunc(patterns[:i], func(q string) bool { return within(p, q) }) ||
			slices.ContainsFunc(patterns[i+1:], func(q string) bool { return p != q && within(p, q) })
		if !covered {
			kept = append(kept, p)
		}
	}
	for i, p := range kept {
		for _, q := range kept[:i] {
			if overlap(p, q) {
				return []string{t.root + ">"}, kept
			}
		}
	}
	for _, p := range kept {
		filters = append(filters, t.root+p)
	}
	return filters, nil
}

// overlap reports whether some subject matches both.
func overlap(a, b string) bool {
	x, y := strings.Split(a, "."), strings.Split(b, ".")
	for i := range min(len(x), len(y)) {
		if x[i] == ">" || y[i] == ">" {
			return true
		}
		if x[i] != y[i] && x[i] != "*" && y[i] != "*" {
			return false
		}
	}
	return len(x) == len(y)
}

// run reads with one cursor until the end (done), fn's failure (w.failed) or a
// loss (err).
func (w *watch) run(ctx context.Context) (done bool, err error) {
	st := w.t.st
	if w.last > 0 {
		if err := w.resume(ctx); err != nil {
			return false, err
		}
	}
	cur, err := st.openCursor(ctx, st.control, cursorConfig{
		stream: w.t.stream, start: w.last + 1, filters: w.filters, headersOnly: w.o.HeadersOnly,
	})
	if err != nil {
		return false, err
	}
	defer cur.close()
	if w.created.IsZero() {
		if si, err := st.streamInfo(ctx, w.t.stream); err == nil {
			w.created = si.Created
		} else {
			return false, err
		}
	}
	// What existed at the start: on one replica the consumer itself knows; on
	// several it may run on one that is behind, and the leader is asked.
	var end uint64
	if st.clustered && !w.synced {
		if end, err = w.end(ctx); err != nil {
			return false, err
		}
	}
	stalled := 0
	for {
		if !w.synced && (st.clustered || cur.pending == 0) && w.last >= end {
			w.synced = true
			if w.o.Synced != nil {
				w.o.Synced()
			}
		}
		if w.synced && !w.endless && w.until == 0 {
			return true, nil
		}
		idle := time.Duration(0)
		if !w.synced {
			idle = recheck
		}
		m, p, err := cur.next(ctx, idle)
		if err != nil {
			return false, err
		}
		if m == nil {
			// Should have come: it may be gone meanwhile, or was counted twice,
			// as the server does with what is stored while it makes a consumer.
			if end, err = w.end(ctx); err != nil {
				return false, err
			}
			cur.pending = 0
			if stalled++; stalled >= maxStalled && w.last < end {
				return false, errStalled
			}
			continue
		}
		w.last, stalled = p.seq, 0
		key := strings.TrimPrefix(m.Subject, w.t.root)
		if w.match != nil && !slices.ContainsFunc(w.match, func(q string) bool { return within(key, q) }) {
			continue
		}
		if w.failed = w.fn(w.value(key, m, p)); w.failed != nil {
			return false, nil
		}
		if !w.endless && w.until > 0 && p.seq >= uint64(w.until) {
			return true, nil
		}
	}
}

func (w *watch) value(key string, m *nats.Msg, p position) pubsub.Value {
	v := pubsub.Value{Key: key, Rev: pubsub.Rev(p.seq), Time: p.time, Deleted: isMarker(m.Header)}
	if !w.o.HeadersOnly && !v.Deleted {
		v.Data = m.Data
	}
	v.Header = valueHeader(strip(m.Header))
	return v
}

// resume decides whether the next cursor may go on behind the last message.
func (w *watch) resume(ctx context.Context) error {
	si, err := w.t.st.streamInfo(ctx, w.t.stream)
	if err != nil {
		return err
	}
	other := !w.created.IsZero() && !si.Created.Equal(w.created)
	if !other && si.State.Last >= w.last {
		w.back = time.Time{}
		return nil
	}
	if !other {
		if w.back.IsZero() {
			w.back = time.Now()
		}
		if time.Since(w.back) < goneBack {
			return fmt.Errorf("%w: %s ends at %d, before %d already seen", errCursorLost, w.t.stream, si.State.Last, w.last)
		}
	}
	w.last, w.created, w.back = 0, si.Created, time.Time{}
	if w.o.Reset != nil {
		w.o.Reset()
	}
	return nil
}

// end asks the leader for the last message that matches.
func (w *watch) end(ctx context.Context) (uint64, error) {
	var end uint64
	for _, f := range w.filters {
		sm, err := w.t.st.getFromLeader(ctx, w.t.stream, leaderGet{Last: f})
		if hasCode(err, codeNoMessage) {
			continue
		}
		if err != nil {
			return 0, err
		}
		end = max(end, sm.Seq)
	}
	return end, nil
}
