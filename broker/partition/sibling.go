package partition

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hanzoai/stream/compress"
	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/serde"
	"github.com/hanzoai/stream/types"
)

// headerClean is the header of a sibling's messages, beside which they have none:
//
//	Stream-Clean: v=1 topic=<id> base=0 last=4711 max=1700000000123 n=12
//
// The payload are n whole batches as Kafka's clients get them: with the offsets,
// timestamps and producer fields they had. They lie within base to last, in order,
// with holes.
const headerClean = "Stream-Clean"

// siblingSizes are what new siblings are made of; tests have smaller ones.
type siblingSizes struct{ target, span int }

// siblingTarget is how large the messages of a sibling become, unless one batch
// is larger.
const siblingTarget = 512 << 10

// siblingHead is what a sibling's message says about itself.
type siblingHead struct {
	tile
	batches int
}

func encodeSibling(topic string, h *siblingHead) pubsub.Header {
	return pubsub.Header{headerClean: {fmt.Sprintf("v=1 topic=%s base=%d last=%d max=%d n=%d", topic, h.base, h.last, h.maxTime, h.batches)}}
}

// decodeSibling reads it. Errors: errUnknownFormat, or that it is none.
func decodeSibling(topic string, m *pubsub.Message) (siblingHead, error) {
	h := siblingHead{tile: tile{seq: m.Seq, size: m.Size}}
	f := fields{m.Header.Get(headerClean)}
	v, ok := f.want("v")
	if id, is := f.want("topic"); !ok || !is || id != topic {
		return h, fmt.Errorf("message %d is none of this topic's compacted records", m.Seq)
	}
	if v != "1" {
		return h, fmt.Errorf("compacted message %d (version %q): %w", m.Seq, v, errUnknownFormat)
	}
	var n [4]int64
	for i, name := range []string{"base", "last", "max", "n"} {
		t, ok := f.want(name)
		var err error
		if n[i], err = strconv.ParseInt(t, 10, 64); !ok || err != nil {
			return h, fmt.Errorf("compacted message %d: its header is unreadable", m.Seq)
		}
	}
	h.base, h.last, h.maxTime, h.batches = types.Offset(n[0]), types.Offset(n[1]), n[2], int(n[3])
	if h.base < 0 || h.last < h.base || n[3] < 0 {
		return h, fmt.Errorf("compacted message %d: its header contradicts itself", m.Seq)
	}
	return h, nil
}

// siblingLog is the log of a sibling: the same one while the same sibling is
// asked for, so that a reader that goes on is known.
func (p *Partition) siblingLog(stream string) pubsub.Log {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sibling == nil || p.sibling.Name() != stream {
		p.sibling = p.host.store.Log(stream, siblingSubject(stream))
	}
	return p.sibling
}

// siblingWriter fills a sibling. Nobody else appends to it.
type siblingWriter struct {
	p      *Partition
	stream string
	log    pubsub.Log
	pace   func(ctx context.Context, bytes int) error

	buf  []byte
	head siblingHead // of the message that is being filled
	// cut is an offset at which a message ends, if records lie before it and behind
	// it: retention goes by one of them and the other.
	cut     types.Offset
	largest int // bytes of one message's batches

	tiles []tile // of the part of the index that is being filled
	parts []siblingPart
}

// newSiblingWriter begins at offset first in the empty log of a sibling.
func newSiblingWriter(p *Partition, stream string, first types.Offset) *siblingWriter {
	w := &siblingWriter{p: p, stream: stream, log: p.host.store.Log(stream, siblingSubject(stream)), largest: p.host.largest}
	w.begin(1, first)
	return w
}

func (w *siblingWriter) begin(seq pubsub.Seq, base types.Offset) {
	w.buf = w.buf[:0]
	w.head = siblingHead{tile: tile{seq: seq, base: base, last: base - 1, maxTime: -1}}
}

// add takes what is left of a batch, which stood for the offsets up to last:
// whole batches, or none.
func (w *siblingWriter) add(ctx context.Context, left []byte, last types.Offset) error {
	if w.cut > 0 && last >= w.cut {
		if w.head.batches > 0 && w.head.base < w.cut {
			w.head.last = max(w.head.last, w.cut-1)
			if err := w.flush(ctx); err != nil {
				return err
			}
		}
		w.cut = 0
	}
	for len(left) > 0 {
		b, rest, err := serde.ParseBatch(left)
		if err != nil {
			return err
		}
		left = rest
		if b, err = w.fits(b); err != nil {
			return err
		}
		if len(w.buf) > 0 && len(w.buf)+len(b) > min(w.p.host.sibling.target, w.largest) {
			// What lies before the batch belongs to the message before it.
			w.head.last = max(w.head.last, types.Offset(b.BaseOffset())-1)
			if err := w.flush(ctx); err != nil {
				return err
			}
		}
		if h := &w.head; h.seq == 1 && h.batches == 0 {
			h.base = min(h.base, types.Offset(b.BaseOffset())) // the log start may lie within it
		}
		w.buf = append(w.buf, b...)
		w.head.batches++
		w.head.last = types.Offset(b.LastOffset())
		if b.Count() > 0 {
			w.head.maxTime = max(w.head.maxTime, b.MaxTimestamp())
		}
	}
	w.head.last = max(w.head.last, last)
	return nil
}

