package clean

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hanzoai/stream/broker/partition"
	"github.com/hanzoai/stream/logging"
	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/types"
)

const (
	// look is how often it is looked whether an operator asked for something, which
	// costs nothing.
	look = time.Second
	// sweepEvery is how often it is looked for siblings that crashed runs left.
	sweepEvery = 5 * time.Minute
	// firstSweep is when it begins where no topic is compacted.
	firstSweep = time.Minute
	// giveUp is the longest rest of a partition whose runs fail.
	giveUp = time.Hour
	// relist is how long the sizes of one listing are gone by.
	relist = 15 * time.Second
	// tiny: a run that read less made and deleted a stream for next to nothing.
	tiny = 1 << 20
	// Tombstones are kept beyond the time from which on they may go, so that one run
	// takes many: where they come all the time, one may go at any time. For a minute
	// at least, for a quarter of the time for which they are kept, and for so many
	// times what the last run took.
	horizonLate  = time.Minute
	horizonShare = 4
	horizonTimes = 20
)

// Compacted is one partition as the Compactor sees it; partition.Partition is the
// real one.
type Compacted interface {
	// Stream is the name of its stream.
	Stream() string
	// Config is what is in force of its topic's settings.
	Config() *partition.Config
	// Clean is what is known of its compaction, without the store.
	Clean() partition.CleanState
	// Compact makes one run: partition.ErrNothing if there is nothing worth doing.
	Compact(ctx context.Context, o partition.CompactOptions) (partition.CompactResult, error)
	// SweepClean removes what crashed runs left; afterwards its state is known.
	SweepClean(ctx context.Context) error
	String() string
}

// Siblings lists logs and deletes siblings of partitions that are gone;
// partition.Host is the real one.
type Siblings interface {
	Store
	// SweepDestroyed removes what was written of partitions after they were
	// destroyed; siblings are on subjects that filter matches.
	SweepDestroyed(ctx context.Context, filter string) error
}

var _ Siblings = (*partition.Host)(nil)

// CompactDeps are what a Compactor works with.
type CompactDeps struct {
	Store Siblings
	// Subjects matches the subjects of all partitions, Siblings those of all
	// siblings.
	Subjects, Siblings string
	// Partitions opens all partitions of the active topics.
	Partitions func() []Compacted
	// Lease is the maintenance lease: whoever holds it compacts.
	Lease Lease
	// Known reports whether all gateways that live know compacted logs.
	Known func() bool
	// Settings are those in force.
	Settings func() Settings
	// Ahead tells how far our clock is ahead of the store's, and whether that is
	// known: without it nothing is compacted.
	Ahead func() (time.Duration, bool)
	// Busy is told when a run begins, true, and when it has ended, false; nil: nobody.
	Busy       func(bool)
	Clock      func() time.Time      // nil: time.Now
	Logger     *slog.Logger          // nil: silent
	Registerer prometheus.Registerer // nil: nobody counts
}

// Compactor compacts partitions, one at a time. Make it with NewCompactor.
type Compactor struct {
	d       CompactDeps
	metrics *compactMetrics

	// held are partitions that are left alone for a while, seen the settings that
	// the last pass went by, both by stream. Only the goroutine of Run touches what
	// is up to the mutex.
	held  map[string]hold
	seen  map[string]partition.Config
	took  map[string]took // of the last run that came to its end, by stream
	many  int             // compacted partitions at the last pass
	swept time.Time
	term  uint64

	mu      sync.Mutex // guards: all below
	state   string     // see State.State
	running *Running
	last    *Last
	failing map[string]Failure // by partition
	retry   map[string]bool    // partitions that are to be tried now if their last run failed
}

// took is how long a run went on, and when it ended.
type took struct {
	ended time.Time
	took  time.Duration
}

// hold leaves a partition alone.
type hold struct {
	name   string
	until  time.Time
	fails  int              // runs in a row
	config partition.Config // another one ends it
	want   types.Offset     // so does an operator
}

