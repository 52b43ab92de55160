package pubsub

import (
	"context"
	"time"
)

// Rev is the revision of a value: it grows with every write to its table, over
// all keys, and is never reused. 0 means that the key was never written.
type Rev uint64

// Value is one key's state. Deleted marks a delete marker, which has a revision
// of its own and no data.
type Value struct {
	Key     string
	Data    []byte // owned by the receiver; nil in headers-only watches
	Header  Header
	Rev     Rev
	Time    time.Time // the store's clock when written
	Deleted bool
}

// Write is one compare-and-set. Expect is the key's present revision, that of a
// delete marker included, 0 for a key never written. Delete writes a marker.
type Write struct {
	Key    string
	Data   []byte
	Header Header
	Expect Rev
	Delete bool
}

// WatchOptions choose what a watch or scan delivers.
type WatchOptions struct {
	// Patterns are keys with the wildcards * (one token) and > (the rest, at
	// least one token). None means all keys.
	Patterns []string
	// After leaves out what has this revision or a lower one.
	After Rev
	// HeadersOnly leaves Data out.
	HeadersOnly bool
	// Synced, if set, is called once when every value that existed at the
	// start was delivered.
	Synced func()
	// Reset, if set, is called before a watch starts over after a loss: all
	// values are delivered anew (those whose keys vanished are not).
	Reset func()
}

// Table is a revisioned map (a JetStream KV bucket with history 1). Keys are
// dot-separated tokens as Token makes them. Safe for concurrent use.
type Table interface {
	// Name is the bucket's name.
	Name() string

	// Get reads from the leader. ErrNotFound: no value; Value.Rev then is the
	// delete marker's revision, or 0. Also ErrUnavailable.
	Get(ctx context.Context, key string) (Value, error)

	// Set stores one compare-and-set, once, without retry. Errors as
	// Log.Append. Most callers want Put, which resolves unknown outcomes.
	Set(ctx context.Context, w Write) (Rev, error)

	// Read returns values with revision >= from, delete markers included, in
	// revision order, from any replica: what it returns was a key's value when
	// the replica was read; what it leaves out between them had been overwritten
	// by then, what is missing at the end may exist. Otherwise as Log.Read, the
	// end of a result and errors too.
	Read(ctx context.Context, from Rev, limit Limit) ([]Value, error)

	// Bounds asks the leader; a Seq in it is a revision, and what lies between
	// First and Last may have been overwritten.
	Bounds(ctx context.Context) (Bounds, error)

	// Scan delivers the present values in revision order and ends when all that
	// existed at the start were delivered or, with until > 0, when a value
	// with revision >= until was delivered (it waits for one). Delete markers
	// are delivered too. Errors: of fn, ErrUnavailable. On several replicas a value
	// that was overwritten a moment ago may come first, and then the present one.
	Scan(ctx context.Context, o WatchOptions, until Rev, fn func(Value) error) error

	// Watch is Scan without an end: present values, then every change, in
	// revision order; a key changed twice quickly may be delivered once, with
	// its last value. It survives reconnects and returns only when ctx ends
	// (nil) or fn fails.
	Watch(ctx context.Context, o WatchOptions, fn func(Value) error) error
}
