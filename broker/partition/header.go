package partition

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/serde"
	"github.com/hanzoai/stream/types"
)

// Headers of a stored message, written to be read by a person with
// `nats stream get`. Stream-Log says what the message is; its first three
// fields (v, topic, seq) keep their form in every format version. Stream-Batch
// comes once per batch, in order. State can be rebuilt from these two alone.
const (
	headerLog   = "Stream-Log"
	headerBatch = "Stream-Batch"
	// headerKey is the record key of a message by a plain NATS publisher.
	headerKey = "Kafka-Key"

	formatVersion = 1

	// maxBatches and maxHeaderBytes bound one message (design rule 3). NATS
	// refuses headers above 64 KiB.
	maxBatches     = 256
	maxHeaderBytes = 32 << 10
	// headerRoom is kept free for what pubsub adds to a message (expectations,
	// names of up to 255 bytes) and for Stream-Log.
	headerRoom = 1024
)

// entry is one batch of a stored message, as its headers tell it.
type entry struct {
	length      int32 // bytes of the batch, overhead included
	count       int32 // offsets it covers: last offset delta + 1
	first       int32 // base sequence, -1 without a producer id
	epoch       int16 // producer epoch, -1 without a producer id
	flags       flags
	pid         int64 // producer id, -1 without
	maxTime     int64 // ms, as in the batch header
	appendTime  int64 // ms by the appender's clock, never falling along the log
	txn         int64 // transaction number, 0 without
	marker      int8  // control batches: 0 abort, 1 commit
	coordinator int32 // control batches: coordinator epoch
	// fromZero is AppendRequest.FromZero. It is asked when a batch is decided, and
	// not stored.
	fromZero bool
}

type flags uint8

const (
	flagLogAppendTime flags = 1 << iota
	flagTransactional
	flagControl
)

// lastSequence is the sequence of the entry's last record; sequences wrap.
func (e *entry) lastSequence() int32 { return addSequence(e.first, e.count-1) }

// meta is what is known of a stored message without its payload.
type meta struct {
	seq  pubsub.Seq
	id   string // append id; ~seq.time for a plain message
	prev string // id of the message before; "" if a plain message does not say
	base types.Offset
	last types.Offset
	// maxTime is the largest timestamp over the message, ms.
	maxTime int64
	// appendTime is the newest append time in it, ms; store time if plain.
	appendTime int64
	size       int     // bytes of payload
	headers    int     // bytes of our headers
	entries    []entry // nil if plain
	plain      bool    // by a plain NATS publisher: one record
}

// errUnknownFormat: a message of ours in a format version that this program
// does not know. The partition is unavailable here until it is upgraded.
var errUnknownFormat = errors.New("stored in a format version that this version of stream does not know")

// corruption says that a message of ours does not continue the log, or that
// the log lacks one. The partition stops.
type corruption struct {
	kind string // crc, gap, order, header, back: labels of the metric
	seq  pubsub.Seq
	why  string
}

func (c *corruption) Error() string { return fmt.Sprintf("%s at seq %d: %s", c.kind, c.seq, c.why) }

// encodeHeader makes the headers of a message.
func encodeHeader(topic string, m *meta) pubsub.Header {
	var line [192]byte
	b := line[:0]
	b = append(b, "v="...)
	b = strconv.AppendInt(b, formatVersion, 10)
	b = append(b, " topic="...)
	b = append(b, topic...)
	b = append(b, " seq="...)
	b = strconv.AppendUint(b, uint64(m.seq), 10)
	b = append(b, " append="...)
	b = append(b, m.id...)
	b = append(b, " prev="...)
	if m.prev == "" {
		b = append(b, '-')
	} else {
		b = append(b, m.prev...)
	}
	b = append(b, " base="...)
	b = strconv.AppendInt(b, int64(m.base), 10)
	b = append(b, " last="...)
	b = strconv.AppendInt(b, int64(m.last), 10)
	batches := make([]string, len(m.entries))
	for i := range m.entries {
		batches[i] = string(appendEntry(make([]byte, 0, 96), &m.entries[i]))
	}
	h := make(pubsub.Header, 2)
	h[headerLog] = []string{string(b)}
	h[headerBatch] = batches
	m.headers = headerSize(h)
	return h
}