// NewCompactor makes a Compactor; nothing happens before Run.
func NewCompactor(d CompactDeps) *Compactor {
	if d.Clock == nil {
		d.Clock = time.Now
	}
	if d.Logger == nil {
		d.Logger = slog.New(slog.DiscardHandler)
	}
	if d.Busy == nil {
		d.Busy = func(bool) {}
	}
	c := &Compactor{d: d, held: map[string]hold{}, took: map[string]took{}, seen: map[string]partition.Config{}, failing: map[string]Failure{}, retry: map[string]bool{}, state: Elsewhere}
	c.metrics = newCompactMetrics(d.Registerer, c)
	return c
}

// Run works until ctx ends.
func (c *Compactor) Run(ctx context.Context) error {
	t := time.NewTicker(look)
	defer t.Stop()
	var rest time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
		if !c.may() {
			rest = time.Time{}
			continue
		}
		if now := c.d.Clock(); now.Before(rest) && !c.asked() {
			continue
		}
		for c.Pass(ctx) && c.may() {
		}
		rest = c.d.Clock().Add(max(c.d.Settings().Backoff, look))
	}
}

// may reports whether it is on this gateway to compact, at this moment.
func (c *Compactor) may() bool {
	state := Idle
	term, held := c.d.Lease.Holds()
	ahead, known := c.d.Ahead()
	switch {
	case !held:
		state = Elsewhere
	case !c.d.Settings().Enabled:
		state = Off
	case !c.d.Known():
		state = OlderGateways
	case !known || ahead.Abs() > skew:
		state = ClockOff
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.retry) > 0 {
		maps.DeleteFunc(c.held, func(_ string, h hold) bool { return h.fails > 0 && c.retry[h.name] })
		clear(c.retry)
	}
	if !held || term != c.term { // others may have come further with what fails here
		clear(c.held)
		clear(c.failing)
		c.term, c.swept = term, time.Time{}
	}
	c.state = state
	return state == Idle
}

// asked reports whether an operator waits for a partition that is not left alone,
// or has changed its settings.
func (c *Compactor) asked() bool { return c.askedBeside("") }

// askedBeside leaves one stream's partition out.
func (c *Compactor) askedBeside(stream string) bool {
	now := c.d.Clock()
	return slices.ContainsFunc(c.d.Partitions(), func(p Compacted) bool {
		cfg, s := p.Config(), p.Clean()
		return p.Stream() != stream && cfg.Compacted && (s.Want > s.X && !c.leftAlone(p, now) || c.seen[p.Stream()] != *cfg)
	})
}

func (c *Compactor) leftAlone(p Compacted, now time.Time) bool {
	h, ok := c.held[p.Stream()]
	return ok && now.Before(h.until) && h.config == *p.Config() && h.want == p.Clean().Want
}

// Pass looks for the partitions that need it most and compacts them, for as long as
// one listing says which and no operator asks for another; it reports whether it
// did.
func (c *Compactor) Pass(ctx context.Context) (did bool) {
	ahead, known := c.d.Ahead()
	if !known {
		return false
	}
	now := c.d.Clock().Add(-ahead) // the store's
	ps := c.d.Partitions()
	c.sweep(ctx, ps)
	var due []candidate
	wall := c.d.Clock()
	clear(c.seen)
	there := map[string]bool{}
	for _, p := range ps {
		if there[p.String()] = true; p.Config().Compacted {
			c.seen[p.Stream()] = *p.Config()
		}
	}
	c.many = len(c.seen)
	c.mu.Lock()
	maps.DeleteFunc(c.failing, func(name string, _ Failure) bool { return !there[name] })
	c.mu.Unlock()
	maps.DeleteFunc(c.took, func(_ string, t took) bool { return wall.Sub(t.ended) > horizonTimes*t.took })
	maps.DeleteFunc(c.held, func(_ string, h hold) bool { return h.fails == 0 && wall.After(h.until) || wall.Sub(h.until) > giveUp })
	ps = slices.DeleteFunc(ps, func(p Compacted) bool { return !p.Config().Compacted || c.leftAlone(p, wall) })
	if len(ps) == 0 {
		return false
	}
	logs, _, err := c.d.Store.Logs(ctx, c.d.Subjects)
	if err != nil {
		if ctx.Err() == nil {
			c.d.Logger.Warn("compaction could not list the streams", logging.Error, err)
		}
		return false
	}
	bounds := make(map[string]pubsub.Bounds, len(logs))
	for _, l := range logs {
		bounds[l.Name] = l.Bounds
	}
	for _, p := range ps {
		b, ok := bounds[p.Stream()]
		if !ok || b.Messages == 0 {
			continue // not there, it could not answer, or nothing was ever stored
		}
		if !p.Clean().Known {
			if err := p.SweepClean(ctx); err != nil {
				c.complain(ctx, p, "the record of a compacted partition could not be read", err)
				continue
			}
		}
		t := c.took[p.Stream()]
		if x, ok := considered(p, b, now, wall.Sub(t.ended) < horizonTimes*t.took); ok {
			due = append(due, x)
		}
	}
	slices.SortStableFunc(due, candidate.compare)
	for i, x := range due {
		if ctx.Err() != nil || !c.may() {
			return false
		}
		if did && (c.d.Clock().Sub(wall) > relist || !x.want && c.asked()) {
			break // others are dirtier by now, or come first
		}
		// One that takes many passes does not hold up others until the last.
		waiting := i+1 < len(due) && (due[i+1].want || !x.want)
		if c.compact(ctx, x, func() bool { return waiting || c.askedBeside(x.p.Stream()) }) {
			did = true
		}
	}
	return did
}

