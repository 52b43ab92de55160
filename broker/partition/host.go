package partition

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hanzoai/stream/logging"
	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/types"
)

// Env is what the partitions of a gateway need.
type Env struct {
	Store   pubsub.Store
	Records pubsub.Table // kafka-partitions
	// Gateway names this process in append ids, snapshot keys and stop notes.
	Gateway string
	// CacheBytes is the budget of the tail cache of all partitions together; 0
	// takes 64 MiB.
	CacheBytes int
	// QueueBytes is what partitions with a slow store may hold of batches that
	// wait, all together; 0 takes 64 MiB.
	QueueBytes int
	Clock      func() time.Time // nil: time.Now
	// Ahead tells how far our clock is ahead of the store's, and whether that
	// is known; nil: never known. Producers expire by append times, so a gateway
	// whose clock is off by more than a minute must not write any.
	Ahead func() (time.Duration, bool)
	// Maintains reports whether this gateway holds the maintenance lease at this
	// moment, and its term: retention asks it before each write. nil: it does
	// always, and there are no terms.
	Maintains func() (term uint64, held bool)
	// Fresh reports whether this gateway's membership is renewed at this moment.
	// nil: it always is.
	Fresh func() bool
	// Others are the other gateways; nil: there never is one.
	Others Others
	// Format is the version of stored values that may be written now; nil: the
	// newest. Transactions are FormatTransactions.
	Format func() int
	// Missing is told the topic of a partition whose stream or record the store
	// denies; it must not block. nil: nobody is told.
	Missing func(topic string)
	// Subjects matches the subjects of all partitions, e.g. kafka.>; with it many
	// partitions that are waited for are checked by one listing. "" asks for
	// each.
	Subjects   string
	Logger     *slog.Logger // nil: nothing is logged
	Registerer prometheus.Registerer
}

// Host is all partitions of a gateway. Its goroutines live until Run ends or
// Stop is called.
type Host struct {
	store   pubsub.Store
	records pubsub.Table
	gateway string
	writer  string // unique per host, a token
	clock   func() time.Time
	ahead   func() (time.Duration, bool)
	// maintains is Env.Maintains, or nil.
	maintains func() (term uint64, held bool)
	gone      func(topic string) // Env.Missing, or nil
	others    Others
	format    func() int
	fresh     func() bool
	witness   pubsub.Witness
	list      string // filter of all partitions' subjects
	log       *slog.Logger
	metrics   *metrics
	cache     *cache
	memo      *memo
	payload   int // largest message of the store, headers included
	largest   int // largest batch that can be stored
	appends   atomic.Uint64
	// queueBytes is shared by slow partitions, see share.go.
	queueBytes int
	slow       atomic.Int32
	// snapshotSlots bounds how many snapshots are written at the same time.
	snapshotSlots chan struct{}
	listing       atomic.Bool // checkAll runs
	copies        copies
	moveSlots     chan struct{} // one per question of unlessMoved
	sibling       siblingSizes
	trimStep      int64 // bytes; tests have fewer
	stretch       int64 // bytes of what a rewrite reads or passes over; tests have fewer

	ctx  context.Context
	stop context.CancelFunc
	wg   sync.WaitGroup // what spawn started

	mu         sync.Mutex // guards: all below
	closed     bool
	partitions map[partitionKey]*Partition
	byRecord   map[string]*Partition // by record key
}

type partitionKey struct {
	id types.TopicID
	n  int32
}

// StorageRoom is what a message needs beside the batches in it: the largest
// batch that can be stored is the store's MaxPayload less this.
const StorageRoom = 4096

const (
	defaultCacheBytes = 64 << 20
	memoBytes         = 16 << 20
)

// NewHost makes a host. Nothing is sent until partitions are used.
func NewHost(e Env) *Host {
	h := &Host{
		store: e.Store, records: e.Records, gateway: e.Gateway, clock: e.Clock, ahead: e.Ahead, maintains: e.Maintains, gone: e.Missing, others: e.Others, format: e.Format, fresh: e.Fresh, list: e.Subjects, log: e.Logger,
		writer:        strings.ToLower(rand.Text()[:10]),
		partitions:    map[partitionKey]*Partition{},
		byRecord:      map[string]*Partition{},
		snapshotSlots: make(chan struct{}, 4),
		moveSlots:     make(chan struct{}, 16),
		memo:          newMemo(memoBytes),
		sibling:       siblingSizes{siblingTarget, partSpan},
		trimStep:      trimStep,
		stretch:       rewriteRead,
	}
	if h.clock == nil {
		h.clock = time.Now
	}
	if h.log == nil {
		h.log = slog.New(slog.DiscardHandler)
	}
	if e.CacheBytes <= 0 {
		e.CacheBytes = defaultCacheBytes
	}
	h.cache = newCache(e.CacheBytes)
	if h.queueBytes = e.QueueBytes; h.queueBytes <= 0 {
		h.queueBytes = defaultQueueBytes
	}
	h.payload = e.Store.Info().MaxPayload
	h.largest = h.payload - StorageRoom
	h.metrics = newMetrics(e.Registerer, h)
	h.ctx, h.stop = context.WithCancel(context.Background())
	return h
}