// siblingRoom is what a sibling's message needs beside its batches.
const siblingRoom = 256

// tooLarge: a record that the store took as it was published, or when its largest
// message was larger, and does not take as a batch in a sibling. The log cannot be
// compacted beyond its message while it is the newest of its key.
type tooLarge struct {
	offset types.Offset
	size   int
	// the message that has it
	seq  pubsub.Seq
	base types.Offset
}

func (e *tooLarge) Error() string {
	return fmt.Sprintf("the record at offset %d takes %d bytes as a batch, more than the store takes in one message: nothing is compacted from there on until it is deleted or has a newer one of its key", e.offset, e.size)
}

// fits gives a batch that the store takes: a record that was published to the
// stream has more around it as a batch, so that it may have to be compressed.
func (w *siblingWriter) fits(b serde.Batch) (serde.Batch, error) {
	room := w.p.host.payload - siblingRoom
	if len(b) > room && b.Codec() == 0 {
		encoded, err := compress.Encode(nil, compress.Gzip, b.Records())
		if err != nil {
			return nil, err
		}
		b = b.WithRecords(int8(compress.Gzip), encoded)
	}
	if len(b) > room {
		return nil, &tooLarge{offset: types.Offset(b.BaseOffset()), size: len(b)}
	}
	return b, nil
}

// flush stores the message.
func (w *siblingWriter) flush(ctx context.Context) error {
	h := &w.head
	h.size = len(w.buf)
	if err := w.append(ctx, pubsub.Entry{Header: encodeSibling(w.p.idTxt, h), Data: w.buf}); err != nil {
		return err
	}
	w.tiles = append(w.tiles, h.tile)
	if w.pace != nil && h.size > 0 {
		if err := w.pace(ctx, h.size); err != nil {
			return err
		}
	}
	w.begin(h.seq+1, h.last+1)
	if len(w.tiles) == w.p.host.sibling.span {
		return w.storePart(ctx)
	}
	return nil
}

// append stores one message. After a lost acknowledgement it is sent again: of two
// copies one can win, and a message in its place is ours, since nobody else knows
// the name.
func (w *siblingWriter) append(ctx context.Context, e pubsub.Entry) error {
	prev := w.head.seq - 1
	unknown := false
	for began, wait := w.p.host.clock(), 5*time.Millisecond; ; wait = min(2*wait, time.Second) {
		bound, cancel := context.WithTimeout(ctx, ackTimeout)
		_, err := w.log.Append(bound, prev, e)
		cancel()
		switch {
		case err == nil:
			return nil
		case errors.Is(err, pubsub.ErrOutcomeUnknown):
			unknown = true
		case errors.Is(err, pubsub.ErrConflict) && unknown:
			m, gerr := w.log.Get(ctx, prev+1)
			if gerr == nil {
				if m.Size == len(e.Data) && m.Header.Get(headerClean) == e.Header.Get(headerClean) {
					return nil
				}
				return fmt.Errorf("somebody else writes to %s", w.stream)
			}
		case errors.Is(err, pubsub.ErrUnavailable) && !errors.Is(err, pubsub.ErrFull):
		default:
			return err
		}
		if ctx.Err() != nil || w.p.host.clock().Sub(began) > giveUp || !sleep(ctx, wait) {
			return own(err)
		}
	}
}

// storePart stores the entries of the index that were gathered.
func (w *siblingWriter) storePart(ctx context.Context) error {
	if len(w.tiles) == 0 {
		return nil
	}
	part := siblingPart{First: w.tiles[0].base, MaxTime: -1}
	for _, t := range w.tiles {
		part.MaxTime = max(part.MaxTime, t.maxTime)
		part.Bytes += int64(t.size)
	}
	b, err := packTiles(w.tiles)
	if err != nil {
		return err
	}
	key := partKey(w.p.key, w.stream, len(w.parts))
	bound, cancel := context.WithTimeout(ctx, giveUp)
	defer cancel()
	_, err = pubsub.Put(bound, w.p.host.records, pubsub.Write{Key: key, Data: b})
	if errors.Is(err, pubsub.ErrConflict) {
		// Nobody else writes this key: it was stored, and swept away with the run
		// before we heard of it (simulated seed 5052).
		err = errAbandoned
	}
	if err != nil {
		return fmt.Errorf("index of %s: %w", w.stream, own(err))
	}
	w.parts = append(w.parts, part)
	w.tiles = w.tiles[:0]
	return nil
}

