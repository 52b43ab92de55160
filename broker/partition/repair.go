package partition

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/types"
)

// RepairEnv is what looking at a partition and mending it needs. No gateway is
// needed, and gateways may run meanwhile.
type RepairEnv struct {
	Store   pubsub.Store
	Records pubsub.Table     // kafka-partitions
	Clock   func() time.Time // nil: time.Now
	// Alone says that no gateway can run meanwhile: no append is on its way.
	Alone bool
	// By names who mends, in the note of a stop.
	By string
	// Waiting, if set, is told before AcceptLoss waits for appends in flight.
	Waiting func(d time.Duration)
}

// RepairSpec names one partition, by what its topic's record says.
type RepairSpec struct {
	Topic     string
	ID        types.TopicID
	Partition int32
	Log       pubsub.LogConfig
	// Known is an offset that others have seen the log reach (committed offsets),
	// 0 if none; KnownFrom says where.
	Known     types.Offset
	KnownFrom string
}

// Stop is why a partition was stopped.
type Stop struct {
	Kind     string     `json:"kind"` // gap, order, header, back, lost
	Sequence pubsub.Seq `json:"sequence"`
	Why      string     `json:"why"`
	Finder   string     `json:"finder"` // gateway
	At       time.Time  `json:"at"`
}

// kindCompacted is the stop of a partition of which only compacted records are
// lost.
const kindCompacted = "compacted"

// kindLost is the stop of a partition whose stream or record is missing.
const kindLost = "lost"

// Listed is one partition record.
type Listed struct {
	Key     string // {topic id}.{N}
	Stream  string
	Stop    *Stop  // nil: runs
	Problem string // why the record cannot be read; "" if it can
}

// RecordKey is the key of a partition's record.
func RecordKey(id types.TopicID, partition int32) string { return recordKey(id, partition) }