// OpenSpec names a partition of one incarnation of a topic.
type OpenSpec struct {
	Topic     string // true name, for messages
	ID        types.TopicID
	Partition int32
	Log       pubsub.Log
	Config    Config
}

// FormatTransactions is the version of stored values from which on batches of
// transactions and markers may be stored: what wrote it before does not know what a
// committed reader must not see.
const FormatTransactions = 2

// FormatCompaction is the version of stored values from which on logs may be
// compacted: what wrote records before it does not know that offsets may be in
// another stream.
const FormatCompaction = 3

// transactions reports whether transactions may be stored.
func (h *Host) transactions() bool { return h.format == nil || h.format() >= FormatTransactions }

// Open returns the partition, the same one for the same id and number. It is
// cheap: nothing is sent. A partition that is open already keeps its
// configuration; Configure changes it.
func (h *Host) Open(o OpenSpec) *Partition {
	k := partitionKey{o.ID, o.Partition}
	h.mu.Lock()
	defer h.mu.Unlock()
	if p := h.partitions[k]; p != nil {
		return p
	}
	p := &Partition{
		host: h, topic: o.Topic, id: o.ID, n: o.Partition, idTxt: o.ID.String(),
		key: recordKey(o.ID, o.Partition), log: o.Log, queued: make(chan struct{}, 1),
	}
	p.config.Store(&o.Config)
	h.partitions[k] = p
	h.byRecord[p.key] = p
	return p
}

// Find returns an open partition, or nil.
func (h *Host) Find(id types.TopicID, n int32) *Partition {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.partitions[partitionKey{id, n}]
}

// Close forgets a partition, because its topic was deleted: what is queued and
// what comes later gets UNKNOWN_TOPIC_OR_PARTITION. It is no error if it is not
// open.
func (h *Host) Close(id types.TopicID, n int32) {
	k := partitionKey{id, n}
	h.mu.Lock()
	p := h.partitions[k]
	if p != nil {
		delete(h.partitions, k)
		delete(h.byRecord, p.key)
	}
	h.mu.Unlock()
	if p != nil {
		h.forget(p.log.Name())
		p.close()
	}
}

func (p *Partition) close() {
	p.mu.Lock()
	p.closed = true
	p.cancelParkedLocked()
	p.unloadLocked()
	p.wakeLocked()
	p.mu.Unlock()
	p.unfollow()
}

// Run watches the partition records and does the background work. When ctx ends
// it stops everything: what is still queued fails, so call Drain before.
func (h *Host) Run(ctx context.Context) error {
	defer h.Stop()
	watched := make(chan error, 1)
	wctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if !h.spawn(func() {
		watched <- h.records.Watch(wctx, pubsub.WatchOptions{Patterns: []string{"*.*"}}, h.recordChanged)
	}) {
		return errClosed
	}
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			cancel()
			<-watched
			return nil
		case err := <-watched:
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("watch partition records: %w", err)
		case <-h.ctx.Done():
			cancel()
			<-watched
			return nil
		case <-t.C:
			h.tick()
		}
	}
}

// Stop ends all goroutines and waits for them. Nothing works afterwards.
func (h *Host) Stop() {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	h.stop()
	for _, p := range h.all() {
		p.unfollow()
	}
	h.wg.Wait()
}

// spawn runs fn in a goroutine that Stop waits for. It returns false, and does
// nothing, after Stop.
func (h *Host) spawn(fn func()) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false
	}
	h.wg.Go(fn)
	return true
}

func (h *Host) recordChanged(v pubsub.Value) error {
	h.mu.Lock()
	p := h.byRecord[v.Key]
	h.mu.Unlock()
	if p == nil || v.Deleted {
		return nil
	}
	r, err := parseRecord(v.Data)
	if err != nil {
		h.warn(p, "partition record cannot be read", err)
		return nil
	}
	p.takeRecord(r, v.Rev)
	return nil
}

// listAbove is the number of partitions from which on one listing of all
// streams is cheaper than a question for each.
const listAbove = 16

func (h *Host) tick() {
	now := h.clock()
	h.tickCopies(now)
	h.watch(now)
	var check []*Partition
	for _, p := range h.all() {
		if p.tick(now) {
			check = append(check, p)
		}
	}
	if len(check) <= listAbove || h.list == "" {
		for _, p := range check {
			p.refresh()
		}
		return
	}
	if h.listing.CompareAndSwap(false, true) && !h.spawn(func() {
		defer h.listing.Store(false)
		h.checkAll(check)
	}) {
		h.listing.Store(false)
	}
}

