package partition

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/types"
	"github.com/hanzoai/stream/utils/killpoint"
)

const (
	// A snapshot is due when so much was appended since the last one, at most
	// every snapshotPause, and once snapshotIdle after the last append.
	snapshotMessages = 2000
	snapshotBytes    = 64 << 20
	snapshotHeaders  = 4 << 20
	snapshotPause    = time.Second
	snapshotIdle     = 5 * time.Second
	// snapshotShare: snapshots may cost one byte per so many appended, after a
	// first allowance; beyond snapshotTail messages they are written anyway, as
	// a cold gateway must read that tail.
	snapshotShare     = 20
	snapshotAllowance = 16 << 10
	snapshotTail      = 50_000
	// snapshotKeep is how long replaced chunks stay for gateways that are
	// reading them.
	snapshotKeep = time.Minute

	chunkBytes = 500 << 10 // one value of a snapshot; below 512 KiB
	// chunkSpan is the number of intervals in one stored part of the index:
	// part c covers the intervals c*chunkSpan to (c+1)*chunkSpan-1.
	chunkSpan = 1024

	gzipAbove        = 4 << 10 // values larger than this are compressed
	maxSnapshotBytes = 256 << 20
)

// errSnapshotLost: the snapshot that the record names cannot be had.
var errSnapshotLost = errors.New("snapshot cannot be read")

// snapshots is what a partition remembers about writing snapshots. Guarded by
// the partition's mu.
type snapshots struct {
	seq pubsub.Seq // of the newest one known
	// since then, applied:
	messages, bytes, headers int
	mine                     bool // and we appended some of it (or found a long tail)
	credit                   int  // bytes that snapshots may cost
	size                     int  // bytes of the last one
	wrote, appendedAt        time.Time
	running                  bool
	swept                    bool // leftovers of earlier processes were removed
	old                      []oldChunks
}

// oldChunks are keys to delete at a time.
type oldChunks struct {
	keys []string
	at   time.Time
}

func (s *snapshots) unload() {
	*s = snapshots{running: s.running, swept: s.swept, old: s.old, credit: s.credit, size: s.size, wrote: s.wrote}
}

// applied counts a message.
func (s *snapshots) applied(d *meta) {
	s.messages++
	s.bytes += d.size
	s.headers += d.headers
}

// appended notes an append of our own.
func (s *snapshots) appended(now time.Time, size int) {
	s.mine, s.appendedAt = true, now
	s.credit += size / snapshotShare
}

// loaded starts counting after the state was loaded: from is the snapshot's
// sequence, the rest what came after it.
func (s *snapshots) loaded(from pubsub.Seq, messages, size, headers int) {
	s.seq, s.messages, s.bytes, s.headers = from, messages, size, headers
	s.mine = messages >= snapshotMessages || headers >= snapshotHeaders
	s.credit = snapshotAllowance + size/snapshotShare
}

func (s *snapshots) due(now time.Time) bool {
	if s.running || !s.mine || s.messages == 0 || now.Sub(s.wrote) < snapshotPause {
		return false
	}
	if s.messages >= snapshotTail {
		return true
	}
	if s.credit < s.size {
		return false
	}
	return s.messages >= snapshotMessages || s.bytes >= snapshotBytes || s.headers >= snapshotHeaders ||
		now.Sub(s.appendedAt) >= snapshotIdle
}

// image is a snapshot's content. Producers are flat lists of numbers: id,
// epoch, append time, then four per batch: first and last sequence, base
// offset, append time.
type image struct {
	V         int          `json:"v"`
	Partition string       `json:"partition"` // key of its record
	Stream    string       `json:"stream"`
	Seq       pubsub.Seq   `json:"seq"`
	ID        string       `json:"id"`
	Next      types.Offset `json:"next"`
	Now       int64        `json:"now"`
	Producers [][]int64    `json:"producers,omitempty"`
	Times     []int64      `json:"times,omitempty"` // of Producers: largest timestamp of the last batch
	// Txns are flat lists of numbers, one of each producer that had a transaction
	// here: id, last number that ended, coordinator epoch; if one is open its
	// number, first offset, append time, bytes before it in its message.
	Txns    [][]int64    `json:"txns,omitempty"`
	Aborted [][4]int64   `json:"aborted,omitempty"`       // the newest, as in abortedPart
	Parts   []abortedRef `json:"aborted_parts,omitempty"` // stored ones
	Index   indexImage   `json:"index"`
}

