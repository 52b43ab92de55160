package jetstream

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// cursor reads a stream in order through a short-lived pull consumer in the
// server's memory. It never skips silently: a gap, a lost consumer, a lost
// connection and silence all end it with errCursorLost, and its user opens
// another one behind the last message seen.
type cursor struct {
	st     *Store
	c      *conn
	stream string
	name   string
	s      *slot
	lost   <-chan struct{}

	start   uint64 // nothing below is delivered
	pending uint64 // not delivered yet when the last message was (or at the start)
	count   uint64 // messages delivered, as the server counts them
	begin   time.Time
	early   bool   // the last pull met nobody, see status
	pulls   []pull // oldest first: the server serves them in this order
	left    int    // sum of their left
}

type pull struct {
	id   uint64
	left int
}

const (
	pullBatch   = 256
	pullExpires = time.Minute
	// pullHeartbeat is how often the server shows that it is there. A consumer that
	// died with its server is told by silence alone.
	pullHeartbeat = 2 * time.Second
	// consumerIdle is when the server removes a consumer that nobody pulls
	// from, should our own removal not arrive.
	consumerIdle = 2 * time.Minute
	cursorDepth  = 2*pullBatch + 64
)

// errCursorLost ends a cursor whose stream still has to be read.
var errCursorLost = fmt.Errorf("%w: consumer lost", errNoAnswer)

type cursorConfig struct {
	stream      string
	start       uint64   // first sequence wanted, from 1
	filters     []string // subjects; none means all
	headersOnly bool
	idle        time.Duration // when the server removes it; 0: consumerIdle
}

// openCursor creates the consumer. Errors: those of Store.api.
//
// In a cluster nobody answers while there is no leader, and who leads may give the
// consumer to a server that has just died. So it is asked for again, which is no
// second consumer, and then under other names, of which each may be somewhere else.
func (st *Store) openCursor(ctx context.Context, c *conn, cc cursorConfig) (cur *cursor, err error) {
	all := 3 * st.cfg.APITimeout
	if !st.clustered {
		return st.createCursor(ctx, c, cc, all)
	}
	for _, share := range []time.Duration{2, 4, 9} { // of 15
		if cur, err = st.createCursor(ctx, c, cc, all*share/15); !errors.Is(err, errNoAnswer) || ctx.Err() != nil {
			break
		}
	}
	return cur, err
}

// createCursor is openCursor under one name.
func (st *Store) createCursor(ctx context.Context, c *conn, cc cursorConfig, timeout time.Duration) (*cursor, error) {
	cur := &cursor{st: st, c: c, stream: cc.stream, name: "stream_" + rand.Text(), start: cc.start, lost: c.lostCh()}
	cfg := consumerConfig{
		Name: cur.name, DeliverPolicy: "by_start_sequence", OptStartSeq: max(1, cc.start),
		AckPolicy: "none", ReplayPolicy: "instant", HeadersOnly: cc.headersOnly,
		InactiveThreshold: cmp.Or(cc.idle, consumerIdle), Replicas: 1, MemoryStorage: true,
	}
	if len(cc.filters) == 1 {
		cfg.FilterSubject = cc.filters[0]
	} else {
		cfg.FilterSubjects = cc.filters
	}
	req := struct {
		Stream string         `json:"stream_name"`
		Config consumerConfig `json:"config"`
	}{cc.stream, cfg}
	var resp struct {
		answer
		NumPending uint64 `json:"num_pending"`
	}
	s, err := c.newSlot(cursorDepth)
	if err != nil {
		return nil, err
	}
	cur.s = s
	if c.bypass != nil {
		c.bypass.add(cur.name, s.ch)
	}
	if err := st.ask(ctx, timeout, "CONSUMER.CREATE."+cc.stream+"."+cur.name, req, &resp); err != nil {
		var e *apiError
		if errors.As(err, &e) || errors.Is(err, errNotSent) {
			cur.forget()
		} else {
			cur.close() // it may exist
		}
		return nil, err
	}
	cur.pending = resp.NumPending
	cur.begin = time.Now()
	return cur, nil
}

// close removes the consumer, whatever its state. It does not wait for the
// server: an idle consumer ends by itself.
func (cur *cursor) close() {
	cur.forget()
	_ = cur.c.nc.PublishMsg(&nats.Msg{
		Subject: cur.st.apiPrefix + "CONSUMER.DELETE." + cur.stream + "." + cur.name,
		Reply:   cur.s.reply(), // the server answers only who can be answered; nobody listens
	})
}

// forget ends what there is of the cursor on our side.
func (cur *cursor) forget() {
	cur.s.drop()
	if cur.c.bypass != nil {
		cur.c.bypass.remove(cur.name)
	}
}

// position is what a consumer says about a message, in its reply subject.
type position struct {
	seq, count, pending uint64
	time                time.Time
}

