package jetstream

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/hanzoai/stream/pubsub"
)

const (
	defaultReadBytes = 1 << 20
	// maxBatch is the most messages of one read; readers go on from the last.
	maxBatch = 1000
	// maxReadBytes: a server answers a read within the loop that serves the
	// connection (or the stream), so one read must not be long.
	maxReadBytes = 4 << 20
)

// Read implements pubsub.Log: for a reader that goes on where it was by a consumer
// (run.go), else by one batched Direct Get, or from servers before
// 2.11 by pipelined single ones. A limit above 1000 messages or 4 MiB is
// lowered to that. The last message may exceed MaxBytes.
func (l *log) Read(ctx context.Context, from pubsub.Seq, limit pubsub.Limit) ([]pubsub.Message, error) {
	if limit.MaxBytes <= 0 {
		limit.MaxBytes = defaultReadBytes
	}
	if limit.MaxMessages <= 0 {
		limit.MaxMessages = maxBatch
	}
	limit.MaxBytes = min(limit.MaxBytes, maxReadBytes)
	limit.MaxMessages = min(limit.MaxMessages, maxBatch)
	from = max(from, 1)

	held, err := l.read.budget.take(ctx, limit.MaxBytes)
	if err != nil {
		return nil, fmt.Errorf("read %s from %d: %w: %w", l.name, from, pubsub.ErrUnavailable, err)
	}
	defer l.read.budget.give(held)
	var ms []pubsub.Message
	if r := l.takeRun(ctx, uint64(from)); r != nil {
		if ms, err = l.readRun(ctx, r, limit); len(ms) > 0 {
			return ms, nil
		} else if err != nil {
			return nil, fmt.Errorf("read %s from %d: %w", l.name, from, readError(err))
		}
	}
	if l.read.batched.Load() {
		ms, err = l.readBatch(ctx, uint64(from), limit)
	} else {
		ms, err = l.readSingles(ctx, uint64(from), limit)
	}
	if len(ms) > 0 || err == nil {
		l.runs.noteRead(uint64(from), ms)
		return ms, nil
	}
	if errors.Is(err, errNoResponders) || errors.Is(err, errNoAnswer) && l.st.cfg.Domain != "" {
		// No replica serves the stream: ask JetStream whether it exists. Behind
		// a leaf node nobody says that there are no responders.
		if _, ierr := l.st.streamInfo(ctx, l.name); hasCode(ierr, codeStreamNotFound) {
			err = ierr
		}
	}
	return nil, fmt.Errorf("read %s from %d: %w", l.name, from, readError(err))
}

// errBroken: a message of the batch is missing between server and us.
var errBroken = fmt.Errorf("%w: answers are missing in between", errNoAnswer)

// statusError is a Direct Get refused as malformed: a bug of ours.
type statusError struct{ status, description string }

func (e *statusError) Error() string {
	return fmt.Sprintf("direct get: %s %s", e.status, e.description)
}

// copyWait is how long the n-th copy of a question to any replica waits for a word,
// from 0, when it has waited for so long already; 0: not at all. The replica that a
// server chose may have died or be frozen, which the server may not notice for a
// minute: in a cluster it is asked again, and that may be another one. A slow one is
// asked few times, and what it says to any copy counts.
func (l *log) copyWait(n int, waited time.Duration) time.Duration {
	left := l.st.cfg.ReadTimeout - waited
	if !l.st.clustered {
		return left
	}
	return min(left, askEvery<<min(n, 10))
}

