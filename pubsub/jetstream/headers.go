package jetstream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/hanzoai/stream/pubsub"
)

// recheck is how long a reader waits for what should come before it asks the
// leader whether it is still there.
const recheck = time.Second

// Headers implements pubsub.Log by one headers-only consumer. The consumer may
// run on a replica that is behind; so the end comes from the leader, and the
// consumer is waited for.
func (l *log) Headers(ctx context.Context, from, to pubsub.Seq, fn func(pubsub.Message) error) error {
	b, err := l.Bounds(ctx)
	if err != nil {
		return fmt.Errorf("headers: %w", err)
	}
	from = max(from, 1, b.First)
	end := min(to, b.Last)
	if b.Messages == 0 || end < from {
		return nil
	}
	wrap := func(err error) error {
		return fmt.Errorf("headers of %s from %d: %w", l.name, from, readError(err))
	}
	cur, err := l.st.openCursor(ctx, l.read, cursorConfig{stream: l.name, start: uint64(from), headersOnly: true})
	if err != nil {
		return wrap(err)
	}
	defer cur.close()
	for next := from; next <= end; {
		m, p, err := cur.next(ctx, recheck)
		switch {
		case err != nil:
			if !errors.Is(err, errCursorLost) {
				err = fmt.Errorf("%w: %w", errNoAnswer, err)
			}
			return wrap(err)
		case m == nil:
			// Late, or deleted since: nothing to wait for then.
			sm, err := l.st.getFromLeader(ctx, l.name, leaderGet{Seq: uint64(next), Next: l.anySubject()})
			if hasCode(err, codeNoMessage) || err == nil && pubsub.Seq(sm.Seq) > end {
				return nil
			}
			if err != nil {
				return wrap(err)
			}
			continue
		}
		if pubsub.Seq(p.seq) > to {
			return nil
		}
		next = pubsub.Seq(p.seq) + 1
		if err := fn(headerMessage(m, p)); err != nil {
			return err
		}
	}
	return nil
}

func (l *log) anySubject() string {
	if l.subject == "" {
		return ">"
	}
	return l.subject
}

// headerMessage is a message as a headers-only consumer delivers it.
func headerMessage(m *nats.Msg, p position) pubsub.Message {
	msg := pubsub.Message{Seq: pubsub.Seq(p.seq), Time: p.time}
	if n, ok := uintOf(m.Header, hdrSize); ok {
		msg.Size = int(n)
	}
	msg.Header = strip(m.Header)
	return msg
}