type indexImage struct {
	First     pubsub.Seq `json:"first"`
	TailFirst uint64     `json:"tail_first"`
	Tail      [][2]int64 `json:"tail,omitempty"`   // base, max timestamp
	Chunks    []chunkRef `json:"chunks,omitempty"` // stored parts
}

// imageOf is the part of an image that a state is.
func imageOf(st *state) image {
	i := image{V: 1, Seq: st.seq, ID: st.id, Next: st.next, Now: st.now}
	i.Producers, i.Times = st.producersImage()
	before := map[int64]int32{}
	for _, o := range st.open {
		before[o.pid] = o.before
	}
	for id, p := range st.producers {
		if expired(p, st.now) || p.ended == 0 && p.txn == 0 && p.coordinator < 0 {
			continue
		}
		l := []int64{id, p.ended, int64(p.coordinator)}
		if p.txn != 0 {
			l = append(l, p.txn, int64(p.start), p.began, int64(before[id]))
		}
		i.Txns = append(i.Txns, l)
	}
	slices.SortFunc(i.Txns, slices.Compare[[]int64])
	i.Aborted, i.Parts = abortedImage(st.aborted.tail), slices.Clone(st.aborted.parts)
	return i
}

func (st *state) producersImage() (producers [][]int64, times []int64) {
	out := make([][]int64, 0, len(st.producers))
	for id, p := range st.producers {
		if expired(p, st.now) {
			continue
		}
		l := make([]int64, 0, 3+4*p.kept)
		l = append(l, id, int64(p.epoch), p.at)
		for _, b := range p.batches[:p.kept] {
			l = append(l, int64(b.first), int64(b.last), int64(b.base), b.at)
		}
		out = append(out, l)
	}
	slices.SortFunc(out, slices.Compare[[]int64])
	times = make([]int64, len(out))
	for i, l := range out {
		times[i] = st.producers[l[0]].time
	}
	return out, times
}

func (i *image) state() (*state, error) {
	st := newState()
	st.seq, st.id, st.next, st.now = i.Seq, i.ID, i.Next, i.Now
	for at, l := range i.Producers {
		n := (len(l) - 3) / 4
		if len(l) < 3 || len(l) != 3+4*n || n > keptBatches {
			return nil, errors.New("a producer is unreadable")
		}
		p := &producer{epoch: int16(l[1]), at: l[2], time: l[2], kept: int8(n), coordinator: -1}
		if at < len(i.Times) { // an earlier version did not keep them
			p.time = i.Times[at]
		}
		for k := range n {
			b := l[3+4*k:]
			p.batches[k] = appended{first: int32(b[0]), last: int32(b[1]), base: types.Offset(b[2]), at: b[3]}
		}
		st.producers[l[0]] = p
		st.oldest = min(st.oldest, p.at)
	}
	for _, l := range i.Txns {
		if len(l) != 3 && len(l) != 7 || st.producers[l[0]] == nil {
			return nil, errors.New("a transaction is unreadable")
		}
		p := st.producers[l[0]]
		p.ended, p.coordinator = l[1], int32(l[2])
		if len(l) == 7 {
			p.txn, p.start, p.began = l[3], types.Offset(l[4]), l[5]
			st.open = append(st.open, openTxn{p.start, l[0], int32(l[6])})
		}
	}
	slices.SortFunc(st.open, func(a, b openTxn) int { return cmp.Compare(a.start, b.start) })
	st.aborted = aborts{i.Parts, abortedOf(i.Aborted)}
	return st, nil
}

func intervalsImage(in []interval) [][2]int64 {
	out := make([][2]int64, len(in))
	for i, v := range in {
		out[i] = [2]int64{int64(v.base), v.maxTime}
	}
	return out
}

func intervalsOf(in [][2]int64) []interval {
	out := make([]interval, len(in))
	for i, v := range in {
		out[i] = interval{types.Offset(v[0]), v[1]}
	}
	return out
}

// pack encodes a stored value: JSON, compressed when large.
func pack(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil || len(b) <= gzipAbove {
		return b, err
	}
	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, gzip.BestSpeed)
	if err != nil {
		return nil, err
	}
	if _, err := z.Write(b); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// unpack is the inverse of pack.
