package txn

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/hanzoai/stream/broker/coord"
	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/types"
)

// record is a transactional id as stored under Token(id).
type record struct {
	coord.Envelope
	ID         string                    `json:"id"`
	State      string                    `json:"state"`
	N          int64                     `json:"n"`
	ProducerID int64                     `json:"producer_id"`
	Epoch      int16                     `json:"epoch"`
	Previous   int64                     `json:"previous_producer_id"`
	LastEpoch  int16                     `json:"last_epoch"`
	Next       int64                     `json:"next_producer_id"`
	Timeout    int64                     `json:"timeout_ms"`
	Start      int64                     `json:"start"`   // ms, -1 none
	Updated    int64                     `json:"updated"` // ms
	Version    int                       `json:"transaction_version"`
	Partitions map[types.TopicID][]int32 `json:"partitions,omitempty"`
	Groups     []string                  `json:"groups,omitempty"`
	InitBy     string                    `json:"init_by,omitempty"`
	EndBy      string                    `json:"end_by,omitempty"`
	Graced     int64                     `json:"graced,omitempty"`
}

// Headers of a record, for listing without payload.
const (
	idHeader       = "Txn" // percent-encoded; only where the key is a hash
	stateHeader    = "State"
	producerHeader = "Producer"
	startHeader    = "Start"   // ms
	updatedHeader  = "Updated" // ms
)

// The versions of transactions that a client may be of: below 2 it keeps its epoch
// from one to the next.
const (
	versionClassic = 1
	versionBumps   = 2
)

// Encode implements coord.State.
func (s *State) Encode(e coord.Envelope) ([]byte, pubsub.Header, error) {
	r := record{
		Envelope: e, ID: s.id, State: s.state, N: s.n,
		ProducerID: s.producer.ID, Epoch: s.producer.Epoch, Previous: s.previous, LastEpoch: s.lastEpoch, Next: s.next,
		Timeout: s.timeout.Milliseconds(), Start: s.start, Updated: s.updated, Version: versionClassic,
		Groups: s.listGroups(), InitBy: s.initBy, EndBy: s.endBy, Graced: s.graced,
	}
	if s.bumps {
		r.Version = versionBumps
	}
	if len(s.partitions) > 0 {
		r.Partitions = map[types.TopicID][]int32{}
		for _, p := range s.listPartitions() {
			r.Partitions[p.Topic] = append(r.Partitions[p.Topic], p.N)
		}
	}
	body, err := coord.Marshal(r, s.extra)
	if err != nil {
		return nil, nil, err
	}
	h := pubsub.Header{
		stateHeader:    {s.state},
		producerHeader: {strconv.FormatInt(s.producer.ID, 10)},
		startHeader:    {strconv.FormatInt(s.start, 10)},
		updatedHeader:  {strconv.FormatInt(s.updated, 10)},
	}
	if _, ok := pubsub.Name(pubsub.Token(s.id)); !ok {
		h[idHeader] = []string{url.QueryEscape(s.id)}
	}
	s.dirty, s.unstored = false, false
	return body, h, nil
}

// Decode implements coord.State.
func (s *State) Decode(body []byte) error {
	var r record
	extra, err := coord.Unmarshal(body, &r)
	if err != nil {
		return err
	}
	switch r.State {
	case Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort:
	default:
		return fmt.Errorf("transactional id in state %q: %w", r.State, coord.ErrVersion)
	}
	s.exists, s.extra, s.id, s.state, s.n = true, extra, r.ID, r.State, r.N
	s.producer, s.previous, s.lastEpoch, s.next = Producer{r.ProducerID, r.Epoch}, r.Previous, r.LastEpoch, r.Next
	s.timeout, s.start, s.updated = time.Duration(r.Timeout)*time.Millisecond, r.Start, r.Updated
	s.bumps, s.initBy, s.endBy = r.Version >= versionBumps, r.InitBy, r.EndBy
	// Who reads it takes it over, and says so with its first write.
	s.adopted, s.graced = r.Graced != r.N, r.N
	for id, ns := range r.Partitions {
		for _, n := range ns {
			s.partitions[Partition{id, n}] = struct{}{}
		}
	}
	for _, g := range r.Groups {
		s.groups[g] = struct{}{}
	}
	return nil
}

// Dirty implements coord.State.
func (s *State) Dirty() bool { return s.dirty }

// Value implements coord.State: there is nothing below a record's key.
func (s *State) Value(pubsub.Value) {}

// Flush implements coord.State.
func (s *State) Flush(context.Context, coord.Envelope) error { return nil }

var _ coord.State = (*State)(nil)

// nameOf is the transactional id that a record's key stands for; false if only the
// value has it.
func nameOf(e coord.Entry) (string, bool) {
	if id, ok := pubsub.Name(e.Key); ok {
		return id, true
	}
	if h := e.Header.Get(idHeader); h != "" {
		if id, err := url.QueryUnescape(h); err == nil {
			return id, true
		}
	}
	return "", false
}

// number reads a header; -1 if it is none.
func number(e coord.Entry, header string) int64 {
	n, err := strconv.ParseInt(e.Header.Get(header), 10, 64)
	if err != nil {
		return -1
	}
	return n
}
