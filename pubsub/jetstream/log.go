package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/hanzoai/stream/pubsub"
)

// log implements pubsub.Log on one stream. It holds no state of the stream.
type log struct {
	st            *Store
	name, subject string
	append, read  *conn
	// directGet and next are subjects made once.
	directGet string
	// newsSet: the stream is known to send news, or none, as this store needs it.
	newsSet atomic.Bool
	runs    runs
	// keyed: the stream of a table. Reads are from all its subjects, which stay
	// in the headers, and step over what was overwritten.
	keyed bool
}

var _ pubsub.Log = (*log)(nil)

// Log implements pubsub.Store.
func (st *Store) Log(name, subject string) pubsub.Log {
	return &log{
		st: st, name: name, subject: subject,
		append: st.appendConn(name), read: st.readConn(name),
		directGet: st.apiPrefix + "DIRECT.GET." + name,
	}
}

// Name implements pubsub.Log.
func (l *log) Name() string { return l.name }

// pubAck is the acknowledgement of a publish.
type pubAck struct {
	answer
	Stream    string `json:"stream"`
	Seq       uint64 `json:"seq"`
	Duplicate bool   `json:"duplicate"`
}

// publish sends one message with its expectations to a stream and interprets
// the acknowledgement. It never repeats anything.
func (st *Store) publish(ctx context.Context, c *conn, stream, subject string, h nats.Header, data []byte) (uint64, error) {
	if st.cfg.HasRoom != nil && !st.cfg.HasRoom() {
		return 0, fmt.Errorf("%w: the disk has no room left", pubsub.ErrFull)
	}
	var ack pubAck
	m := &nats.Msg{Subject: subject, Header: h, Data: data}
	_, err := c.call(ctx, m, st.cfg.AckTimeout, func(a *nats.Msg) bool {
		// A plain NATS subscriber of the subject may answer as well, with
		// whatever it likes: only what names a stream or an error is an ack.
		ack = pubAck{}
		return json.Unmarshal(a.Data, &ack) == nil && (ack.Stream != "" || ack.Error != nil)
	})
	if err == nil && ack.Error != nil {
		err = ack.Error
	}
	if errors.Is(err, errNoResponders) {
		// Nobody listens to the subject: a stream without a leader, or none at
		// all. That none exists only JetStream can say, and then this message
		// is not stored either.
		if _, ferr := st.streamInfo(ctx, stream); hasCode(ferr, codeStreamNotFound) {
			return 0, fmt.Errorf("%w: %w", pubsub.ErrNotFound, ferr)
		}
	}
	if err != nil {
		return 0, writeError(err)
	}
	if ack.Stream != stream {
		// The server checks Nats-Expected-Stream before it stores.
		return 0, fmt.Errorf("acknowledged by stream %s instead of %s", ack.Stream, stream)
	}
	return ack.Seq, nil
}

// Append implements pubsub.Log.
func (l *log) Append(ctx context.Context, prev pubsub.Seq, e pubsub.Entry) (pubsub.Seq, error) {
	h := withHeaders(e.Header,
		hdrExpectedLast, strconv.FormatUint(uint64(prev), 10),
		hdrExpectedStream, l.name)
	begin := time.Now()
	seq, err := l.st.publish(ctx, l.append, l.name, l.subject, h, e.Data)
	if err != nil {
		return 0, fmt.Errorf("append to %s after %d: %w", l.name, prev, err)
	}
	l.st.metrics.publish.Observe(time.Since(begin).Seconds())
	if pubsub.Seq(seq) != prev+1 {
		return 0, fmt.Errorf("append to %s after %d: stored at %d", l.name, prev, seq)
	}
	return pubsub.Seq(seq), nil
}

// Get implements pubsub.Log.
func (l *log) Get(ctx context.Context, seq pubsub.Seq) (pubsub.Message, error) {
	if seq == 0 {
		return pubsub.Message{}, fmt.Errorf("get %s at 0: %w", l.name, pubsub.ErrNotFound)
	}
	sm, err := l.st.getFromLeader(ctx, l.name, leaderGet{Seq: uint64(seq)})
	if err != nil {
		return pubsub.Message{}, fmt.Errorf("get %s at %d: %w", l.name, seq, readError(err))
	}
	m, _, err := stored(sm)
	if err != nil {
		return pubsub.Message{}, fmt.Errorf("get %s at %d: %w", l.name, seq, err)
	}
	return m, nil
}

// Bounds implements pubsub.Log. Whoever uses a log asks for its bounds first, so
// a stream that sends news to nobody is mended here.
func (l *log) Bounds(ctx context.Context) (pubsub.Bounds, error) {
	si, err := l.st.streamInfo(ctx, l.name)
	if err != nil {
		return pubsub.Bounds{}, fmt.Errorf("bounds of %s: %w", l.name, readError(err))
	}
	if l.st.cfg.Alone && !l.keyed && !l.newsSet.Load() {
		l.silence(ctx, si)
	}
	return bounds(si), nil
}

// Trim implements pubsub.Log. Sequences above the last are lowered to it: a
// purge beyond the end would empty the stream and move its next sequence.
func (l *log) Trim(ctx context.Context, to pubsub.Seq) error {
	b, err := l.Bounds(ctx)
	if err != nil {
		return fmt.Errorf("trim to %d: %w", to, err)
	}
	// The last stored message need not be at the last sequence if someone
	// deleted there; what is kept is the last one stored.
	if to = min(to, b.Last); to <= b.First || b.Messages <= 1 {
		return nil
	}
	if to == b.Last {
		if _, err := l.Get(ctx, to); errors.Is(err, pubsub.ErrNotFound) {
			last, lerr := l.st.getFromLeader(ctx, l.name, leaderGet{Last: l.subject})
			if lerr != nil {
				return fmt.Errorf("trim %s to %d: %w", l.name, to, readError(lerr))
			}
			to = pubsub.Seq(last.Seq)
		} else if err != nil {
			return fmt.Errorf("trim %s to %d: %w", l.name, to, err)
		}
	}
	req := struct {
		Seq uint64 `json:"seq"`
	}{uint64(to)}
	if err := l.st.api(ctx, 3*l.st.cfg.APITimeout, "STREAM.PURGE."+l.name, req, nil); err != nil {
		return fmt.Errorf("trim %s to %d: %w", l.name, to, apiWriteError(err))
	}
	return nil
}
