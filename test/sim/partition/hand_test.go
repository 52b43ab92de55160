package partition

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hanzoai/stream/broker/partition"
	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/types"
)

// others is how the gateway on a seat reaches those on the other seats: by
// requests through the store, which the weather may lose, and whose answers too.
type others struct {
	s *run
	x *seat
}

// hintFor is how long a seat is the hinted appender. Seats do not move from one
// to the next at the same moment: their views of who lives differ.
const hintFor = 5 * time.Second

func (o others) at(i int) *seat { return o.s.seats[i] }

// Appender implements partition.Others.
func (o others) Appender(types.TopicID, int32) partition.Send {
	now := time.Since(o.s.began) + time.Duration(o.x.number)*500*time.Millisecond
	to := o.at(int(now/hintFor) % len(o.s.seats))
	if to == o.x {
		return nil
	}
	return o.send(to)
}

// All implements partition.Others.
func (o others) All() (all []partition.Send) {
	for _, x := range o.s.seats {
		if x != o.x {
			all = append(all, o.send(x))
		}
	}
	return all
}

// send reaches whoever sits on a seat now, and nobody who comes later.
func (o others) send(to *seat) partition.Send {
	subject := to.address()
	return func(ctx context.Context, request []byte) ([]byte, error) {
		_, c := o.x.now()
		b, err := c.Request(ctx, subject, request)
		switch {
		case errors.Is(err, pubsub.ErrNotFound), errors.Is(err, pubsub.ErrUnavailable), err == nil && len(b) == 0:
			return nil, partition.ErrNotHanded
		case err != nil:
			return nil, err
		}
		return b[1:], nil
	}
}

func (x *seat) address() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return fmt.Sprintf("hand.%d.%d", x.number, x.life)
}

// serveHandOvers answers the others under the seat's address.
func (s *run) serveHandOvers(x *seat, h *partition.Host, c pubsub.Store) (cancel func()) {
	from := x.address()
	cancel, err := c.Serve(from, func(ctx context.Context, request []byte) []byte {
		b, err := h.TakeOver(ctx, "another", request, func(context.Context, types.TopicID, int32) (*partition.Partition, error) {
			return h.Find(s.id, 0), nil
		})
		if err != nil {
			return nil
		}
		return append([]byte{1}, b...)
	})
	if err != nil {
		s.t.Error(err)
	}
	return cancel
}