// readBatch sends one request and takes messages until its end marker. Every
// message names the one sent before it; a break in that chain ends the read.
func (l *log) readBatch(ctx context.Context, from uint64, limit pubsub.Limit) (ms []pubsub.Message, err error) {
	c := l.read
	s, lost, err := c.take(&c.wide, wideDepth)
	if err != nil {
		return nil, err
	}
	ended := false // the end was seen, so nothing of this request will come
	copies := 1
	defer func() {
		if ended && copies == 1 {
			c.put(&c.wide, s)
			return
		}
		// Late answers could fill the channel of the slot's next user.
		s.drop()
	}()
	first := s.n + 1
	reply := s.reply()
	req := make([]byte, 0, 96)
	req = append(req, `{"seq":`...)
	req = strconv.AppendUint(req, from, 10)
	req = append(req, `,"batch":`...)
	req = strconv.AppendInt(req, int64(limit.MaxMessages), 10)
	req = append(req, `,"max_bytes":`...)
	req = strconv.AppendInt(req, int64(limit.MaxBytes), 10)
	if l.keyed {
		req = append(req, `,"next_by_subj":">"`...)
	}
	req = append(req, '}')
	if err := c.send(&nats.Msg{Subject: l.directGet, Reply: reply, Data: req}); err != nil {
		ended = errors.Is(err, errNotSent)
		return nil, err
	}
	began, waited := false, l.copyWait(0, 0)
	s.timer.Reset(waited)
	var last uint64
	for {
		var m *nats.Msg
		select {
		case m = <-s.ch:
		default:
			select {
			case m = <-s.ch:
			case <-lost:
				return ms, fmt.Errorf("%w: connection lost", errNoAnswer)
			case <-s.timer.C:
				wait := l.copyWait(copies, waited)
				if began || wait <= 0 {
					return ms, fmt.Errorf("%w within %v", errNoAnswer, l.st.cfg.ReadTimeout)
				}
				if err := c.send(&nats.Msg{Subject: l.directGet, Reply: s.reply(), Data: req}); err != nil {
					return nil, err
				}
				copies++
				waited += wait
				s.timer.Reset(wait)
				continue
			case <-ctx.Done():
				return ms, fmt.Errorf("%w: %w", errNoAnswer, ctx.Err())
			}
		}
		if !began {
			// Whichever copy is answered first is the one that is read.
			id, perr := strconv.ParseUint(strings.TrimPrefix(m.Subject, s.prefix), 10, 64)
			if perr != nil || id < first {
				continue
			}
			began, reply = true, m.Subject
			s.timer.Reset(l.st.cfg.ReadTimeout)
		}
		if m.Subject != reply {
			continue
		}
		prev, chained := uintOf(m.Header, hdrLastSequence)
		switch code := status(m); code {
		case "":
		case "204": // end of batch
			ended = true
			if prev != last {
				return ms, errBroken
			}
			return ms, nil
		case "404": // nothing at or after the sequence
			ended = true
			return ms, nil
		case "503":
			ended = true
			return ms, errNoResponders
		default:
			ended = true
			return ms, &statusError{code, m.Header.Get("Description")}
		}
		if chained && prev != last {
			return ms, errBroken
		}
		_, batched := m.Header[hdrNumPending]
		msg, ok := l.direct(m)
		if !ok {
			return ms, errBroken
		}
		last = uint64(msg.Seq)
		ms = append(ms, msg)
		if !batched {
			// A replica of an older version, in a cluster being upgraded,
			// answers one message and sends no end.
			ended = true
			return ms, nil
		}
		if len(s.ch) == 0 {
			s.timer.Reset(l.st.cfg.ReadTimeout)
		}
	}
}

// direct is a Direct Get answer of this log. Of a table's, subject and marker
// reason are kept, which belong to the value.
func (l *log) direct(m *nats.Msg) (pubsub.Message, bool) {
	if !l.keyed {
		return direct(m)
	}
	subject, reason := lastOf(m.Header, hdrSubject), m.Header[hdrMarker]
	msg, ok := direct(m)
	if !ok {
		return msg, false
	}
	if msg.Header == nil {
		msg.Header = pubsub.Header{}
	}
	msg.Header[hdrSubject] = []string{subject}
	if len(reason) > 0 {
		msg.Header[hdrMarker] = reason
	}
	return msg, true
}