// appendEntry writes one batch's line. Fields with their usual value are left
// out: no producer id, no flags, no transaction.
func appendEntry(b []byte, e *entry) []byte {
	b = append(b, "len="...)
	b = strconv.AppendInt(b, int64(e.length), 10)
	b = append(b, " n="...)
	b = strconv.AppendInt(b, int64(e.count), 10)
	b = append(b, " max="...)
	b = strconv.AppendInt(b, e.maxTime, 10)
	b = append(b, " at="...)
	b = strconv.AppendInt(b, e.appendTime, 10)
	if e.pid >= 0 {
		b = append(b, " pid="...)
		b = strconv.AppendInt(b, e.pid, 10)
		b = append(b, " epoch="...)
		b = strconv.AppendInt(b, int64(e.epoch), 10)
		b = append(b, " first="...)
		b = strconv.AppendInt(b, int64(e.first), 10)
	}
	if e.flags != 0 {
		b = append(b, " flags="...)
		for i, c := range "atc" {
			if e.flags&(1<<i) != 0 {
				b = append(b, byte(c))
			}
		}
	}
	if e.txn != 0 {
		b = append(b, " txn="...)
		b = strconv.AppendInt(b, e.txn, 10)
	}
	if e.flags&flagControl != 0 {
		b = append(b, " marker="...)
		b = strconv.AppendInt(b, int64(e.marker), 10)
		b = append(b, " coordinator="...)
		b = strconv.AppendInt(b, int64(e.coordinator), 10)
	}
	return b
}

// entrySize bounds the bytes that an entry will add to a message's headers,
// before its append time and the number of its transaction are known.
func entrySize(e *entry) int {
	var line [224]byte
	n := len(appendEntry(line[:0], e)) + len(headerBatch) + 4 + 2*len("9223372036854775807")
	if e.flags&(flagTransactional|flagControl) != 0 {
		n += len(" txn=9223372036854775807")
	}
	return n
}

// headerSize is the length of headers on the wire.
func headerSize(h pubsub.Header) int {
	n := len("NATS/1.0\r\n\r\n")
	for k, vs := range h {
		for _, v := range vs {
			n += len(k) + len(v) + 4
		}
	}
	return n
}

// fields walks "k=v k=v".
type fields struct{ s string }

func (f *fields) next() (k, v string, ok bool) {
	if f.s == "" {
		return "", "", false
	}
	var word string
	if i := strings.IndexByte(f.s, ' '); i >= 0 {
		word, f.s = f.s[:i], f.s[i+1:]
	} else {
		word, f.s = f.s, ""
	}
	k, v, ok = strings.Cut(word, "=")
	return k, v, ok
}

func (f *fields) want(name string) (string, bool) {
	k, v, ok := f.next()
	return v, ok && k == name
}

// ours reports whether a message is one of this topic's own, decidable from
// the message alone: its headers name the topic and its own sequence.
func ours(topic string, m *pubsub.Message) (f fields, version string, yes bool) {
	f.s = m.Header.Get(headerLog)
	if f.s == "" {
		return f, "", false
	}
	version, ok := f.want("v")
	if !ok {
		return f, "", false
	}
	if v, ok := f.want("topic"); !ok || v != topic {
		return f, "", false
	}
	v, ok := f.want("seq")
	if n, err := strconv.ParseUint(v, 10, 64); !ok || err != nil || pubsub.Seq(n) != m.Seq {
		return f, "", false
	}
	return f, version, true
}

// decodeHeader reads what a stored message says about itself. topic is the
// topic id's text. A plain message gets base and last -1: they follow from the
// message before. Errors: errUnknownFormat, *corruption.
func decodeHeader(topic string, m *pubsub.Message) (meta, error) {
	d, err := decodeLog(topic, m)
	if err != nil || d.plain {
		return d, err
	}
	bad := func(why string) (meta, error) {
		return meta{}, &corruption{kind: "header", seq: m.Seq, why: why}
	}
	b, l := int64(d.base), int64(d.last)
	lines := m.Header[headerBatch]
	if len(lines) == 0 || len(lines) > maxBatches {
		return bad("no list of batches")
	}
	d.entries = make([]entry, len(lines))
	d.maxTime = -1
	var n, bytes int64
	for i, line := range lines {
		e := &d.entries[i]
		if !parseEntry(line, e) {
			return bad("batch list unreadable")
		}
		n += int64(e.count)
		bytes += int64(e.length)
		d.maxTime = max(d.maxTime, e.maxTime)
		d.appendTime = max(d.appendTime, e.appendTime)
		d.headers += len(headerBatch) + len(line) + 4
	}
	if n != l-b+1 {
		return bad("offsets and batches differ")
	}
	if bytes != int64(m.Size) {
		return bad("size and batches differ")
	}
	return d, nil
}

// unlisted says what is wrong with a message for which lists is false.
const unlisted = "its payload is not the batches that its headers list"

// lists reports whether a payload is the batches of the message's headers, and
// calls each, unless nil, with those.
func (d *meta) lists(data []byte, each func(serde.Batch)) bool {
	base := d.base
	for i := range d.entries {
		e := &d.entries[i]
		b, rest, err := serde.ParseBatch(data)
		if err != nil || len(b) != int(e.length) || types.Offset(b.BaseOffset()) != base || b.LastOffset() != int64(base)+int64(e.count)-1 {
			return false
		}
		if each != nil {
			each(b)
		}
		data, base = rest, base+types.Offset(e.count)
	}
	return len(data) == 0
}

