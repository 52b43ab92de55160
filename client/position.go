package client

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/hanzoai/stream/logging"
)

// positionHelp is the grammar, for help texts.
const positionHelp = "earliest, latest, an offset, -N (N before the end), or a time: 2026-11-30, 2026-11-30T08:15:00Z (without zone: local time), @1700000000000 (ms since 1970), 90m (ago)"

// position is a place in a partition as a person names it.
type position struct {
	kind int
	n    int64 // offset, records before the end, or ms since 1970
}

const (
	earliest = iota
	latest
	atOffset
	beforeEnd
	atTime
)

// parsePosition reads what positionHelp says; now is what durations count from.
func parsePosition(s string, now time.Time) (position, error) {
	switch s {
	case "earliest", "beginning", "start":
		return position{kind: earliest}, nil
	case "latest", "end":
		return position{kind: latest}, nil
	}
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		if n < 0 {
			return position{beforeEnd, -n}, nil
		}
		return position{atOffset, n}, nil
	}
	if t, err := parseTime(s, now); err == nil {
		return position{atTime, t.UnixMilli()}, nil
	}
	return position{}, fmt.Errorf("%q is no position: %s", logging.Printable(s), positionHelp)
}

// parseTime reads the times of positionHelp.
func parseTime(s string, now time.Time) (time.Time, error) {
	if ms, ok := strings.CutPrefix(s, "@"); ok {
		if n, err := strconv.ParseInt(ms, 10, 64); err == nil && n >= 0 {
			return time.UnixMilli(n), nil
		}
	}
	if t, err := time.Parse(time.RFC3339Nano, s); err == nil {
		return t, nil
	}
	for _, layout := range []string{"2006-01-02", "2006-01-02T15:04", "2006-01-02T15:04:05", "2006-01-02 15:04", "2006-01-02 15:04:05"} {
		if t, err := time.ParseInLocation(layout, s, now.Location()); err == nil {
			return t, nil
		}
	}
	if d, err := time.ParseDuration(s); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	return time.Time{}, fmt.Errorf("%q is no time: for example 2026-11-30T08:15:00Z, 2026-11-30, @1700000000000 or 90m", logging.Printable(s))
}

// offset is the position for a consumer without a commit.
func (p position) offset() kgo.Offset {
	o := kgo.NewOffset()
	switch p.kind {
	case earliest:
		return o.AtStart()
	case latest:
		return o.AtEnd()
	case atOffset:
		return o.At(p.n)
	case beforeEnd:
		return o.AtEnd().Relative(-p.n)
	}
	return o.AfterMilli(p.n)
}

// bounds are the first and the next offset of every partition of some topics.
type bounds struct{ first, next kadm.ListedOffsets }

// bounds has what it could learn even if it fails.
func (c *conn) bounds(ctx context.Context, topics ...string) (bounds, error) {
	first, err := c.adm.ListStartOffsets(ctx, topics...)
	if _, fatal := partly(err); fatal != nil {
		return bounds{}, err
	}
	next, err2 := c.adm.ListEndOffsets(ctx, topics...)
	return bounds{first, next}, cmp.Or(err2, err)
}

// place is a position in one partition, resolved.
type place struct {
	topic       string
	partition   int32
	first, next int64 // of the partition
	at          int64
	err         error
}

// resolve finds p in every partition of topics, sorted. Offsets outside of a
// partition are moved to its nearest end, times after the last record to the
// end, as Kafka's own tools do.
func (c *conn) resolve(ctx context.Context, p position, topics ...string) ([]place, error) {
	b, err := c.bounds(ctx, topics...)
	if err != nil {
		return nil, err
	}
	var times kadm.ListedOffsets
	if p.kind == atTime {
		if times, err = c.adm.ListOffsetsAfterMilli(ctx, p.n, topics...); err != nil {
			return nil, err
		}
	}
	var out []place
	for _, n := range sorted(b.next) {
		if n.Partition < 0 { // the topic itself has failed
			out = append(out, place{topic: n.Topic, partition: -1, err: n.Err})
			continue
		}
		f, ok := b.first.Lookup(n.Topic, n.Partition)
		x := place{topic: n.Topic, partition: n.Partition, first: f.Offset, next: n.Offset, err: n.Err}
		switch {
		case x.err != nil:
		case !ok || f.Err != nil:
			x.err = orMissing(f.Err)
		case p.kind == earliest:
			x.at = x.first
		case p.kind == latest:
			x.at = x.next
		case p.kind == atOffset:
			x.at = p.n
		case p.kind == beforeEnd:
			x.at = x.next - p.n
		default:
			t, ok := times.Lookup(n.Topic, n.Partition)
			if x.at = t.Offset; !ok || t.Err != nil {
				x.err = orMissing(t.Err)
			}
			if x.at < 0 {
				x.at = x.next
			}
		}
		x.at = min(max(x.at, x.first), x.next)
		out = append(out, x)
	}
	return out, nil
}

func orMissing(err error) error {
	if err == nil {
		return fmt.Errorf("the server says nothing of the partition")
	}
	return err
}

// sorted are listed offsets by topic and partition.
func sorted(l kadm.ListedOffsets) []kadm.ListedOffset {
	var out []kadm.ListedOffset
	l.Each(func(o kadm.ListedOffset) { out = append(out, o) })
	sortBy(out, func(o kadm.ListedOffset) (string, int32) { return o.Topic, o.Partition })
	return out
}