// rest is how long a partition is left alone after there was nothing, or next to
// nothing, to be done: the more there are, the longer, since each costs the store
// requests, and a run a stream. A maximal lag is not late by more than a quarter for it.
func (c *Compactor) rest(cfg *partition.Config) time.Duration {
	long := time.Duration(c.many) * look
	if lag := millis(cfg.MaxLagMillis); lag < math.MaxInt64 {
		long = min(long, lag/4)
	}
	return max(c.d.Settings().Backoff, look, long)
}

// candidate is a partition that may be worth a run.
type candidate struct {
	p     Compacted
	ratio float64 // of what is not compacted to all
	want  bool    // an operator waits
	force bool    // whatever the ratio
	last  time.Time
	// horizon: what may go by now is a reason
	horizon bool
}

// consider decides as Kafka's LogCleanerManager.grabFilthiestCompactedLog does: by
// the ratio, which must exceed the topic's; by the age of what is not compacted,
// which the run itself looks at; and beyond Kafka when an operator asks and when
// tombstones may go at last.
func consider(p Compacted, b pubsub.Bounds, now time.Time) (candidate, bool) {
	return considered(p, b, now, false)
}

// considered is consider; of one that is busy enough without it horizons are no
// reason.
func considered(p Compacted, b pubsub.Bounds, now time.Time, busy bool) (candidate, bool) {
	s, cfg := p.Clean(), p.Config()
	dirty := s.Dirty
	if s.Seq > b.First && b.Last >= b.First { // the stream is not yet cut there
		dirty = int64(float64(b.Bytes) * float64(b.Last+1-min(s.Seq, b.Last+1)) / float64(b.Last+1-b.First))
	} else if dirty < 0 || s.Seq == 0 {
		dirty = int64(b.Bytes)
	}
	x := candidate{p: p, want: s.Want > s.X, last: s.Last}
	// The last message is never compacted.
	fresh := b.Last > max(s.Seq, b.First)
	if fresh && dirty > 0 {
		x.ratio = float64(dirty) / float64(dirty+max(s.Bytes, 0))
	}
	late := max(horizonLate, millis(cfg.DeleteRetentionMillis)/horizonShare)
	x.horizon = !s.Horizon.IsZero() && now.Sub(s.Horizon) >= late && !busy
	x.force = x.want || x.horizon
	aged := fresh && cfg.MaxLagMillis < math.MaxInt64
	return x, x.force || x.ratio > cfg.MinDirtyRatio || aged
}

// compare puts first what operators wait for, of it what was compacted longest ago,
// then the dirtiest.
func (x candidate) compare(y candidate) int {
	if x.want != y.want {
		if x.want {
			return -1
		}
		return 1
	}
	if x.want && !x.last.Equal(y.last) {
		return x.last.Compare(y.last)
	}
	return -cmp.Compare(x.ratio, y.ratio)
}