// checkAll compares what partitions know with one listing of the store. Those
// that are behind, or not in it, are asked for one by one.
func (h *Host) checkAll(ps []*Partition) {
	ctx, cancel := context.WithTimeout(h.ctx, 2*askTimeout)
	defer cancel()
	type known struct {
		seq  pubsub.Seq
		lost int
	}
	before := make([]known, len(ps))
	for i, p := range ps {
		p.mu.Lock()
		if p.st != nil {
			before[i] = known{p.st.seq, p.follow.lost}
		}
		p.mu.Unlock()
	}
	logs, _, err := h.Logs(ctx, h.list)
	if err != nil {
		logs = nil
	}
	bounds := make(map[string]pubsub.Bounds, len(logs))
	for _, l := range logs {
		bounds[l.Name] = l.Bounds
	}
	for i, p := range ps {
		if b, ok := bounds[p.log.Name()]; ok && b.Last == before[i].seq {
			p.mu.Lock()
			p.replicas = b.Replicas
			p.checked = h.clock()
			if p.follow.begun && p.follow.lost == before[i].lost && p.st != nil {
				p.follow.sure = true
			}
			p.mu.Unlock()
			continue
		}
		p.refresh()
	}
}

// clockOff is an error while our clock is too far from the store's.
func (h *Host) clockOff() error {
	if h.ahead == nil {
		return nil
	}
	d, known := h.ahead()
	if !known || d.Abs() <= maxClockOff {
		return nil
	}
	return fmt.Errorf("this gateway's clock is %v ahead of the store's; at most %v is allowed: %w", d, maxClockOff, pubsub.ErrUnavailable)
}

// maxClockOff is how far our clock may be from the store's to append.
const maxClockOff = time.Minute

// Drain waits until everything submitted was answered and writes the snapshots
// that are due. Call it when no more produce requests can come.
func (h *Host) Drain(ctx context.Context) error {
	for {
		busy := false
		for _, p := range h.all() {
			p.mu.Lock()
			busy = busy || p.appending || len(p.parked) > 0 || p.unparking > 0
			p.mu.Unlock()
		}
		if !busy {
			break
		}
		if !sleep(ctx, 5*time.Millisecond) {
			return ctx.Err()
		}
	}
	for _, p := range h.all() {
		for {
			p.mu.Lock()
			running, due := p.snap.running, p.snap.mine && p.snap.messages > 0 && p.stop == nil
			p.mu.Unlock()
			if !running && !due {
				break
			}
			done := make(chan struct{})
			if !running {
				if !p.startSnapshot(func() { close(done) }) {
					break
				}
				select {
				case <-done:
				case <-ctx.Done():
					return ctx.Err()
				}
				break
			}
			if !sleep(ctx, 5*time.Millisecond) {
				return ctx.Err()
			}
		}
	}
	return nil
}

// all lists the open partitions. p.mu may be held when h.mu is taken, never the
// other way round.
func (h *Host) all() []*Partition {
	h.mu.Lock()
	defer h.mu.Unlock()
	ps := make([]*Partition, 0, len(h.partitions))
	for _, p := range h.partitions {
		ps = append(ps, p)
	}
	return ps
}

// appendID makes the id of one append: the writer and a number.
func (h *Host) appendID() string {
	var b [32]byte
	s := append(b[:0], h.writer...)
	s = append(s, '.')
	return string(strconv.AppendUint(s, h.appends.Add(1), 36))
}

// wrote reports whether this host made an append id.
func (h *Host) wrote(id string) bool { return strings.HasPrefix(id, h.writer) }

// missing says that the store knows nothing of a partition.
func (h *Host) missing(p *Partition) {
	if h.gone != nil {
		h.gone(p.topic)
	}
}

func (h *Host) warn(p *Partition, msg string, err error) {
	h.log.LogAttrs(h.ctx, slog.LevelWarn, msg, slog.String(logging.Topic, p.topic), slog.Int(logging.Partition, int(p.n)), slog.Any(logging.Error, err))
}

func (h *Host) alarm(p *Partition, msg string, err error) {
	h.log.LogAttrs(h.ctx, slog.LevelError, msg, slog.String(logging.Topic, p.topic), slog.Int(logging.Partition, int(p.n)), slog.Any(logging.Error, err))
}

// CreateSpec asks for the store's side of one partition.
type CreateSpec struct {
	ID        types.TopicID
	Partition int32
	Log       pubsub.LogConfig
}

