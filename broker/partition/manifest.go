package partition

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"sort"
	"strconv"
	"strings"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/types"
)

// cleanRun is a rewrite under way, in the partition record. It is written before
// its sibling is made and taken away, by compare-and-set, before that sibling is
// deleted: whoever would switch to it finds that it is no more.
type cleanRun struct {
	Term   uint64 `json:"term,omitempty"` // of the maintenance lease
	Stream string `json:"stream"`         // the sibling, a name that is never used again
	At     int64  `json:"at"`             // ms, the store's time
}

// manifest says what holds the offsets below X: a sibling, the stream of records
// that a compaction has left. The main stream holds those from X on. Nobody
// changes a manifest in place.
type manifest struct {
	Stream  string       `json:"stream"`
	Last    pubsub.Seq   `json:"last"` // its last sequence; the first was 1
	Records int64        `json:"records"`
	Bytes   int64        `json:"bytes"` // as the store counts them
	First   types.Offset `json:"first"` // where its first message begins
	X       types.Offset `json:"x"`
	Seq     pubsub.Seq   `json:"seq"` // of the main stream's message that begins at X
	// Dirty is where keys begin that may be there more than once: X, or less if the
	// memory for keys did not even last for one message.
	Dirty types.Offset  `json:"dirty"`
	Parts []siblingPart `json:"parts"` // of its index, in order
	Span  int           `json:"span"`  // messages in each of them but the last
	At    int64         `json:"at"`    // ms, the store's time when the run began
	// Since: what lies below Before was stored before that time, ms: the manifest that
	// this one replaced said so, and At says it of the rest. A log that is compacted
	// all the time is not always young to retention.
	Since  int64        `json:"since,omitempty"`
	Before types.Offset `json:"before,omitempty"`
	// Late is by how much delete horizons in it are later, ms: readers see it from the
	// end of its run on.
	Late int64 `json:"late,omitempty"`
	// Horizon is the earliest time, in ms, at which a tombstone or a marker in it
	// may go; 0: there is none.
	Horizon int64 `json:"horizon,omitempty"`
}

// siblingPart is one stored part of a sibling's index: an entry for each of so
// many messages as the manifest says, the last part's for the rest.
type siblingPart struct {
	First   types.Offset `json:"first"` // where its first message begins
	MaxTime int64        `json:"max"`   // the largest timestamp in it, ms; -1 without records
	Bytes   int64        `json:"bytes"` // of its messages' batches
}

// partSpan is the number of messages in one part of the index of a new sibling.
const partSpan = 4096

// tile is one message of a sibling: it stands for the offsets from base to last,
// of which it has those that were left. Tiles follow each other without a gap.
type tile struct {
	seq        pubsub.Seq
	base, last types.Offset
	maxTime    int64 // the largest timestamp of a record in it, ms; -1 without any
	size       int   // bytes of its batches
}

// stored is the time, ms, before which what lies up to an offset was stored.
func (m *manifest) stored(last types.Offset) int64 {
	if last < m.Before {
		return m.Since
	}
	return m.At
}

// ended notes how long its run took, ms; retention is delete.retention.ms. What the
// one before says of itself stays while horizons of that may be ahead.
func (m *manifest) ended(took, retention int64, old *manifest) {
	if m.Late = max(took, 0); old != nil && m.At-old.At < retention+old.Late {
		m.Late = max(m.Late, old.Late)
	}
	if m.Horizon > 0 && m.Horizon <= math.MaxInt64-m.Late {
		m.Horizon += m.Late
	}
}

// follows notes what the manifest before knew: nil, or one of an earlier pass of the
// same run.
func (m *manifest) follows(old *manifest) {
	switch {
	case old == nil:
	case old.At == m.At:
		m.Since, m.Before = old.Since, old.Before
	default:
		m.Since, m.Before = old.At, old.X
	}
}

// check refuses a manifest that cannot be obeyed.
func (m *manifest) check() error {
	if m.Span <= 0 || m.Last == 0 {
		return errors.New("the manifest of compaction has no index")
	}
	parts := int((uint64(m.Last) + uint64(m.Span) - 1) / uint64(m.Span))
	ok := strings.Contains(m.Stream, siblingMark) && m.First >= 0 && m.First < m.X && m.Seq > 0 && m.Dirty <= m.X && len(m.Parts) == parts && parts > 0 && m.Parts[0].First == m.First
	for i := 1; ok && i < parts; i++ {
		ok = m.Parts[i].First > m.Parts[i-1].First && m.Parts[i].First < m.X
	}
	if !ok {
		return errors.New("the manifest of compaction contradicts itself")
	}
	return nil
}

// siblingMark stands in the name of a sibling behind that of its main stream. No
// token and no suffix of an incarnation has it.
const siblingMark = "=k"

// siblingMeta is the key, in the metadata of a sibling, of the name of its main
// stream.
const siblingMeta = "stream.sibling_of"

// siblingKey is the key, in the metadata of a sibling, of the key of its partition's
// record.
const siblingKey = "stream.sibling_key"

// siblingName makes a name for a sibling that was never used and never will be.
func siblingName(main string) string {
	return main + siblingMark + strings.ToLower(rand.Text()[:10])
}

