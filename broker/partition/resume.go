package partition

import (
	"fmt"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/types"
)

// cut is a break in the log that an operator has accepted: the sequences From
// to To are no part of it (none if To is From-1), and the message after To
// begins at offset Base, whatever it names as its predecessor. The offsets Next
// to Base-1 are lost or were never given; none of them is given again.
type cut struct {
	From pubsub.Seq   `json:"from"`
	To   pubsub.Seq   `json:"to"`
	Next types.Offset `json:"next"`
	Base types.Offset `json:"base"`
}

// cuts are the breaks of a log by sequence. They are stored in the partition
// record and explain the log to every reader. Nobody changes them in place.
type cuts []cut

// check refuses cuts that cannot be obeyed.
func (cs cuts) check() error {
	from, next := pubsub.Seq(1), types.Offset(0)
	for _, c := range cs {
		if c.From < from || c.To+1 < c.From || c.Next < next || c.Base < c.Next {
			return fmt.Errorf("break after sequence %d: sequences and offsets do not rise", c.To)
		}
		from, next = c.To+1, c.Base
	}
	return nil
}

// after tells where the log goes on, if by its messages alone the next would be
// seq with base offset next.
func (cs cuts) after(seq pubsub.Seq, next types.Offset) (pubsub.Seq, types.Offset) {
	for _, c := range cs {
		if c.From == seq {
			seq, next = c.To+1, c.Base
		}
	}
	return seq, next
}

// begin reports that a break begins before seq, whose message may name any
// predecessor.
func (cs cuts) begin(seq pubsub.Seq) bool {
	for _, c := range cs {
		if c.From == seq {
			return true
		}
	}
	return false
}

// member is the first sequence from seq on that is part of the log.
func (cs cuts) member(seq pubsub.Seq) pubsub.Seq {
	for _, c := range cs {
		if c.From <= seq && seq <= c.To {
			seq = c.To + 1
		}
	}
	return seq
}

// forward is where a reader at offset goes on: at the end of the break if the
// offset lies in one, as after a deletion.
func (cs cuts) forward(offset types.Offset) types.Offset {
	for _, c := range cs {
		if c.Next <= offset && offset < c.Base {
			offset = c.Base
		}
	}
	return offset
}

// stop is where a committed reader at offset stops, who may read up to limit: at the
// next break, so that what was cut off by it as aborted is not mixed with what
// comes after it. No marker tells them apart.
func (cs cuts) stop(offset, limit types.Offset) types.Offset {
	for _, c := range cs {
		if offset < c.Next {
			limit = min(limit, c.Next)
		}
	}
	return limit
}

// skip moves a state over the break that begins after its last message.
func (s *state) skip() {
	for _, c := range s.cuts {
		if c.From == s.seq+1 {
			s.breakOff(c)
			// What comes next may name any predecessor; its base proves it.
			s.seq, s.id, s.next = c.To, "", c.Base
		}
	}
}