// Create makes the log and its partition record. It is idempotent: what exists
// of this very incarnation already is kept. ErrExists: the log's name or
// subject belongs to something else.
func (h *Host) Create(ctx context.Context, s CreateSpec) error {
	if err := h.store.CreateLog(ctx, s.Log); err != nil {
		return fmt.Errorf("create partition %s.%d: %w", s.ID, s.Partition, err)
	}
	r := &record{V: recordVersion, Stream: s.Log.Name, First: 1}
	b, err := r.encode()
	if err != nil {
		return err
	}
	key := recordKey(s.ID, s.Partition)
	_, err = pubsub.Put(ctx, h.records, pubsub.Write{Key: key, Data: b})
	if errors.Is(err, pubsub.ErrConflict) {
		v, gerr := h.records.Get(ctx, key)
		if gerr != nil {
			return fmt.Errorf("create partition record %s: %w", key, gerr)
		}
		old, perr := parseRecord(v.Data)
		if perr == nil && old.Stream == s.Log.Name {
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("create partition record %s: %w", key, err)
	}
	return nil
}

// DestroySpec names the store's side of one partition.
type DestroySpec struct {
	ID        types.TopicID
	Partition int32
	Log       string // the stream's name: one incarnation
}

// Destroy deletes log, partition record and snapshots. It is idempotent, and
// works for a partition that was only half created. The record's key gets a
// delete marker even if it was never written: a Create that is on its way finds
// it and fails.
func (h *Host) Destroy(ctx context.Context, s DestroySpec) error {
	h.Close(s.ID, s.Partition)
	if err := h.store.DeleteLog(ctx, s.Log); err != nil && !errors.Is(err, pubsub.ErrNotFound) {
		return fmt.Errorf("destroy partition %s.%d: %w", s.ID, s.Partition, err)
	}
	if err := h.destroySiblings(ctx, recordKey(s.ID, s.Partition), s.Log); err != nil {
		return fmt.Errorf("destroy partition %s.%d: %w", s.ID, s.Partition, err)
	}
	// Others may be at it as well: then what we wanted to delete is gone.
	var err error
	for range 3 {
		if err = h.destroyKeys(ctx, recordKey(s.ID, s.Partition)); !errors.Is(err, pubsub.ErrConflict) {
			break
		}
	}
	return err
}

// destroyKeys deletes a partition record and all keys under it. Topic ids are
// never used again: every such key belongs to the incarnation that goes.
func (h *Host) destroyKeys(ctx context.Context, key string) error {
	var ws []pubsub.Write
	known := false // the record, or its marker
	err := h.records.Scan(ctx, pubsub.WatchOptions{Patterns: []string{key, key + ".>"}, HeadersOnly: true}, 0, func(v pubsub.Value) error {
		known = known || v.Key == key
		if !v.Deleted {
			ws = append(ws, pubsub.Write{Key: v.Key, Expect: v.Rev, Delete: true})
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("destroy partition %s: list its keys: %w", key, err)
	}
	if !known {
		ws = append(ws, pubsub.Write{Key: key, Delete: true})
	}
	var errs []error
	for i, r := range pubsub.PutAll(ctx, h.records, ws) {
		if r.Err != nil {
			errs = append(errs, fmt.Errorf("destroy partition %s: delete %s: %w", key, ws[i].Key, r.Err))
		}
	}
	return errors.Join(errs...)
}

// Status describes the partition to operators, from the leader.
func (p *Partition) Status(ctx context.Context) (Status, error) {
	err := p.sync(ctx)
	b, berr := p.leaderBounds(ctx)
	if berr != nil {
		return Status{}, p.missingLog(berr)
	}
	s := Status{
		Messages: b.Messages, Bytes: b.Bytes, FirstSeq: uint64(b.First), LastSeq: uint64(b.Last),
		Replicas: b.Replicas, InSync: b.InSync, Offline: b.Offline, StoreLeader: b.Leader, Start: types.NoOffset, End: types.NoOffset, LastStable: types.NoOffset,
		Stopped: p.stopMessage(),
	}
	p.mu.Lock()
	m := p.clean
	p.mu.Unlock()
	if m != nil {
		// The partition has no more copies than what is compacted of it.
		switch c, err := p.siblingLog(m.Stream).Bounds(ctx); {
		case err == nil:
			s.InSync, s.Offline = min(s.InSync, c.InSync), max(s.Offline, c.Offline)
		case !errors.Is(err, pubsub.ErrNotFound): // which one is that was replaced meanwhile
			s.InSync = 0
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.st != nil {
		s.Start, s.End, s.LastStable = p.start, p.st.next, max(p.start, p.st.lastStable())
		_, s.OpenFor = p.st.oldestOpen(p.host.clock())
	}
	if p.clean != nil {
		s.Bytes += uint64(p.clean.Bytes)
	}
	if s.Stopped != "" {
		return s, nil
	}
	return s, err
}