// decodeLog is decodeHeader without the batches: ids and offsets. It does not
// allocate for our messages.
func decodeLog(topic string, m *pubsub.Message) (meta, error) {
	f, version, yes := ours(topic, m)
	if !yes {
		ms := m.Time.UnixMilli()
		return meta{
			seq: m.Seq, id: plainID(m.Seq, m.Time), base: types.NoOffset, last: types.NoOffset,
			maxTime: ms, appendTime: ms, size: m.Size, plain: true,
		}, nil
	}
	if version != "1" {
		return meta{}, fmt.Errorf("message %d (version %q): %w", m.Seq, version, errUnknownFormat)
	}
	d := meta{seq: m.Seq, size: m.Size}
	bad := func(why string) (meta, error) {
		return meta{}, &corruption{kind: "header", seq: m.Seq, why: why}
	}
	var ok bool
	if d.id, ok = f.want("append"); !ok || d.id == "" {
		return bad("no append id")
	}
	if d.prev, ok = f.want("prev"); !ok || d.prev == "" {
		return bad("no previous append id")
	}
	if d.prev == "-" {
		d.prev = ""
	}
	base, ok1 := f.want("base")
	last, ok2 := f.want("last")
	b, err1 := strconv.ParseInt(base, 10, 64)
	l, err2 := strconv.ParseInt(last, 10, 64)
	if !ok1 || !ok2 || err1 != nil || err2 != nil || b < 0 || l < b {
		return bad("offsets unreadable")
	}
	d.base, d.last = types.Offset(b), types.Offset(l)
	return d, nil
}

func parseEntry(line string, e *entry) bool {
	*e = entry{pid: -1, epoch: -1, first: -1}
	f := fields{line}
	var seen int
	for f.s != "" {
		k, v, ok := f.next()
		if !ok {
			return false
		}
		if k == "flags" {
			for _, c := range v {
				i := strings.IndexRune("atc", c)
				if i < 0 {
					return false
				}
				e.flags |= 1 << i
			}
			continue
		}
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil {
			return false
		}
		fits := true
		switch k {
		case "len":
			e.length, fits = int32(n), n >= serde.BatchHeaderSize && n == int64(int32(n))
			seen |= 1
		case "n":
			e.count, fits = int32(n), n > 0 && n == int64(int32(n))
			seen |= 2
		case "max":
			e.maxTime = n
			seen |= 4
		case "at":
			e.appendTime = n
			seen |= 8
		case "pid":
			e.pid, fits = n, n >= 0
		case "epoch":
			e.epoch, fits = int16(n), n == int64(int16(n))
		case "first":
			e.first, fits = int32(n), n == int64(int32(n))
		case "txn":
			e.txn = n
		case "marker":
			e.marker, fits = int8(n), n == int64(int8(n))
		case "coordinator":
			e.coordinator, fits = int32(n), n == int64(int32(n))
		}
		if !fits {
			return false
		}
	}
	control := e.flags&flagControl != 0
	switch {
	case seen != 15:
		return false
	case e.pid < 0 && (e.epoch != -1 || e.first != -1), e.pid >= 0 && (e.epoch < 0 || e.first < 0 && !control):
		return false
	}
	return control || e.marker == 0 && e.coordinator == 0
}

// plainID stands for the append id of a message that has none.
func plainID(seq pubsub.Seq, t time.Time) string {
	b := make([]byte, 0, 32)
	b = append(b, '~')
	b = strconv.AppendUint(b, uint64(seq), 10)
	b = append(b, '.')
	return string(strconv.AppendInt(b, t.UnixNano(), 10))
}

// plainBatch makes the one record that a plain message is: value is the
// payload, headers are the message's headers sorted by name (NATS keeps no
// order between names) without Kafka-Key, which is the key. It must come out
// the same on every gateway.
func plainBatch(offset types.Offset, m *pubsub.Message) serde.Batch {
	var key []byte
	if v, ok := m.Header[headerKey]; ok && len(v) > 0 {
		key = []byte(v[0])
	}
	names := make([]string, 0, len(m.Header))
	for k := range m.Header {
		if k != headerKey {
			names = append(names, k)
		}
	}
	slices.Sort(names)
	var headers []serde.RecordHeader
	for _, k := range names {
		for _, v := range m.Header[k] {
			headers = append(headers, serde.RecordHeader{Key: k, Value: []byte(v)})
		}
	}
	value := m.Data
	if value == nil {
		value = []byte{}
	}
	return serde.PlainBatch(int64(offset), m.Time.UnixMilli(), key, value, headers)
}
