package clients

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"testing"
	"time"
)

// record is what scenarios compare. A nil key or value is null.
type record struct {
	Partition  int32
	Offset     int64
	Key, Value []byte
	Headers    []header
	Time       time.Time // whole milliseconds
}

type header struct {
	Key   string
	Value []byte
}

func (r record) String() string {
	short := func(b []byte) string {
		switch {
		case b == nil:
			return "null"
		case len(b) > 40:
			return fmt.Sprintf("%q… (%d bytes)", b[:40], len(b))
		}
		return fmt.Sprintf("%q", b)
	}
	s := fmt.Sprintf("%d/%d %s=%s @%d", r.Partition, r.Offset, short(r.Key), short(r.Value), r.Time.UnixMilli())
	for _, h := range r.Headers {
		s += fmt.Sprintf(" %s:%s", h.Key, short(h.Value))
	}
	return s
}

// same is equality; null and empty are different.
func same(a, b []byte) bool { return bytes.Equal(a, b) && (a == nil) == (b == nil) }

func (r record) equal(o record) bool {
	return r.Partition == o.Partition && r.Offset == o.Offset && same(r.Key, o.Key) && same(r.Value, o.Value) &&
		r.Time.UnixMilli() == o.Time.UnixMilli() &&
		slices.EqualFunc(r.Headers, o.Headers, func(a, b header) bool { return a.Key == b.Key && same(a.Value, b.Value) })
}

// emptyAsNull is r with null for all that is empty.
func (r record) emptyAsNull() record {
	null := func(b []byte) []byte {
		if len(b) == 0 {
			return nil
		}
		return b
	}
	r.Key, r.Value, r.Headers = null(r.Key), null(r.Value), slices.Clone(r.Headers)
	for i, h := range r.Headers {
		r.Headers[i].Value = null(h.Value)
	}
	return r
}

// start is where a read begins: at a timestamp, if set, else at an offset.
type start struct {
	offset int64
	time   time.Time
}

// limits are what a client cannot do.
type limits struct {
	noTimestamps    bool // of produced records: they get the time of producing
	noRecordHeaders bool // one set of headers for all records of a call
	noEmpty         bool // produces null where empty was meant
	emptyReadsNull  bool // reads null where empty was stored
	noAdmin         bool
	commitsAlone    bool // every few seconds, and before partitions are taken away
}

// client is one client library. Its calls end with ctx.
type client interface {
	name() string
	limits() limits
	// produce sends rs, of any partitions, in order per partition, and waits for
	// all acknowledgements (acks=all). Offsets in rs are ignored.
	produce(ctx context.Context, t *testing.T, addr, topic, codec string, rs []record) error
	// read returns n records of one partition.
	read(ctx context.Context, t *testing.T, addr, topic string, partition int32, at start, n int) ([]record, error)
	// join starts a member of a group that begins at the first offset where
	// nothing is committed.
	join(ctx context.Context, t *testing.T, addr, group, topic string) (member, error)
	// admin creates a topic, counts its partitions and deletes it again.
	admin(ctx context.Context, addr, topic string, partitions int) (counted int, err error)
}

// member is one member of a group. A goroutine of it puts what it is given
// into the channel.
type member interface {
	records() <-chan record
	// commit commits everything that was put into the channel; a client that
	// commits by itself returns at once.
	commit(ctx context.Context) error
	// close leaves the group.
	close() error
}

var clients = []client{franz{}, saramaClient{}, segment{}, confluent{}, kcat{}}