func unpack(b []byte, v any) error {
	if len(b) >= 2 && b[0] == 0x1f && b[1] == 0x8b {
		z, err := gzip.NewReader(bytes.NewReader(b))
		if err != nil {
			return err
		}
		if b, err = io.ReadAll(io.LimitReader(z, maxSnapshotBytes)); err != nil {
			return err
		}
	}
	return json.Unmarshal(b, v)
}

// startSnapshot begins to write a snapshot in the background. done may be nil.
func (p *Partition) startSnapshot(done func()) bool {
	p.mu.Lock()
	if p.snap.running || p.st == nil || p.closed || p.stop != nil {
		p.mu.Unlock()
		return false
	}
	p.snap.running = true
	p.mu.Unlock()
	return p.host.spawn(func() {
		select {
		case p.host.snapshotSlots <- struct{}{}:
		case <-p.host.ctx.Done():
			return
		}
		ctx, cancel := context.WithTimeout(p.host.ctx, openTimeout)
		err := p.writeSnapshot(ctx)
		cancel()
		<-p.host.snapshotSlots
		p.mu.Lock()
		p.snap.running = false
		p.snap.wrote = p.host.clock()
		p.mu.Unlock()
		if err != nil && p.host.ctx.Err() == nil && !p.tidyDestroyed() {
			p.host.warn(p, "snapshot was not written; it will be tried again", err)
		}
		if done != nil {
			done()
		}
	})
}

// writeSnapshot stores the state as it is now: index parts that became whole,
// then the chunks of the snapshot, and the record last, so that what the record
// names is always complete.
func (p *Partition) writeSnapshot(ctx context.Context) error {
	p.mu.Lock()
	// Without an id, at a break, there is no message that could vouch for it.
	if p.st == nil || p.st.id == "" || p.st.seq == p.snap.seq {
		p.mu.Unlock()
		return nil
	}
	st, ix := p.st, &p.ix
	var useless []string
	for _, r := range st.aborted.after(max(p.start, p.base)) {
		useless = append(useless, p.abortedKey(r))
	}
	img := imageOf(st)
	img.Partition, img.Stream = p.key, p.log.Name()
	ended := slices.Clone(st.aborted.tail)
	first, tailFirst := ix.first, ix.tailFirst
	tail, chunks := slices.Clone(ix.tail), slices.Clone(ix.chunks)
	counted, repaired := p.snap, p.repaired
	// Parts of the index that lie before the first message are of no use.
	for len(chunks) > 0 && startOf(chunks[0].end()) <= p.first {
		useless = append(useless, p.chunkKey(chunks[0]))
		chunks = chunks[1:]
	}
	p.mu.Unlock()

	cost := 0
	for {
		// A part is whole when an interval after it has begun.
		n := int((tailFirst/chunkSpan+1)*chunkSpan - tailFirst)
		if len(tail) <= n {
			break
		}
		c := chunkRef{First: tailFirst, Base: tail[0].base, MaxTime: -1, Repaired: repaired}
		for _, iv := range tail[:n] {
			c.MaxTime = max(c.MaxTime, iv.maxTime)
		}
		size, err := p.storeChunk(ctx, c, tail[:n])
		if err != nil {
			return err
		}
		cost += size
		chunks = append(chunks, c)
		tail, tailFirst = tail[n:], tailFirst+uint64(n)
	}
	for len(ended) >= 2*abortedSpan {
		r, size, err := p.storeAborted(ctx, ended[:abortedSpan])
		if err != nil {
			return err
		}
		cost += size
		img.Parts, ended = append(img.Parts, r), ended[abortedSpan:]
	}
	img.Aborted = abortedImage(ended)
	img.Index = indexImage{First: first, TailFirst: tailFirst, Tail: intervalsImage(tail), Chunks: chunks}
	b, err := pack(&img)
	if err != nil {
		return err
	}
	cost += len(b)
	h := &head{Seq: img.Seq, ID: img.ID}
	var ws []pubsub.Write
	for k := 0; len(b) > 0; k++ {
		n := min(len(b), chunkBytes)
		key := p.key + ".s." + strconv.FormatUint(uint64(img.Seq), 10) + "." + p.host.writer + "." + strconv.Itoa(k)
		h.Chunks = append(h.Chunks, key)
		ws = append(ws, pubsub.Write{Key: key, Data: b[:n]})
		b = b[n:]
	}
	for i, r := range pubsub.PutAll(ctx, p.host.records, ws) {
		if r.Err != nil && !errors.Is(r.Err, pubsub.ErrConflict) {
			return fmt.Errorf("snapshot of %s: write %s: %w", p, ws[i].Key, r.Err)
		}
	}
	killpoint.At("snapshot.chunks")
	var replaced []string
	written := false
	err = p.updateRecord(ctx, func(r *record) bool {
		written, replaced = false, nil
		if r.Snapshot != nil {
			if r.Snapshot.Seq >= h.Seq {
				return false // another gateway's is as new
			}
			replaced = r.Snapshot.Chunks
		}
		if r.Stop != nil || r.Repaired != repaired {
			return false
		}
		r.Snapshot, written = h, true
		return true
	})
	if err != nil {
		return err
	}
	if !written {
		replaced = h.Chunks
	}
	replaced = append(slices.Clone(replaced), useless...)
	now := p.host.clock()
	p.mu.Lock()
	s := &p.snap
	s.size = cost
	s.credit = min(max(s.credit-cost, -cost), 64*max(cost, snapshotAllowance))
	if len(replaced) > 0 {
		s.old = append(s.old, oldChunks{replaced, now.Add(snapshotKeep)})
	}
	sweep := !s.swept
	s.swept = true
	if p.st != nil && s.seq == counted.seq {
		s.seq = h.Seq
		s.messages -= counted.messages
		s.bytes -= counted.bytes
		s.headers -= counted.headers
		s.mine = s.messages > 0
		// What went into stored parts need not be in memory.
		if p.ix.tailFirst <= tailFirst && p.ix.first == first {
			p.ix.tail = slices.Clone(p.ix.tail[tailFirst-p.ix.tailFirst:])
			p.ix.tailFirst, p.ix.chunks = tailFirst, chunks
		}
		if a := &p.st.aborted; p.st == st && len(img.Parts) > len(a.parts) {
			n := (len(img.Parts) - len(a.parts)) * abortedSpan
			a.parts, a.tail = slices.Clone(img.Parts), slices.Clone(a.tail[n:])
		}
	}
	p.mu.Unlock()
	if sweep {
		return p.sweepSnapshots(ctx)
	}
	return nil
}