// end stores what is left. The sibling then stands for the offsets up to x-1.
func (w *siblingWriter) end(ctx context.Context, x types.Offset) error {
	if w.head.batches > 0 || w.head.base < x {
		w.head.last = x - 1
		if err := w.flush(ctx); err != nil {
			return err
		}
	}
	if err := w.storePart(ctx); err != nil {
		return err
	}
	if w.head.base != x {
		return fmt.Errorf("the compacted records end at offset %d instead of %d", w.head.base, x)
	}
	return nil
}

// createSibling makes the empty stream of a sibling: with the replicas and the
// storage of the main stream.
func (p *Partition) createSibling(ctx context.Context, name string) error {
	main, err := p.host.store.FindLog(ctx, p.log.Name())
	if err != nil {
		return p.missingLog(err)
	}
	c := main.LogConfig
	c.Name, c.Subject = name, siblingSubject(name)
	meta := map[string]string{siblingMeta: p.log.Name(), siblingKey: p.key}
	for k, v := range c.Metadata {
		meta[k] = v
	}
	c.Metadata = meta
	return p.host.store.CreateLog(ctx, c)
}

// deleteSibling deletes a sibling that the partition record does not name any
// more, and its index.
func (h *Host) deleteSibling(ctx context.Context, key, stream string) error {
	if !strings.Contains(stream, siblingMark) {
		return fmt.Errorf("%s is no sibling", stream)
	}
	if err := h.store.DeleteLog(ctx, stream); err != nil && !errors.Is(err, pubsub.ErrNotFound) {
		return fmt.Errorf("delete %s: %w", stream, err)
	}
	return h.deleteKeys(ctx, []string{siblingKeys(key, stream) + ">"}, nil)
}

// deleteKeys deletes the keys that match patterns and that want accepts (nil: all).
func (h *Host) deleteKeys(ctx context.Context, patterns []string, want func(key string) bool) error {
	var ws []pubsub.Write
	err := h.records.Scan(ctx, pubsub.WatchOptions{Patterns: patterns, HeadersOnly: true}, 0, func(v pubsub.Value) error {
		if !v.Deleted && (want == nil || want(v.Key)) {
			ws = append(ws, pubsub.Write{Key: v.Key, Expect: v.Rev, Delete: true})
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("list %v: %w", patterns, err)
	}
	for i, r := range pubsub.PutAll(ctx, h.records, ws) {
		if r.Err != nil && !errors.Is(r.Err, pubsub.ErrConflict) { // others delete it as well
			return fmt.Errorf("delete %s: %w", ws[i].Key, r.Err)
		}
	}
	return nil
}

// siblings are the streams that a record names.
func (r *record) siblings() (names []string) {
	if r.Clean != nil {
		names = append(names, r.Clean.Stream)
	}
	if r.Run != nil && !slices.Contains(names, r.Run.Stream) {
		names = append(names, r.Run.Stream)
	}
	return names
}

// trimSibling has the store forget what of a sibling lies before the log start.
func (p *Partition) trimSibling(ctx context.Context, m *manifest, start types.Offset) error {
	if start <= m.First || start >= m.X {
		return nil
	}
	t, err := p.tileAt(ctx, m, start)
	if err == nil && t.seq > 1 {
		err = p.siblingLog(m.Stream).Trim(ctx, t.seq)
	}
	if errors.Is(err, pubsub.ErrNotFound) || errors.Is(err, errMoved) {
		return nil // replaced meanwhile
	}
	return err
}

// destroySiblings deletes all siblings of a main stream that is deleted. Without a
// record there are none, or not any more.
func (h *Host) destroySiblings(ctx context.Context, key, main string) error {
	v, err := h.records.Get(ctx, key)
	if errors.Is(err, pubsub.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	var names []string
	if r, err := parseRecord(v.Data); err == nil { // else it might be of any form
		if r.Runs == 0 {
			return nil
		}
		names = r.siblings()
	}
	logs, missing, err := h.store.Logs(ctx, siblingSubjects(main))
	if err != nil {
		return err
	}
	for _, l := range logs {
		if l.Metadata[siblingMeta] == main && !slices.Contains(names, l.Name) {
			names = append(names, l.Name)
		}
	}
	for _, name := range missing {
		if strings.HasPrefix(name, main+siblingMark) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, name := range names {
		if err := h.store.DeleteLog(ctx, name); err != nil && !errors.Is(err, pubsub.ErrNotFound) {
			return fmt.Errorf("delete %s: %w", name, err)
		}
	}
	return nil // their keys go with those of the partition
}