var (
	errLostLease = errors.New("another gateway holds the maintenance lease")
	errChanged   = errors.New("the topic is not compacted any more")
)

// compact makes a run and reports whether it did something. enough says between two
// passes that others wait.
func (c *Compactor) compact(ctx context.Context, x candidate, enough func() bool) bool {
	ahead, known := c.d.Ahead()
	if !known {
		return false
	}
	p, cfg := x.p, *x.p.Config()
	began := c.d.Clock()
	want := p.Clean().Want
	r := Running{Partition: p.String(), Since: began}
	c.mu.Lock()
	c.running = &r
	c.mu.Unlock()
	c.d.Busy(true)
	defer c.d.Busy(false)
	defer func() { // after what became of it is told: it never looks as if nothing had been done
		c.mu.Lock()
		defer c.mu.Unlock()
		c.running = nil
	}()
	pace := pacer{settings: c.d.Settings, now: c.d.Clock, check: func() error {
		switch {
		case !p.Config().Compacted:
			return errChanged
		case !c.holds():
			return errLostLease
		}
		return nil
	}}
	res, err := p.Compact(ctx, partition.CompactOptions{
		Now: began.Add(-ahead), Ratio: cfg.MinDirtyRatio,
		MinLag: millis(cfg.MinLagMillis), MaxLag: millis(cfg.MaxLagMillis), DeleteRetention: millis(cfg.DeleteRetentionMillis),
		Memory: c.d.Settings().Memory, Pace: pace.pace, Force: x.force, Later: !x.horizon && !x.want, Enough: enough,
		Progress: func(done, of int64) {
			c.mu.Lock()
			r.Done, r.Of = done, of
			c.mu.Unlock()
		},
	})
	if err != nil && !errors.Is(err, partition.ErrNothing) || res.Left {
		c.sweepSoon()
	}
	h := hold{name: p.String(), config: cfg, want: want, fails: c.held[p.Stream()].fails}
	backoff := max(c.d.Settings().Backoff, look)
	var later *partition.TermError
	switch {
	case err == nil:
		// Rewriting the same log all the time is no use, however low its ratio.
		if res.BytesIn < tiny {
			backoff = c.rest(&cfg)
		}
		if res.More && x.want {
			backoff = 0 // when those who wait as well have had their turn
		}
		h.until, h.fails, h.want = c.d.Clock().Add(backoff), 0, p.Clean().Want
		c.held[p.Stream()] = h
		c.took[p.Stream()] = took{c.d.Clock(), c.d.Clock().Sub(began)}
		c.ended(Last{Partition: p.String(), Ended: c.d.Clock(), Took: c.d.Clock().Sub(began), Result: res})
		c.metrics.done(res)
		c.d.Logger.Info("compacted", "partition", p.String(), "upto", int64(res.Upto), "records_in", res.RecordsIn, "records_out", res.RecordsOut,
			"bytes_in", res.BytesIn, "bytes_out", res.BytesOut, "passes", res.Passes, "took", res.Took.Round(time.Millisecond).String())
		return true
	case errors.Is(err, partition.ErrNothing):
		h.until, h.fails = c.d.Clock().Add(c.rest(&cfg)), 0
		c.held[p.Stream()] = h
		c.well(p)
		return false
	case ctx.Err() != nil, errors.Is(err, errLostLease), errors.Is(err, errChanged), errors.Is(err, partition.ErrNotMaintainer), c.gone(p):
		c.metrics.runs.WithLabelValues("given_up").Inc()
		h.until = c.d.Clock().Add(backoff)
		c.held[p.Stream()] = h
		return false
	case errors.As(err, &later):
		if err := c.d.Lease.Outgrow(ctx, later.Term); err != nil && ctx.Err() == nil {
			c.d.Logger.Warn("could not raise the term of the maintenance lease", logging.Error, err)
		}
		return false
	}
	c.metrics.runs.WithLabelValues("failed").Inc()
	h.fails++
	h.until = c.d.Clock().Add(min(backoff<<min(h.fails-1, 12), giveUp))
	c.held[p.Stream()] = h
	c.complain(ctx, p, "compaction failed; it will be tried again", err)
	c.mu.Lock()
	c.failing[p.String()] = Failure{Error: logging.RedactURLs(err.Error()), At: c.d.Clock(), Again: h.until}
	c.mu.Unlock()
	return false
}

