package coord

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/hanzoai/stream/compress"
	"github.com/hanzoai/stream/pubsub"
)

// Version is the format that this package writes, field v of every record.
const Version = 1

// Headers that repeat the envelope, so that a watch needs no payload.
const (
	ownerHeader    = "Owner"    // node incarnation term
	releasedHeader = "Released" // present if the owner let go
)

const (
	// Values above this many bytes are stored compressed; smaller ones stay
	// readable for an operator.
	compressAbove = 8 << 10
	// No record is larger than this when unpacked.
	maxUnpacked = 64 << 20
)

// Envelope is the part of a stored record that this package owns. Records
// embed it first.
type Envelope struct {
	V     int   `json:"v"`
	Owner Owner `json:"owner"`
	// Released says that the owner named has let go: anybody may take over.
	Released bool `json:"released,omitempty"`
	// Birth is the revision at which the record was created: it tells this life
	// of the record from an earlier one with the same key. 0 in the creating
	// write itself, whose own revision it is.
	Birth pubsub.Rev `json:"birth,omitempty"`
	// Fence is the term of the last owner that took over from one that had not
	// let go: values below the key with a lower term may still be moved by the
	// late writes of whoever was frozen then. It outlives later releases, which
	// fence nothing by themselves. 0: there never was one.
	Fence uint64 `json:"fence,omitempty"`
}

// open unpacks a stored value and reads its envelope.
func open(v pubsub.Value) (body []byte, e Envelope, err error) {
	body, err = unpack(v.Data)
	if err != nil {
		return nil, e, fmt.Errorf("record %s at revision %d: %w", v.Key, v.Rev, err)
	}
	if err := json.Unmarshal(body, &e); err != nil {
		return nil, e, fmt.Errorf("record %s at revision %d: %w", v.Key, v.Rev, err)
	}
	if e.V != Version {
		return nil, e, fmt.Errorf("record %s at revision %d: version %d: %w", v.Key, v.Rev, e.V, ErrVersion)
	}
	if e.Birth == 0 {
		e.Birth = v.Rev
	}
	return body, e, nil
}

// Open gives a stored record's JSON body, unpacked, and its envelope, to
// readers that do not own it. ErrVersion for a format not known here.
func Open(v pubsub.Value) ([]byte, Envelope, error) { return open(v) }

func header(e Envelope, more pubsub.Header) pubsub.Header {
	h := make(pubsub.Header, len(more)+2)
	maps.Copy(h, more)
	h[ownerHeader] = []string{fmt.Sprintf("%d %s %d", e.Owner.Node, e.Owner.Incarnation, e.Owner.Term)}
	if e.Released {
		h[releasedHeader] = []string{"true"}
	}
	return h
}

// ownerOf reads what header wrote; ok is false for anything else.
func ownerOf(h pubsub.Header) (o Owner, released, ok bool) {
	f := strings.Fields(h.Get(ownerHeader))
	if len(f) != 3 {
		return o, false, false
	}
	node, err := strconv.ParseInt(f[0], 10, 32)
	if err != nil {
		return o, false, false
	}
	term, err := strconv.ParseUint(f[2], 10, 64)
	if err != nil {
		return o, false, false
	}
	return Owner{Node: int32(node), Incarnation: f[1], Term: term}, h.Get(releasedHeader) != "", true
}

func pack(body []byte) ([]byte, error) {
	if len(body) <= compressAbove {
		return body, nil
	}
	data, err := compress.Encode(nil, compress.Zstd, body)
	if err != nil {
		return nil, fmt.Errorf("pack: %w", err)
	}
	return data, nil
}

// unpack tells the two forms apart by their first bytes: JSON objects begin
// with a brace, zstd frames with their magic number.
func unpack(data []byte) ([]byte, error) {
	if !bytes.HasPrefix(data, []byte{0x28, 0xb5, 0x2f, 0xfd}) {
		return data, nil
	}
	body, err := compress.Decode(nil, compress.Zstd, data, maxUnpacked)
	if err != nil {
		return nil, fmt.Errorf("unpack: %w", err)
	}
	return body, nil
}

// Marshal writes known, a struct, as a JSON object followed by the fields of
// extra: what an earlier Unmarshal did not know.
func Marshal(known any, extra map[string]json.RawMessage) ([]byte, error) {
	b, err := json.Marshal(known)
	if err != nil || len(extra) == 0 {
		return b, err
	}
	b = b[:len(b)-1]
	for _, k := range slices.Sorted(maps.Keys(extra)) {
		if len(b) > 1 {
			b = append(b, ',')
		}
		name, err := json.Marshal(k)
		if err != nil {
			return nil, err
		}
		b = append(append(append(b, name...), ':'), extra[k]...)
	}
	return append(b, '}'), nil
}

// Unmarshal reads a JSON object into known, a pointer to a struct, and returns
// the fields it has no place for, nil if there are none.
func Unmarshal(data []byte, known any) (extra map[string]json.RawMessage, err error) {
	if err := json.Unmarshal(data, known); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(data, &extra); err != nil {
		return nil, err
	}
	for name := range fields(reflect.TypeOf(known).Elem()) {
		delete(extra, name)
	}
	if len(extra) == 0 {
		return nil, nil
	}
	return extra, nil
}

var fieldCache sync.Map // reflect.Type -> map[string]struct{}

// fields are the JSON names of a struct's fields, embedded structs included.
func fields(t reflect.Type) map[string]struct{} {
	if m, ok := fieldCache.Load(t); ok {
		return m.(map[string]struct{})
	}
	m := make(map[string]struct{})
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-":
		case f.Anonymous && name == "":
			maps.Copy(m, fields(f.Type))
		case name != "":
			m[name] = struct{}{}
		default:
			m[f.Name] = struct{}{}
		}
	}
	fieldCache.Store(t, m)
	return m
}
