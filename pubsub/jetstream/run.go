package jetstream

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/hanzoai/stream/pubsub"
)

// A reader that goes through a log from one read to the next gets a pull consumer
// that waits where it goes on, instead of a Direct Get for each read: the server
// then copies every message once less and into memory that it has already (a
// Direct Get makes new memory for each message), which halves its part of the
// cost. A consumer is only ever a shorter way: whatever is odd about it (it is
// gone, it refuses, it has nothing) ends it, and a Direct Get has the last word.
//
// In a cluster making one takes a decision of all servers, so there are none.
const (
	// runAfter is how much a reader must have read in one go before a consumer
	// is made for it.
	runAfter = 4 << 20
	// runIdle is how long a consumer waits for the next read.
	runIdle = 5 * time.Second
	// maxRuns bounds the consumers of all logs together, maxLogRuns those of one.
	maxRuns, maxLogRuns = 256, 8
	// runPull is the most messages asked for at once.
	runPull = 256
	// maxAhead bounds the bytes read ahead for all readers together. After a read
	// as much is asked for again, so that the server works while the client does:
	// for readers that come again at once, and what is older than runFresh when
	// they do is not given to them.
	maxAhead = 32 << 20
	runFresh = 200 * time.Millisecond
	// runSlack is what a pull may bring beyond the data expected, for headers and
	// small changes of size: a large part and one for each message.
	runSlack, runSlackEach = 64 << 10, 1 << 10
	// runPatience is how long a consumer may be silent before a Direct Get is
	// tried instead: what is odd about it need not be odd about the stream.
	runPatience = time.Second
	// runTrouble puts off the next consumer after one could not be made.
	runTrouble = -64 << 20
)

// runs are those of one log.
type runs struct {
	mu    sync.Mutex // guards: all below
	idle  []*run     // oldest first
	ends  [8]streak
	count uint // of ends ever written
}

// streak is where a reader stopped and how much it had read in one go.
type streak struct {
	next  uint64
	bytes int
}

// run is a consumer and where it is. Whoever has taken it owns it.
type run struct {
	cur  *cursor
	next uint64
	size int // of its messages, rather too large
	idle *time.Timer

	reply string // of the last pull
	asked int    // messages of it that have not been taken yet
	ahead int64  // bytes of Store.ahead: they were asked for before anyone wanted them
	dry   bool   // nothing more can be had
	large bool   // the next message is larger than what was asked for

	kept  time.Time // when it began to wait for the next read
	quick bool      // the last read came soon after the one before
}

// noteRead remembers where a read from sequence from has ended.
func (rs *runs) noteRead(from uint64, ms []pubsub.Message) {
	if len(ms) == 0 {
		return
	}
	s := streak{next: uint64(ms[len(ms)-1].Seq) + 1}
	for i := range ms {
		s.bytes += ms[i].Size
	}
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for i := range rs.ends {
		if e := &rs.ends[i]; e.next == from {
			s.bytes += e.bytes
			*e = s
			return
		}
	}
	rs.ends[rs.count%uint(len(rs.ends))] = s
	rs.count++
}

// due reports whether a reader that goes on at from is worth a consumer; the
// answer is yes once.
func (rs *runs) due(from uint64, after int) bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for i := range rs.ends {
		if e := &rs.ends[i]; e.next == from && e.bytes >= after {
			e.bytes = runTrouble
			return true
		}
	}
	return false
}

// takeRun returns the consumer that waits at from, perhaps a new one, or nil.
func (l *log) takeRun(ctx context.Context, from uint64) *run {
	if l.keyed || l.st.clustered {
		return nil
	}
	l.runs.mu.Lock()
	for i, r := range l.runs.idle {
		if r.next == from {
			l.runs.idle = append(l.runs.idle[:i], l.runs.idle[i+1:]...)
			l.runs.mu.Unlock()
			r.idle.Stop()
			waited := time.Since(r.kept)
			r.quick = waited < l.st.runFresh/4
			if r.dry || lost(r.cur.lost) || r.asked > 0 && waited > l.st.runFresh {
				l.endRun(r)
				return nil
			}
			return r
		}
	}
	l.runs.mu.Unlock()
	if !l.runs.due(from, l.st.runAfter) {
		return nil
	}
	if l.st.runs.Add(1) > maxRuns {
		l.st.runs.Add(-1)
		return nil
	}
	cur, err := l.st.openCursor(ctx, l.read, cursorConfig{stream: l.name, start: from, idle: 2 * l.st.runIdle})
	if err != nil {
		l.st.runs.Add(-1)
		return nil
	}
	return &run{cur: cur, next: from}
}

// keepRun lets a consumer wait for the next read.
func (l *log) keepRun(r *run) {
	if r.idle == nil {
		r.idle = time.AfterFunc(l.st.runIdle, func() { l.expireRun(r) })
	} else {
		r.idle.Reset(l.st.runIdle)
	}
	r.kept = time.Now()
	l.runs.mu.Lock()
	l.runs.idle = append(l.runs.idle, r)
	var old *run
	if len(l.runs.idle) > maxLogRuns {
		old = l.runs.idle[0]
		l.runs.idle = append(l.runs.idle[:0], l.runs.idle[1:]...)
	}
	l.runs.mu.Unlock()
	if old != nil {
		old.idle.Stop()
		l.endRun(old)
	}
}