// parsePosition reads $JS.ACK.<stream>.<consumer>.<delivered>.<seq>.<count>.<time>.<pending>
// or the longer form with domain and account before the stream and possibly a
// token behind.
func parsePosition(reply string) (p position, ok bool) {
	t := strings.Split(reply, ".")
	if len(t) < 9 || t[0] != "$JS" || t[1] != "ACK" {
		return p, false
	}
	at := 5
	if len(t) > 9 {
		at = 7
	}
	if len(t) < at+4 {
		return p, false
	}
	var n [4]uint64
	for i := range n {
		v, err := strconv.ParseUint(t[at+i], 10, 64)
		if err != nil {
			return p, false
		}
		n[i] = v
	}
	return position{seq: n[0], count: n[1], time: time.Unix(0, int64(n[2])).UTC(), pending: n[3]}, true
}

// next returns the next message. With idle > 0 it returns nil after that long
// without one. Errors: errCursorLost, the end of ctx.
func (cur *cursor) next(ctx context.Context, idle time.Duration) (*nats.Msg, position, error) {
	var idleC <-chan time.Time
	if idle > 0 {
		t := time.NewTimer(idle)
		defer t.Stop()
		idleC = t.C
	}
	for {
		if cur.early {
			cur.early = false
			cur.s.timer.Reset(5 * time.Millisecond)
			select {
			case <-cur.s.timer.C:
			case <-cur.lost:
				return nil, position{}, errCursorLost
			case <-ctx.Done():
				return nil, position{}, ctx.Err()
			}
		}
		if cur.left < pullBatch/2 {
			if err := cur.pull(); err != nil {
				return nil, position{}, err
			}
		}
		var m *nats.Msg
		select {
		case m = <-cur.s.ch:
		default:
			// Only silence while waiting counts, not the user's own time.
			cur.s.timer.Reset(2*pullHeartbeat + pullHeartbeat/2)
			select {
			case m = <-cur.s.ch:
			case <-cur.lost:
				return nil, position{}, errCursorLost
			case <-cur.s.timer.C:
				return nil, position{}, errCursorLost
			case <-idleC:
				return nil, position{}, nil
			case <-ctx.Done():
				return nil, position{}, ctx.Err()
			}
		}
		if strings.HasPrefix(m.Subject, cur.s.prefix) {
			if err := cur.status(m); err != nil {
				return nil, position{}, err
			}
			continue
		}
		p, ok := parsePosition(m.Reply)
		if !ok {
			continue
		}
		if p.count != cur.count+1 {
			return nil, position{}, errCursorLost
		}
		cur.count = p.count
		cur.pending = p.pending
		cur.served()
		if p.seq < cur.start {
			// The consumer's replica was behind the start and began earlier.
			continue
		}
		return m, p, nil
	}
}

func (cur *cursor) pull() error {
	reply := cur.s.reply()
	req, err := json.Marshal(struct {
		Batch     int           `json:"batch"`
		Expires   time.Duration `json:"expires"`
		Heartbeat time.Duration `json:"idle_heartbeat"`
	}{pullBatch, pullExpires, pullHeartbeat})
	if err == nil {
		err = cur.c.send(&nats.Msg{Subject: cur.st.apiPrefix + "CONSUMER.MSG.NEXT." + cur.stream + "." + cur.name, Reply: reply, Data: req})
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errCursorLost, err)
	}
	cur.pulls = append(cur.pulls, pull{cur.s.n, pullBatch})
	cur.left += pullBatch
	return nil
}

// served takes one message off the oldest pull.
func (cur *cursor) served() {
	if len(cur.pulls) == 0 {
		return
	}
	cur.left--
	if cur.pulls[0].left--; cur.pulls[0].left == 0 {
		cur.pulls = cur.pulls[1:]
	}
}

// status handles what the server says about a pull.
func (cur *cursor) status(m *nats.Msg) error {
	switch m.Header.Get("Status") {
	case "100": // heartbeat
		return nil
	case "404", "408": // this pull has expired
	case "503":
		// In a cluster the server we talk to may not have heard yet of the
		// consumer that another one has just made.
		if cur.count > 0 || time.Since(cur.begin) > cur.st.cfg.APITimeout {
			return errCursorLost
		}
		cur.early = true
	case "409":
		// Besides the limits of a pull, which ours does not use, this is the
		// consumer's or the server's end, or a new leader.
		return errCursorLost
	default:
		return errCursorLost
	}
	id, err := strconv.ParseUint(strings.TrimPrefix(m.Subject, cur.s.prefix), 10, 64)
	if err != nil {
		return nil
	}
	for i, p := range cur.pulls {
		if p.id == id {
			cur.left -= p.left
			cur.pulls = append(cur.pulls[:i:i], cur.pulls[i+1:]...)
			break
		}
	}
	return nil
}