// siblingSubject is the subject of a sibling. It lies outside the prefix of the
// data: whoever subscribes to that sees no rewrites.
func siblingSubject(name string) string {
	of, fresh, _ := strings.Cut(name, siblingMark)
	prefix, rest, _ := strings.Cut(of, "-")
	return prefix + "-clean." + rest + ".k" + fresh
}

// siblingSubjects matches the subjects of all siblings of a main stream.
func siblingSubjects(main string) string {
	prefix, rest, _ := strings.Cut(main, "-")
	return prefix + "-clean." + rest + ".*"
}

func sameSibling(a, b *manifest) bool {
	return a == b || a != nil && b != nil && a.Stream == b.Stream
}

func (p *Partition) siblingPrefix() string { return p.key + ".k." }

func siblingKeys(key, stream string) string { return key + ".k." + pubsub.Token(stream) + "." }

// partKey is the key of a part of a sibling's index.
func partKey(key, stream string, i int) string { return siblingKeys(key, stream) + strconv.Itoa(i) }

// siblingPartValue is a stored part: four numbers for each message.
type siblingPartValue struct {
	V     int        `json:"v"`
	Tiles [][4]int64 `json:"tiles"` // base, last, largest timestamp, bytes
}

func packTiles(ts []tile) ([]byte, error) {
	v := siblingPartValue{V: 1, Tiles: make([][4]int64, len(ts))}
	for i, t := range ts {
		v.Tiles[i] = [4]int64{int64(t.base), int64(t.last), t.maxTime, int64(t.size)}
	}
	return pack(&v)
}

// tiles loads a part of a sibling's index. One that is lost is made again from the
// headers of the sibling.
func (p *Partition) tiles(ctx context.Context, m *manifest, i int) ([]tile, error) {
	key := memoKey{p: p, kind: memoSibling, k: uint64(i), stream: m.Stream}
	if v := p.host.memo.get(key); v != nil {
		return v.([]tile), nil
	}
	ts, err := p.loadTiles(ctx, m, i)
	if errors.Is(err, pubsub.ErrNotFound) {
		if moved := p.siblingGone(ctx, m); moved != nil {
			return nil, moved
		}
		p.host.warn(p, "a part of the index of compacted records is lost; rebuilding it from headers", err)
		ts, err = p.rebuildTiles(ctx, m, i)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: index part %d of %s: %w", p, i, m.Stream, own(err))
	}
	p.host.memo.put(key, ts, 48*len(ts)+64)
	return ts, nil
}

// span are the sequences of a part.
func (m *manifest) span(i int) (first, last pubsub.Seq) {
	first = pubsub.Seq(i*m.Span + 1)
	return first, min(first+pubsub.Seq(m.Span)-1, m.Last)
}

func (p *Partition) loadTiles(ctx context.Context, m *manifest, i int) ([]tile, error) {
	key := partKey(p.key, m.Stream, i)
	v, err := p.host.records.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	var part siblingPartValue
	if err := unpack(v.Data, &part); err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	first, last := m.span(i)
	switch {
	case part.V != 1:
		return nil, fmt.Errorf("%s v%d: %w", key, part.V, errUnknownFormat)
	case len(part.Tiles) != int(last-first)+1:
		return nil, fmt.Errorf("%s has %d entries instead of %d", key, len(part.Tiles), last-first+1)
	}
	ts := make([]tile, len(part.Tiles))
	for j, t := range part.Tiles {
		ts[j] = tile{first + pubsub.Seq(j), types.Offset(t[0]), types.Offset(t[1]), t[2], int(t[3])}
	}
	return ts, nil
}

// rebuildTiles reads a part of the index from the headers of its messages. Those
// below the log start may be gone: nobody asks for them.
func (p *Partition) rebuildTiles(ctx context.Context, m *manifest, i int) ([]tile, error) {
	first, last := m.span(i)
	ts := make([]tile, last-first+1)
	next, base := first, m.Parts[i].First
	err := p.siblingLog(m.Stream).Headers(ctx, first, last, func(msg pubsub.Message) error {
		if msg.Seq < next || msg.Seq > last {
			return nil
		}
		h, err := decodeSibling(p.idTxt, &msg)
		if err != nil {
			return err
		}
		for ; next < msg.Seq; next++ { // trimmed, or lost: whoever reads it finds out
			ts[next-first] = tile{seq: next, base: base, last: base - 1, maxTime: -1}
		}
		base = h.last + 1
		ts[next-first] = h.tile
		next++
		return nil
	})
	if err == nil && next <= last {
		err = fmt.Errorf("message %d of %s is not readable: %w", next, m.Stream, pubsub.ErrUnavailable)
	}
	return ts, err
}

// part is the number of the part of the index that an offset from First to X-1
// lies in.
func (m *manifest) part(offset types.Offset) int {
	return max(0, sort.Search(len(m.Parts), func(i int) bool { return m.Parts[i].First > offset })-1)
}

// tileAt finds the message of a sibling that stands for an offset below X.
func (p *Partition) tileAt(ctx context.Context, m *manifest, offset types.Offset) (tile, error) {
	ts, err := p.tiles(ctx, m, m.part(offset))
	if err != nil {
		return tile{}, err
	}
	return ts[tileIndex(ts, offset)], nil
}

func tileIndex(ts []tile, offset types.Offset) int {
	return min(sort.Search(len(ts), func(i int) bool { return ts[i].last >= offset }), len(ts)-1)
}