// sweepSnapshots finds what earlier processes left: chunks replaced by the
// snapshot that the record names, or never named, and parts of the index that lie
// before the first message.
func (p *Partition) sweepSnapshots(ctx context.Context) error {
	r, _, err := p.fetchRecord(ctx)
	if err != nil || r.Snapshot == nil {
		return err
	}
	prefix, parts, aborted := p.key+".s.", p.key+".i."+pubsub.Token(p.log.Name())+".", p.abortedPrefix()
	var old []string
	err = p.host.records.Scan(ctx, pubsub.WatchOptions{Patterns: []string{prefix + ">", parts + ">", aborted + ">"}, HeadersOnly: true}, 0, func(v pubsub.Value) error {
		if v.Deleted {
			return nil
		}
		if rest, ok := strings.CutPrefix(v.Key, parts); ok {
			number, _, _ := strings.Cut(rest, ".")
			if first, err := strconv.ParseUint(number, 10, 64); err == nil && startOf((&chunkRef{First: first}).end()) <= r.First {
				old = append(old, v.Key)
			}
			return nil
		}
		if rest, ok := strings.CutPrefix(v.Key, aborted); ok {
			last, _, _ := strings.Cut(rest, ".")
			if n, err := strconv.ParseInt(last, 10, 64); err == nil && types.Offset(n) < max(r.Start, r.Base) {
				old = append(old, v.Key)
			}
			return nil
		}
		var seq pubsub.Seq
		if _, err := fmt.Sscanf(v.Key[len(prefix):], "%d.", &seq); err == nil && seq < r.Snapshot.Seq {
			old = append(old, v.Key)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("list snapshots of %s: %w", p, err)
	}
	if len(old) > 0 {
		p.mu.Lock()
		p.snap.old = append(p.snap.old, oldChunks{old, p.host.clock().Add(snapshotKeep)})
		p.mu.Unlock()
	}
	return nil
}

// removeOld deletes replaced chunks whose time has come. A reader that still
// wants one reads the record again.
func (p *Partition) removeOld(ctx context.Context, now time.Time) {
	p.mu.Lock()
	var keys []string
	p.snap.old = slices.DeleteFunc(p.snap.old, func(o oldChunks) bool {
		if now.Before(o.at) {
			return false
		}
		keys = append(keys, o.keys...)
		return true
	})
	p.mu.Unlock()
	for _, k := range keys {
		v, err := p.host.records.Get(ctx, k)
		if err == nil {
			_, _ = pubsub.Put(ctx, p.host.records, pubsub.Write{Key: k, Expect: v.Rev, Delete: true})
		}
	}
}

// readImage reads the chunks that a record's head names.
func readImage(ctx context.Context, records pubsub.Table, h *head) (*image, error) {
	var b []byte
	for _, k := range h.Chunks {
		v, err := records.Get(ctx, k)
		if errors.Is(err, pubsub.ErrNotFound) {
			return nil, fmt.Errorf("%w: %s is missing", errSnapshotLost, k)
		}
		if err != nil {
			return nil, fmt.Errorf("read snapshot: %w", err)
		}
		b = append(b, v.Data...)
	}
	img := &image{}
	if err := unpack(b, img); err != nil {
		return nil, fmt.Errorf("%w: %v", errSnapshotLost, err)
	}
	if img.V != 1 {
		return nil, fmt.Errorf("snapshot v%d: %w", img.V, errUnknownFormat)
	}
	return img, nil
}

// loadSnapshot reads what a record's head names.
func (p *Partition) loadSnapshot(ctx context.Context, h *head) (*state, index, error) {
	img, err := readImage(ctx, p.host.records, h)
	if err != nil {
		return nil, index{}, err
	}
	if img.Partition != p.key || img.Stream != p.log.Name() || img.Seq != h.Seq || img.ID != h.ID {
		return nil, index{}, fmt.Errorf("%w: it is of %s at %d", errSnapshotLost, img.Partition, img.Seq)
	}
	st, err := img.state()
	if err != nil {
		return nil, index{}, fmt.Errorf("%w: %v", errSnapshotLost, err)
	}
	x := img.Index
	return st, index{first: x.First, tailFirst: x.TailFirst, tail: intervalsOf(x.Tail), chunks: x.Chunks}, nil
}

// indexPart is a stored part of the index.
type indexPart struct {
	V         int        `json:"v"`
	Intervals [][2]int64 `json:"intervals"` // base, max timestamp
}

func (p *Partition) chunkKey(c chunkRef) string {
	key := p.key + ".i." + pubsub.Token(p.log.Name()) + "." + strconv.FormatUint(c.First, 10)
	if c.Repaired != 0 { // before the repair there may be one of another content
		key += "." + strconv.FormatInt(c.Repaired, 10)
	}
	return key
}

// storeChunk stores a part of the index. Every gateway makes the same part of
// the same log, so one that is there already is as good.
func (p *Partition) storeChunk(ctx context.Context, c chunkRef, in []interval) (int, error) {
	b, err := pack(&indexPart{V: 1, Intervals: intervalsImage(in)})
	if err != nil {
		return 0, err
	}
	_, err = pubsub.Put(ctx, p.host.records, pubsub.Write{Key: p.chunkKey(c), Data: b})
	if errors.Is(err, pubsub.ErrConflict) {
		old, lerr := p.loadChunk(ctx, c)
		if lerr == nil && slices.Equal(old, in) {
			return 0, nil
		}
		if lerr == nil {
			lerr = errors.New("it differs")
		}
		return 0, fmt.Errorf("index part %s exists already: %w", p.chunkKey(c), lerr)
	}
	if err != nil {
		return 0, fmt.Errorf("index part of %s: %w", p, err)
	}
	return len(b), nil
}

// loadChunk reads a stored part of the index.
func (p *Partition) loadChunk(ctx context.Context, c chunkRef) ([]interval, error) {
	v, err := p.host.records.Get(ctx, p.chunkKey(c))
	if err != nil {
		return nil, err
	}
	var part indexPart
	if err := unpack(v.Data, &part); err != nil {
		return nil, fmt.Errorf("index part %s: %w", p.chunkKey(c), err)
	}
	if part.V != 1 {
		return nil, fmt.Errorf("index part %s v%d: %w", p.chunkKey(c), part.V, errUnknownFormat)
	}
	if len(part.Intervals) == 0 {
		return nil, fmt.Errorf("index part %s is empty", p.chunkKey(c))
	}
	return intervalsOf(part.Intervals), nil
}