func (l *log) expireRun(r *run) {
	l.runs.mu.Lock()
	for i, x := range l.runs.idle {
		if x == r {
			l.runs.idle = append(l.runs.idle[:i], l.runs.idle[i+1:]...)
			l.runs.mu.Unlock()
			l.endRun(r)
			return
		}
	}
	l.runs.mu.Unlock() // taken just now
}

func (l *log) endRun(r *run) {
	l.st.ahead.Add(-r.ahead)
	r.cur.close()
	l.st.runs.Add(-1)
}

// readRun reads through a consumer. No messages and no error mean that a Direct
// Get has to be asked. What was asked for and not wanted any more is for the next
// read.
func (l *log) readRun(ctx context.Context, r *run, limit pubsub.Limit) (ms []pubsub.Message, err error) {
	l.st.ahead.Add(-r.ahead)
	r.ahead = 0
	for size := 0; size < limit.MaxBytes && len(ms) < limit.MaxMessages; {
		var m *pubsub.Message
		if r.asked == 0 && !r.dry {
			n := 1
			if r.size > 0 && !r.large {
				n = min(max(1, (limit.MaxBytes-size)/r.size), limit.MaxMessages-len(ms), runPull)
			}
			r.large = false
			err = l.pull(r, n)
		}
		if err == nil && !r.dry {
			m, err = l.nextOfRun(ctx, r)
		}
		if m == nil && r.large && err == nil {
			r.asked = 0
			continue
		}
		if m == nil {
			l.endRun(r)
			return ms, err
		}
		size += m.Size
		ms = append(ms, *m)
	}
	r.cur.s.timer.Stop()
	if r.quick && r.asked == 0 && !r.dry {
		l.readAhead(r, min(len(ms), max(1, limit.MaxBytes/max(r.size, 1)), runPull))
	}
	l.keepRun(r)
	return ms, nil
}

// readAhead asks for n messages that the next read will want.
func (l *log) readAhead(r *run, n int) {
	r.ahead = int64(n * r.size)
	if l.st.ahead.Add(r.ahead) > maxAhead {
		l.st.ahead.Add(-r.ahead)
		r.ahead = 0
	} else if l.pull(r, n) != nil {
		r.dry = true
	}
}

func lost(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// pull asks for n messages, and for no more bytes than so many of the last one's
// size have: what comes now may be larger, and nothing else bounds it. One message
// may have any size.
func (l *log) pull(r *run, n int) error {
	r.reply = r.cur.s.reply()
	req := strconv.AppendInt([]byte(`{"no_wait":true,"batch":`), int64(n), 10)
	if n > 1 {
		req = append(req, `,"max_bytes":`...)
		req = strconv.AppendInt(req, int64(n*(r.size+runSlackEach)+runSlack), 10)
	}
	req = append(req, '}')
	err := r.cur.c.send(&nats.Msg{Subject: l.st.apiPrefix + "CONSUMER.MSG.NEXT." + l.name + "." + r.cur.name, Reply: r.reply, Data: req})
	if err == nil {
		r.asked = n
	}
	return err
}

// nextOfRun takes one message of those asked for. None without an error: there
// are no more, the next one is larger than what was asked for (r.large), or the
// consumer is of no more use.
func (l *log) nextOfRun(ctx context.Context, r *run) (*pubsub.Message, error) {
	cur, s := r.cur, r.cur.s
	for {
		var m *nats.Msg
		select {
		case m = <-s.ch:
		default:
			s.timer.Reset(min(runPatience, l.st.cfg.ReadTimeout))
			select {
			case m = <-s.ch:
			case <-cur.lost:
				return nil, fmt.Errorf("%w: connection lost", errNoAnswer)
			case <-s.timer.C:
				return nil, nil
			case <-ctx.Done():
				return nil, fmt.Errorf("%w: %w", errNoAnswer, ctx.Err())
			}
		}
		if strings.HasPrefix(m.Subject, s.prefix) {
			if m.Subject == r.reply {
				r.large = status(m) == "409" && strings.HasPrefix(m.Header.Get("Description"), "Message Size Exceeds MaxBytes")
				return nil, nil
			}
			continue
		}
		p, ok := parsePosition(m.Reply)
		if !ok || p.count != cur.count+1 || p.seq < r.next {
			return nil, nil
		}
		cur.count = p.count
		r.asked--
		// Where the log ends the server says no more about what it did not send.
		r.dry = p.pending == 0
		r.next = p.seq + 1
		r.size = max(len(m.Data), r.size-r.size/8)
		msg := message(m, p)
		return &msg, nil
	}
}

// message is a message as a consumer delivers it.
func message(m *nats.Msg, p position) pubsub.Message {
	return pubsub.Message{Seq: pubsub.Seq(p.seq), Time: p.time, Header: strip(m.Header), Data: m.Data, Size: len(m.Data), Release: releaseOf(m)}
}