// Retry ends the rest of partitions whose last run failed, and forgets why it did:
// an operator who asks for one that could not be compacted wants it tried, not told
// what was wrong before.
func (c *Compactor) Retry(partitions []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range partitions {
		if _, failed := c.failing[p]; failed {
			delete(c.failing, p)
			c.retry[p] = true
		}
	}
}

// gone reports a partition that is not one of the active topics' any more.
func (c *Compactor) gone(p Compacted) bool {
	return !slices.ContainsFunc(c.d.Partitions(), func(x Compacted) bool { return x.Stream() == p.Stream() })
}

func (c *Compactor) holds() bool {
	_, held := c.d.Lease.Holds()
	return held
}

func (c *Compactor) complain(ctx context.Context, p Compacted, what string, err error) {
	if ctx.Err() == nil {
		c.d.Logger.Warn(what, "partition", p.String(), logging.Error, err)
	}
}

// well forgets that a partition failed.
func (c *Compactor) well(p Compacted) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.failing, p.String())
}

func (c *Compactor) ended(l Last) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = &l
	delete(c.failing, l.Partition)
}

// sweepSoon has the next sweep come after a backoff: a run may have left something.
func (c *Compactor) sweepSoon() {
	soon := c.d.Clock().Add(max(c.d.Settings().Backoff, look) - sweepEvery)
	if !c.swept.IsZero() && soon.Before(c.swept) {
		c.swept = soon
	}
}

// sweep has partitions remove the siblings that nobody reads, and what is left of
// partitions that are gone: when the lease comes here, and every so often.
func (c *Compactor) sweep(ctx context.Context, ps []Compacted) {
	now := c.d.Clock()
	if c.swept.IsZero() && !slices.ContainsFunc(ps, func(p Compacted) bool { return p.Config().Compacted }) {
		// Only what was compacted once can have any: there is no hurry.
		c.swept = now.Add(firstSweep - sweepEvery)
	}
	if now.Sub(c.swept) < sweepEvery {
		return
	}
	c.swept = now
	if len(ps) > 0 && !c.sweepSiblings(ctx, ps) {
		c.swept = time.Time{}
		return
	}
	// Of topics that were deleted while somebody wrote, or was frozen over it.
	if err := c.d.Store.SweepDestroyed(ctx, c.d.Siblings); err != nil && ctx.Err() == nil {
		c.d.Logger.Warn("what was written of deleted topics could not be removed; it will be tried again", logging.Error, err)
	}
}

// sweepSiblings does it for partitions that are there; false if it is not known
// what siblings there are.
func (c *Compactor) sweepSiblings(ctx context.Context, ps []Compacted) bool {
	logs, _, err := c.d.Store.Logs(ctx, c.d.Siblings)
	if err != nil {
		if ctx.Err() == nil {
			c.d.Logger.Warn("compaction could not list the siblings", logging.Error, err)
		}
		return false
	}
	siblings := map[string][]string{} // by the stream whose siblings they are
	for _, l := range logs {
		if of, _, ok := strings.Cut(l.Name, siblingMark); ok {
			siblings[of] = append(siblings[of], l.Name)
		}
	}
	for _, p := range ps {
		all := siblings[p.Stream()]
		if len(all) == 0 {
			continue
		}
		if s := p.Clean(); s.Known && s.Running == "" && len(all) == 1 && all[0] == s.Stream {
			continue
		}
		if err := p.SweepClean(ctx); err != nil {
			c.complain(ctx, p, "what a run of compaction left could not be removed; it will be tried again", err)
		}
	}
	return true
}

// siblingMark is what the name of a sibling has behind that of its stream.
const siblingMark = "=k"

// millis is a duration of so many milliseconds, the longest if there is none.
func millis(ms int64) time.Duration {
	if ms > math.MaxInt64/int64(time.Millisecond) {
		return math.MaxInt64
	}
	return time.Duration(ms) * time.Millisecond
}
