package group

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// checkCommit says whether the caller may commit. A group that does not exist
// is one that anybody outside of a generation may commit to. After Kafka's
// OffsetMetadataManager.validateOffsetCommit and ClassicGroup.
func (s *State) checkCommit(r CommitRequest) error {
	switch {
	case !s.exists && r.Generation < 0:
		return nil
	case !s.exists && r.V9 && r.Txn == nil:
		return kerr.GroupIDNotFound
	case !s.exists:
		return kerr.IllegalGeneration
	case r.Generation < 0 && s.phase == Empty:
		return nil
	case r.Generation >= 0 || r.Member != "" || r.Instance != nil:
		if _, err := s.validate(r.Member, r.Instance); err != nil {
			return err
		}
		if r.Generation != s.generation {
			return kerr.IllegalGeneration
		}
	case r.Txn == nil && s.phase != Empty:
		// The first versions of TxnOffsetCommit know no members: its producer's epoch
		// is all that fences there.
		return kerr.UnknownMemberID
	}
	if r.Txn == nil && s.phase == CompletingRebalance {
		// The member has joined this generation and has not got its share: what it
		// commits belongs to the one before.
		return kerr.RebalanceInProgress
	}
	return nil
}

// commit is OffsetCommit, and TxnOffsetCommit, up to the store: it returns, per
// partition, the plan whose outcome is the answer, or the refusal.
func (s *State) commit(now time.Time, r CommitRequest) (plans []*op, refused []error, err error) {
	if err := s.checkCommit(r); err != nil {
		return nil, nil, err
	}
	if r.Txn != nil && s.hasEnded(r.Txn.ProducerID, r.Txn.N) {
		// It was on its way for long. Whoever sent it has ended the transaction since,
		// or it was ended for him with a higher epoch.
		return nil, nil, kerr.InvalidProducerEpoch
	}
	plans, refused = make([]*op, len(r.Partitions)), make([]error, len(r.Partitions))
	for i, p := range r.Partitions {
		metadata := ""
		if p.Metadata != nil {
			metadata = *p.Metadata
		}
		if len(metadata) > s.c.MaxMetadataBytes {
			refused[i] = kerr.OffsetMetadataTooLarge
			continue
		}
		s.create(now)
		c := commit{TopicID: p.TopicID, Offset: p.Offset, Epoch: p.LeaderEpoch, Metadata: metadata, Timestamp: now.UnixMilli()}
		if r.Txn == nil {
			plans[i] = s.offsets.plan(p.TopicPartition, change{commit: &c})
			continue
		}
		plans[i] = s.offsets.plan(p.TopicPartition, change{pending: &pendingCommit{
			ProducerID: r.Txn.ProducerID, N: r.Txn.N, Transactional: r.Txn.TransactionalID, commit: c,
		}})
	}
	if m := s.byID[r.Member]; m != nil && r.Txn == nil && (s.phase == Stable || s.phase == PreparingRebalance) {
		s.alive(now, m)
	}
	return plans, refused, nil
}
