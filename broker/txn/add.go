package txn

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// verify is what VerifyOnly asks: whether p is the producer, at a time at which it
// has, or may have, a transaction open.
func (s *State) verify(p Producer) error {
	if err := s.check(p); err != nil {
		return err
	}
	if s.deciding() {
		return kerr.ConcurrentTransactions
	}
	return nil
}

// open is the number of the open transaction, 0 if none is.
func (s *State) open() int64 {
	if s.state == Ongoing {
		return s.n
	}
	return 0
}

// addPartitions is AddPartitionsToTxn.
func (s *State) addPartitions(now time.Time, q AddPartitionsRequest) (AddPartitionsResponse, error) {
	var missing []Partition
	for _, p := range q.Partitions {
		if _, ok := s.partitions[p]; !ok {
			missing = append(missing, p)
		}
	}
	if q.VerifyOnly {
		return AddPartitionsResponse{N: s.open(), Missing: missing}, s.verify(q.Producer)
	}
	if err := s.admit(q.Producer); err != nil {
		return AddPartitionsResponse{}, err
	}
	if s.state != Ongoing || len(missing) > 0 {
		s.begin(now, q.Implicit)
		for _, p := range missing {
			s.partitions[p] = struct{}{}
		}
	}
	return AddPartitionsResponse{N: s.n}, nil
}

// addOffsets is AddOffsetsToTxn: to Kafka, a partition of committed offsets.
func (s *State) addOffsets(now time.Time, q AddOffsetsRequest) (AddOffsetsResponse, error) {
	_, in := s.groups[q.Group]
	if q.VerifyOnly {
		return AddOffsetsResponse{N: s.open(), Missing: !in}, s.verify(q.Producer)
	}
	if err := s.admit(q.Producer); err != nil {
		return AddOffsetsResponse{}, err
	}
	if s.state != Ongoing || !in {
		s.begin(now, q.Implicit)
		s.groups[q.Group] = struct{}{}
	}
	return AddOffsetsResponse{N: s.n}, nil
}

// admit reports whether p may add something to its transaction now.
func (s *State) admit(p Producer) error {
	if s.deciding() {
		return kerr.ConcurrentTransactions
	}
	return s.check(p)
}

// begin opens a transaction, unless one is open, to which something is added.
func (s *State) begin(now time.Time, bumps bool) {
	if s.state != Ongoing {
		s.state, s.start = Ongoing, s.stamp(now)
		s.n++
		s.await(now)
	}
	s.become(s.producer, s.lastEpoch)
	s.bumps = bumps
	s.changed(now)
}
