package partition

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/types"
)

// record is the partition record, key `{topic id}.{N}` of the records table:
// what must not be derived from the stream alone. first, base and start only
// grow.
type record struct {
	V      int          `json:"v"`
	Stream string       `json:"stream"`
	First  pubsub.Seq   `json:"first"` // first sequence that is part of the log
	Base   types.Offset `json:"base"`  // its base offset
	Start  types.Offset `json:"start"` // log start
	// Snapshot is the newest one; nil before the first.
	Snapshot *head     `json:"snapshot,omitempty"`
	Stop     *stopInfo `json:"stop,omitempty"`
	// Resume are the breaks that operators have accepted; Repaired (ms) grows
	// with every repair, whatever revision the record has.
	Resume   cuts  `json:"resume,omitempty"`
	Repaired int64 `json:"repaired,omitempty"`
	// Term is that of the maintenance lease under which this partition is
	// maintained, see maintain.go; 0 before retention had anything to do.
	Term uint64 `json:"term,omitempty"`
	// Clean says what holds the offsets below Base, down to Start; nil: nothing
	// does. Run is a rewrite under way, Runs how many have begun: without any there
	// are no siblings. Want is the offset below which an operator asked for
	// compaction, 0: nobody did.
	Clean *manifest    `json:"clean,omitempty"`
	Run   *cleanRun    `json:"run,omitempty"`
	Runs  uint64       `json:"runs,omitempty"`
	Want  types.Offset `json:"want,omitempty"`

	// rest are fields of later versions, carried through.
	rest map[string]json.RawMessage
}

// head names a snapshot. It counts only if message Seq carries append id ID, or
// was purged as First says.
type head struct {
	Seq    pubsub.Seq `json:"seq"`
	ID     string     `json:"id"`
	Chunks []string   `json:"chunks"` // keys, in order
}

// stopInfo says why a partition was stopped. All gateways obey it until an
// operator repairs the partition.
type stopInfo struct {
	Kind   string     `json:"kind"` // gap, order, header, back
	Seq    pubsub.Seq `json:"seq"`
	Why    string     `json:"why"`
	Finder string     `json:"finder"` // gateway
	At     time.Time  `json:"at"`
}

const recordVersion = 1

var knownFields = []string{"v", "stream", "first", "base", "start", "snapshot", "stop", "resume", "repaired", "term", "clean", "run", "runs", "want"}

func parseRecord(b []byte) (*record, error) {
	r := &record{}
	if err := json.Unmarshal(b, r); err != nil {
		return nil, fmt.Errorf("partition record: %w", err)
	}
	if r.V != recordVersion {
		return nil, fmt.Errorf("partition record v%d: %w", r.V, errUnknownFormat)
	}
	if err := r.Resume.check(); err != nil {
		return nil, fmt.Errorf("partition record: %w", err)
	}
	if r.Clean != nil {
		if err := r.Clean.check(); err != nil {
			return nil, fmt.Errorf("partition record: %w", err)
		}
	}
	if err := json.Unmarshal(b, &r.rest); err != nil {
		return nil, fmt.Errorf("partition record: %w", err)
	}
	for _, k := range knownFields {
		delete(r.rest, k)
	}
	return r, nil
}

func (r *record) encode() ([]byte, error) {
	b, err := json.Marshal(r)
	if err != nil || len(r.rest) == 0 {
		return b, err
	}
	all := map[string]json.RawMessage{}
	if err := json.Unmarshal(b, &all); err != nil {
		return nil, err
	}
	for k, v := range r.rest {
		all[k] = v
	}
	return json.Marshal(all)
}

// recordKey is the key of a partition's record. The letters of a topic id are
// those of a token.
func recordKey(id types.TopicID, n int32) string { return fmt.Sprintf("%s.%d", id, n) }

// fetchRecord reads the record from the leader and takes it.
func (p *Partition) fetchRecord(ctx context.Context) (*record, pubsub.Rev, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	v, err := p.host.records.Get(ctx, p.key)
	if err != nil {
		if errors.Is(err, pubsub.ErrNotFound) {
			// An active topic without its partition record is damaged, not empty; or
			// it is not there any more.
			p.host.missing(p)
			err = fmt.Errorf("the partition record is missing (%w)", pubsub.ErrUnavailable)
		}
		return nil, 0, fmt.Errorf("partition %s: read record: %w", p, err)
	}
	r, err := parseRecord(v.Data)
	if err != nil {
		return nil, 0, fmt.Errorf("partition %s: %w", p, err)
	}
	if r.Stream != p.log.Name() {
		return nil, 0, fmt.Errorf("partition %s: the record names stream %s, not %s (%w)", p, r.Stream, p.log.Name(), pubsub.ErrUnavailable)
	}
	p.takeRecord(r, v.Rev)
	return r, v.Rev, nil
}

// takeRecord takes what the watch or a read of the record brought.
func (p *Partition) takeRecord(r *record, rev pubsub.Rev) {
	p.mu.Lock()
	defer p.mu.Unlock()
	// A repair counts even if the table was restored from an older copy and its
	// revisions went back.
	repaired := r.Repaired > p.repaired
	if rev <= p.recordRev && !repaired {
		return
	}
	if p.recordRev > 0 && (r.Start > p.start || r.First != p.first || !sameSibling(r.Clean, p.clean)) {
		p.moves++
	}
	p.recordRev = rev
	if r.Snapshot != nil {
		p.snapshot = r.Snapshot.Seq
	}
	p.start, p.term = max(p.start, r.Start), r.Term
	if r.First > p.first || repaired {
		p.first, p.base = r.First, r.Base
	}
	p.clean, p.run, p.runs, p.want = r.Clean, r.Run, r.Runs, r.Want
	if repaired {
		p.repaired, p.cuts, p.wentBack = r.Repaired, r.Resume, time.Time{}
		p.oldest, p.purge.done = oldest{}, 0
		p.rivals.newest, p.rivals.short = 0, time.Time{}
		p.unloadLocked()
		p.reached = 0
	}
	if (r.Stop != nil) != (p.stop != nil) {
		if r.Stop == nil { // repaired: what we know may be wrong
			p.unloadLocked()
			p.reached = 0
		}
		p.stop = r.Stop
	}
	p.wakeLocked()
}

// updateRecord changes the record by compare-and-set. change returns false if
// nothing is to be done.
func (p *Partition) updateRecord(ctx context.Context, change func(r *record) bool) error {
	for {
		r, rev, err := p.fetchRecord(ctx)
		if err != nil {
			return err
		}
		if !change(r) {
			return nil
		}
		b, err := r.encode()
		if err != nil {
			return err
		}
		rev, err = pubsub.Put(ctx, p.host.records, pubsub.Write{Key: p.key, Data: b, Expect: rev})
		switch {
		case err == nil:
			p.takeRecord(r, rev)
			return nil
		case !errors.Is(err, pubsub.ErrConflict):
			return fmt.Errorf("partition %s: write record: %w", p, err)
		}
	}
}
