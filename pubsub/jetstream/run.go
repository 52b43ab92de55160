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
	r.cur.close()
	l.st.runs.Add(-1)
}

// readRun reads through a consumer. No messages and no error mean that a Direct
// Get has to be asked.
func (l *log) readRun(ctx context.Context, r *run, limit pubsub.Limit) (ms []pubsub.Message, err error) {
	good := false
	defer func() {
		if good {
			l.keepRun(r)
		} else {
			l.endRun(r)
		}
	}()
	size := 0
	for size < limit.MaxBytes && len(ms) < limit.MaxMessages {
		n := min(max(1, (limit.MaxBytes-size)/max(1, r.size)), limit.MaxMessages-len(ms), runPull)
		if r.size == 0 {
			n = 1
		}
		got, err := l.pullRun(ctx, r, n)
		for i := range got {
			size += got[i].Size
		}
		ms = append(ms, got...)
		if len(got) < n || err != nil {
			return ms, err
		}
	}
	good = true
	return ms, nil
}

// pullRun asks for n messages. Fewer without an error: there are no more, or the
// consumer is of no more use.
func (l *log) pullRun(ctx context.Context, r *run, n int) (ms []pubsub.Message, err error) {
	cur, s := r.cur, r.cur.s
	reply := s.reply()
	req := append(strconv.AppendInt([]byte(`{"no_wait":true,"batch":`), int64(n), 10), '}')
	if err := cur.c.send(&nats.Msg{Subject: l.st.apiPrefix + "CONSUMER.MSG.NEXT." + l.name + "." + cur.name, Reply: reply, Data: req}); err != nil {
		return nil, err
	}
	s.timer.Reset(l.st.cfg.ReadTimeout)
	defer s.timer.Stop()
	for len(ms) < n {
		var m *nats.Msg
		select {
		case m = <-s.ch:
		default:
			select {
			case m = <-s.ch:
			case <-cur.lost:
				return ms, fmt.Errorf("%w: connection lost", errNoAnswer)
			case <-s.timer.C:
				return ms, fmt.Errorf("%w within %v", errNoAnswer, l.st.cfg.ReadTimeout)
			case <-ctx.Done():
				return ms, fmt.Errorf("%w: %w", errNoAnswer, ctx.Err())
			}
		}
		if strings.HasPrefix(m.Subject, s.prefix) {
			if m.Subject == reply {
				return ms, nil
			}
			continue
		}
		p, ok := parsePosition(m.Reply)
		if !ok || p.count != cur.count+1 || p.seq < r.next {
			return ms, nil
		}
		cur.count = p.count
		r.next = p.seq + 1
		r.size = max(len(m.Data), r.size-r.size/8)
		ms = append(ms, message(m, p))
		if len(s.ch) == 0 {
			s.timer.Reset(l.st.cfg.ReadTimeout)
		}
	}
	return ms, nil
}

// message is a message as a consumer delivers it.
func message(m *nats.Msg, p position) pubsub.Message {
	return pubsub.Message{Seq: pubsub.Seq(p.seq), Time: p.time, Header: strip(m.Header), Data: m.Data, Size: len(m.Data), Release: releaseOf(m)}
}