// ListRecords reads all partition records.
func ListRecords(ctx context.Context, records pubsub.Table) ([]Listed, error) {
	var all []Listed
	err := records.Scan(ctx, pubsub.WatchOptions{Patterns: []string{"*.*"}}, 0, func(v pubsub.Value) error {
		if v.Deleted {
			return nil
		}
		l := Listed{Key: v.Key}
		if r, err := parseRecord(v.Data); err != nil {
			l.Problem = err.Error()
		} else {
			l.Stream, l.Stop = r.Stream, r.Stop.public()
		}
		all = append(all, l)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list partition records: %w", err)
	}
	return all, nil
}

// Strays lists what is kept of partitions whose topic nobody knows, as {topic id}.{N}
// and sorted: records and snapshots that were left, or that are of another cluster.
// Keys that have no such form are listed whole.
func Strays(ctx context.Context, records pubsub.Table, known func(types.TopicID) bool) ([]string, error) {
	found := map[string]bool{}
	err := records.Scan(ctx, pubsub.WatchOptions{HeadersOnly: true}, 0, func(v pubsub.Value) error {
		if v.Deleted {
			return nil
		}
		key := v.Key
		if f := strings.SplitN(v.Key, ".", 3); len(f) > 1 {
			if id, err := types.ParseTopicID(f[0]); err == nil {
				if known(id) {
					return nil
				}
				key = f[0] + "." + f[1]
			}
		}
		found[key] = true
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list the keys of partitions: %w", err)
	}
	return slices.Sorted(maps.Keys(found)), nil
}

func (s *stopInfo) public() *Stop {
	if s == nil {
		return nil
	}
	return &Stop{s.Kind, s.Seq, s.Why, s.Finder, s.At}
}

// Report is what is known of one partition.
type Report struct {
	Topic     string        `json:"topic"`
	Partition int32         `json:"partition"`
	TopicID   types.TopicID `json:"topic_id"`
	Stream    string        `json:"stream"`
	Subject   string        `json:"subject"`
	// Trouble lists what is wrong; empty if nothing is.
	Trouble []string `json:"trouble"`
	Stop    *Stop    `json:"stop,omitempty"`
	Lost    []string `json:"lost,omitempty"` // of stream and record, what is missing

	FirstSequence pubsub.Seq   `json:"first_sequence"`
	LastSequence  pubsub.Seq   `json:"last_sequence"`
	Messages      uint64       `json:"messages"`
	LogStart      types.Offset `json:"log_start"`
	Breaks        int          `json:"breaks"` // accepted in earlier repairs
	// Snapshot says what the record's snapshot is worth.
	Snapshot string `json:"snapshot"`
	// Around describes the messages beside the sequence in question.
	Around []MessageFact `json:"around"`
	// Next is the offset after the last message that fits; Highest is above every
	// offset known from anywhere.
	Next        types.Offset `json:"next"`
	Highest     types.Offset `json:"highest"`
	HighestFrom string       `json:"highest_from"`
	// Remedies are what can be done and what each does; none without trouble.
	Remedies []Remedy `json:"remedies"`
	// Done says what AcceptLoss did; "" from Survey.
	Done string `json:"done,omitempty"`
}

// MessageFact is one stored message, or a hole.
type MessageFact struct {
	Sequence pubsub.Seq `json:"sequence"`
	What     string     `json:"what"`
}

// Remedy is one way out.
type Remedy struct {
	Name   string `json:"name"`
	Effect string `json:"effect"`
}

// ErrHealthy is returned by AcceptLoss for a partition that has no trouble.
var ErrHealthy = errors.New("nothing is wrong with this partition")

// Survey looks at a partition and changes nothing. It reads the headers of the
// log from the last snapshot that counts and lies before the trouble, which may
// be all of them.
func Survey(ctx context.Context, e RepairEnv, spec RepairSpec) (*Report, error) {
	s, err := newSurvey(ctx, &e, spec)
	if err != nil {
		return nil, err
	}
	return s.report(ctx)
}

func newSurvey(ctx context.Context, e *RepairEnv, spec RepairSpec) (*survey, error) {
	s := &survey{spec: spec, idText: spec.ID.String()}
	if err := s.run(ctx, e); err != nil {
		return nil, fmt.Errorf("partition %s-%d: %w", spec.Topic, spec.Partition, err)
	}
	return s, nil
}

// settle is how long after a stop appends may still be on their way: a gateway
// gives up before.
const settle = giveUp + ackTimeout

// AcceptLoss makes a partition in trouble serve again with what is left of it.
// It stops the partition if no gateway has, waits until appends in flight are
// over, then writes the breaks into the record by compare-and-set: what cannot
// be read or does not continue the log is left out, and the log goes on at an
// offset far beyond every one known, so that none is used twice. If everything
// that was missing is there again it only lifts the stop. ErrHealthy if there is
// no trouble; pubsub.ErrConflict if others keep changing the record.
func AcceptLoss(ctx context.Context, e RepairEnv, spec RepairSpec) (*Report, error) {
	if e.Clock == nil {
		e.Clock = time.Now
	}
	key := recordKey(spec.ID, spec.Partition)
	var done string
	waited := false
	for range 10 {
		s, err := newSurvey(ctx, &e, spec)
		if err != nil {
			return nil, err
		}
		trouble := s.trouble()
		if len(trouble) == 0 {
			return nil, ErrHealthy
		}
		r := s.r
		if r == nil {
			r = &record{V: recordVersion, Stream: spec.Log.Name, First: max(s.b.First, 1), Base: s.firstBase, Start: s.firstBase}
		}
		switch {
		case r.Stop == nil:
			r.Stop = s.newStop(e, trouble)
			done, waited = "", false
		case !waited && !e.Alone && e.Clock().Sub(r.Stop.At) < settle:
			// Our clock may differ from the finder's: wait no longer than that.
			d := min(settle, settle-e.Clock().Sub(r.Stop.At))
			if e.Waiting != nil {
				e.Waiting(d)
			}
			if !sleep(ctx, d) {
				return nil, ctx.Err()
			}
			waited = true
			continue
		default:
			if done, err = s.mend(ctx, &e, r); err != nil {
				return nil, err
			}
		}
		b, err := r.encode()
		if err != nil {
			return nil, err
		}
		_, err = pubsub.Put(ctx, e.Records, pubsub.Write{Key: key, Data: b, Expect: s.rev})
		switch {
		case errors.Is(err, pubsub.ErrConflict):
			continue
		case err != nil:
			return nil, fmt.Errorf("write record %s: %w", key, err)
		case done == "":
			continue
		}
		rep, err := Survey(ctx, e, spec)
		if err != nil {
			return nil, fmt.Errorf("%s; looking at it again: %w", done, err)
		}
		rep.Done = done
		return rep, nil
	}
	return nil, fmt.Errorf("partition %s-%d: its record keeps changing: %w", spec.Topic, spec.Partition, pubsub.ErrConflict)
}

func (s *survey) newStop(e RepairEnv, trouble []string) *stopInfo {
	st := &stopInfo{Kind: "gap", Seq: s.b.Last, Why: strings.Join(trouble, "; "), Finder: e.By, At: e.Clock().UTC()}
	switch {
	case s.r == nil || !s.stream:
		st.Kind = kindLost
	case len(s.bad) == 0 && !s.snap.last && (!s.snap.there || s.snap.fits) && s.compacted != "":
		st.Kind = kindCompacted
	case len(s.bad) > 0:
		st.Seq = s.bad[0].seq
	case s.snap.last:
		st.Kind, st.Seq = "back", s.r.Snapshot.Seq
	case s.snap.there && !s.snap.fits:
		st.Kind, st.Seq = "order", s.r.Snapshot.Seq
	}
	return st
}

// mend changes the record into the one that resumes.
func (s *survey) mend(ctx context.Context, e *RepairEnv, r *record) (done string, err error) {
	left := "nothing was left out"
	if s.compacted != "" {
		left = fmt.Sprintf("the log begins at offset %d", s.compactedFrom)
		if r.Start = max(r.Start, s.compactedFrom); r.Start >= r.Clean.X {
			r.Clean = nil // its stream is removed by whoever compacts next
		}
	}
	if s.healed() {
		r.Stop = nil
		r.Repaired = max(r.Repaired+1, e.Clock().UnixMilli())
		return "the stop was lifted; " + left, nil
	}
	base := resumeAt(s.highest)
	if !s.stream {
		if err := e.Store.CreateLog(ctx, s.spec.Log); err != nil {
			return "", fmt.Errorf("make stream %s: %w", s.spec.Log.Name, err)
		}
		r.First, r.Base, r.Snapshot = 1, 0, nil
		if r.Clean != nil {
			r.Base = r.Clean.X
		}
	}
	r.Resume = s.resume(base)
	if err := r.Resume.check(); err != nil {
		return "", fmt.Errorf("partition %s-%d: no breaks explain this log: %w", s.spec.Topic, s.spec.Partition, err)
	}
	if h := r.Snapshot; h != nil && (!s.snap.fits || h.Seq >= r.Resume[s.firstNew(r)].From) {
		r.Snapshot = nil
	}
	r.Stop = nil
	r.Repaired = max(r.Repaired+1, e.Clock().UnixMilli())
	return fmt.Sprintf("the log goes on at offset %d after sequence %d", base, r.Resume[len(r.Resume)-1].To), nil
}

// firstNew is the index of the first break that the record did not have.
func (s *survey) firstNew(r *record) int {
	for i, c := range r.Resume {
		if s.r == nil || i >= len(s.before) || s.before[i] != c {
			return i
		}
	}
	return len(r.Resume) - 1
}

// resumeAt is a round offset, at least ten billion beyond the highest known:
// what was appended since the last snapshot is not known, and nobody appends as
// much between two.
func resumeAt(highest types.Offset) types.Offset {
	const round, far = 1_000_000_000, 10_000_000_000
	return (highest + far + round - 1) / round * round
}

// trouble lists what is wrong, in words.
func (s *survey) trouble() []string {
	t := []string{}
	if st := s.stopped(); st != nil {
		t = append(t, fmt.Sprintf("stopped: %s at sequence %d: %s", st.Kind, st.Seq, st.Why))
	}
	if s.r == nil {
		t = append(t, "the partition record is missing")
	}
	if !s.stream {
		t = append(t, "the stream is missing")
	}
	if s.snap.last {
		t = append(t, fmt.Sprintf("the stream ends at sequence %d, its snapshot is of %d", s.b.Last, s.r.Snapshot.Seq))
	} else if s.stream && s.snap.there && !s.snap.fits && !strings.HasPrefix(s.snap.why, errSnapshotLost.Error()) {
		t = append(t, "the snapshot is not of this log: "+s.snap.why)
	}
	if s.compacted != "" {
		t = append(t, s.compacted)
	}
	for i, b := range s.bad {
		if i == 10 {
			t = append(t, fmt.Sprintf("%d more", len(s.bad)-i))
			break
		}
		t = append(t, fmt.Sprintf("sequence %d: %s", b.seq, b.why))
	}
	return t
}

func (s *survey) report(ctx context.Context) (*Report, error) {
	rep := &Report{
		Topic: s.spec.Topic, Partition: s.spec.Partition, TopicID: s.spec.ID, Stream: s.spec.Log.Name, Subject: s.spec.Log.Subject,
		Trouble: s.trouble(), Stop: s.stopped().public(), FirstSequence: s.b.First, LastSequence: s.b.Last, Messages: s.b.Messages,
		Next: s.next, Highest: s.highest, HighestFrom: s.highestFrom, Remedies: []Remedy{}, Around: []MessageFact{}, Snapshot: "none",
	}
	if s.pending != nil {
		rep.Next = s.pending.Next
	}
	if s.r == nil {
		rep.Lost = append(rep.Lost, "record")
	} else {
		rep.LogStart, rep.Breaks = s.r.Start, len(s.r.Resume)
		if h := s.r.Snapshot; h != nil {
			rep.Snapshot = fmt.Sprintf("of sequence %d: %s", h.Seq, s.snap.words())
		}
	}
	if !s.stream {
		rep.Lost = append(rep.Lost, "stream")
	}
	if len(rep.Trouble) == 0 {
		return rep, nil
	}
	rep.Remedies = s.remedies()
	return rep, s.around(ctx, rep)
}

func (f *snapshotFact) words() string {
	switch {
	case f.fits && f.why == "":
		return fmt.Sprintf("it is of this log; the next offset was %d", f.next)
	case f.next > 0:
		return fmt.Sprintf("%s; the next offset was %d", f.why, f.next)
	}
	return f.why
}

// around describes what stands beside the sequence in question.
func (s *survey) around(ctx context.Context, rep *Report) error {
	if !s.stream {
		return nil
	}
	var at pubsub.Seq
	switch st := s.stopped(); {
	case st != nil && st.Kind != kindLost:
		at = st.Seq
	case len(s.bad) > 0:
		at = s.bad[0].seq
	default:
		at = s.b.Last
	}
	from := max(at, 2) - 1
	for seq := max(from, 1); seq <= at+1; seq++ {
		f := MessageFact{Sequence: seq}
		m, err := s.log.Get(ctx, seq)
		switch {
		case errors.Is(err, pubsub.ErrNotFound) && seq > s.b.Last:
			f.What = "beyond the end of the stream"
		case errors.Is(err, pubsub.ErrNotFound):
			f.What = "nothing"
		case err != nil:
			return fmt.Errorf("read %s at sequence %d: %w", s.spec.Log.Name, seq, err)
		default:
			f.What = s.describe(&m)
		}
		rep.Around = append(rep.Around, f)
	}
	return nil
}

func (s *survey) describe(m *pubsub.Message) string {
	d, err := decodeHeader(s.idText, m)
	at := m.Time.UTC().Format(time.RFC3339Nano)
	switch {
	case err != nil:
		return fmt.Sprintf("ours, stored %s, unreadable: %v", at, err)
	case d.plain:
		return fmt.Sprintf("of a plain NATS publisher, stored %s, %d bytes", at, m.Size)
	}
	return fmt.Sprintf("ours, stored %s, offsets %d to %d, append id %s after %s", at, d.base, d.last, d.id, quote(d.prev))
}

// remedies says what can be done.
func (s *survey) remedies() []Remedy {
	compacted := ""
	if s.compacted != "" {
		compacted = fmt.Sprintf("The compacted records below offset %d are lost: the log begins there. ", s.compactedFrom)
	}
	if s.healed() || s.stopped() == nil && s.sound() {
		if compacted != "" {
			return []Remedy{{"restore the stream " + s.r.Clean.Stream, "From a backup of it: nothing is lost."}, {"--accept-loss", compacted + "Nothing else is left out, no offset changes."}}
		}
		return []Remedy{{"--accept-loss", "Everything that was missing is there again: lifts the stop. No offset changes, nothing is left out."}}
	}
	var rs []Remedy
	switch {
	case !s.stream:
		rs = append(rs, Remedy{"restore the stream", "From a backup that holds everything up to the newest message: nothing is lost. An older one stops the partition again."})
	case s.r == nil:
		rs = append(rs, Remedy{"restore the bucket", "From a backup that holds the partition record: nothing is lost."})
	case s.wentBack():
		rs = append(rs, Remedy{"restore a newer copy of the stream", fmt.Sprintf("One that holds sequence %d: nothing is lost. Then --accept-loss only lifts the stop.", max(s.r.Stop.seq(), s.r.Snapshot.seq()))})
	}
	base := resumeAt(s.highest)
	r := s.resume(base)
	last := r[len(r)-1]
	var b strings.Builder
	b.WriteString(compacted)
	if !s.stream {
		fmt.Fprintf(&b, "Makes the stream anew, empty: all records are lost. ")
	}
	added := s.found
	for i, c := range added {
		if i == 10 {
			fmt.Fprintf(&b, "And %d more. ", len(added)-i)
			break
		}
		if c.To >= c.From {
			fmt.Fprintf(&b, "Leaves out %s. ", sequences(c.From, c.To))
		}
		if c.Base > c.Next {
			fmt.Fprintf(&b, "Offsets %d to %d are lost; readers there go on at %d. ", c.Next, c.Base-1, c.Base)
		}
	}
	if last.To >= last.From {
		fmt.Fprintf(&b, "Leaves out %s. ", sequences(last.From, last.To))
	}
	if s.leftOut > 0 {
		fmt.Fprintf(&b, "Messages there that exist (at most %d) stay in the stream and are not served. ", s.leftOut)
	}
	if n := s.b.Last - last.To; s.stream && s.b.Last > last.To {
		fmt.Fprintf(&b, "The %d messages of plain publishers after sequence %d get offsets from %d on. ", n, last.To, base)
	}
	if last.Next > 0 && s.stream {
		fmt.Fprintf(&b, "What is left below offset %d stays readable. ", last.Next)
	}
	fmt.Fprintf(&b, "New records begin at offset %d; the highest known is %d (%s). Readers at offsets between go on there. No offset is used twice.", base, s.highest-1, s.highestFrom)
	return append(rs, Remedy{"--accept-loss", b.String()})
}

func sequences(from, to pubsub.Seq) string {
	if from == to {
		return fmt.Sprintf("sequence %d", from)
	}
	return fmt.Sprintf("sequences %d to %d", from, to)
}

func (s *stopInfo) seq() pubsub.Seq {
	if s == nil {
		return 0
	}
	return s.Seq
}

func (h *head) seq() pubsub.Seq {
	if h == nil {
		return 0
	}
	return h.Seq
}