// readSingles reads with single Direct Gets, several in flight. Each asks for
// the first message at or after a sequence, so an answer also proves the hole
// before it: replicas apply in order, hence one that has message m has all
// before m that exist. Without that, answers of two replicas could show a hole
// where one of them was only late.
func (l *log) readSingles(ctx context.Context, from uint64, limit pubsub.Limit) (ms []pubsub.Message, err error) {
	const maxWindow = 32
	window, size := 1, 0
	for next := from; ; {
		n := min(window, limit.MaxMessages-len(ms))
		got, complete, err := l.getNext(ctx, next, n)
		hole := false
		for i := 0; i < n && len(ms) < limit.MaxMessages && size < limit.MaxBytes; i++ {
			m, ok := got[next]
			if !ok {
				break
			}
			hole = hole || uint64(m.Seq) != next
			size += m.Size
			ms = append(ms, m)
			next = uint64(m.Seq) + 1
		}
		if err != nil || !complete || len(ms) >= limit.MaxMessages || size >= limit.MaxBytes {
			return ms, err
		}
		// In flight is what is expected to fit, doubling, one by one in holes.
		average := max(1, size/len(ms))
		window = min(2*window, maxWindow, max(1, (limit.MaxBytes-size)/average))
		if hole {
			window = 1
		}
	}
}

// getNext asks for the first messages at or after each of the n sequences from
// first on. complete: all were answered with a message.
func (l *log) getNext(ctx context.Context, first uint64, n int) (got map[uint64]pubsub.Message, complete bool, err error) {
	c := l.read
	s, lost, err := c.take(&c.wide, wideDepth)
	if err != nil {
		return nil, false, err
	}
	var asked []uint64 // by id, from base on
	waiting := make(map[uint64]struct{}, n)
	defer func() {
		if len(waiting) == 0 && len(asked) <= n {
			c.put(&c.wide, s)
			return
		}
		s.drop()
	}()
	base := s.n + 1
	ask := func(seq uint64) error {
		req := fmt.Appendf(nil, `{"seq":%d,"next_by_subj":%q}`, seq, l.anySubject())
		asked = append(asked, seq)
		return c.send(&nats.Msg{Subject: l.directGet, Reply: s.reply(), Data: req})
	}
	for i := range n {
		err := ask(first + uint64(i))
		if err == nil || !errors.Is(err, errNotSent) {
			waiting[first+uint64(i)] = struct{}{}
		}
		if err != nil && i == 0 {
			return nil, false, err
		}
		if err != nil {
			break
		}
	}
	got = make(map[uint64]pubsub.Message, n)
	copies, waited := 1, l.copyWait(0, 0)
	s.timer.Reset(waited)
	for len(waiting) > 0 {
		var m *nats.Msg
		select {
		case m = <-s.ch:
		case <-lost:
			return got, false, fmt.Errorf("%w: connection lost", errNoAnswer)
		case <-s.timer.C:
			wait := l.copyWait(copies, waited)
			if wait <= 0 {
				return got, false, fmt.Errorf("%w within %v", errNoAnswer, l.st.cfg.ReadTimeout)
			}
			for seq := range waiting {
				if err := ask(seq); err != nil {
					return got, false, err
				}
			}
			copies++
			waited += wait
			s.timer.Reset(wait)
			continue
		case <-ctx.Done():
			return got, false, fmt.Errorf("%w: %w", errNoAnswer, ctx.Err())
		}
		id, perr := strconv.ParseUint(strings.TrimPrefix(m.Subject, s.prefix), 10, 64)
		if perr != nil || id < base || id-base >= uint64(len(asked)) {
			continue
		}
		seq := asked[id-base]
		if _, ok := waiting[seq]; !ok {
			continue // another copy was answered
		}
		delete(waiting, seq)
		switch code := status(m); code {
		case "":
			if msg, ok := l.direct(m); ok {
				got[seq] = msg
			}
		case "404":
		case "503":
			err = errNoResponders
		default:
			err = &statusError{code, m.Header.Get("Description")}
		}
		// After a word of this copy the others have as long as it had.
		waited = l.copyWait(copies-1, 0)
		s.timer.Reset(waited)
	}
	return got, len(got) == n, err
}
