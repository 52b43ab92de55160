package group

import (
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/broker/coord"
	"github.com/hanzoai/stream/types"
)

// fetch is OffsetFetch up to the store: it plans to fence the keys in question.
// The function it returns gives the answer when that is done.
func (s *State) fetch(r FetchRequest) func() FetchResponse {
	ps := r.Partitions
	if r.All {
		ps = nil
		for _, tp := range s.committed() {
			ps = append(ps, FetchPartition{TopicPartition: tp})
		}
	}
	plans := make([]*op, len(ps))
	for i, p := range ps {
		if r.All || !p.TopicID.IsZero() {
			s.fence(p.TopicPartition)
			plans[i] = s.offsets.ops[p.TopicPartition]
		}
	}
	return func() FetchResponse {
		resp := FetchResponse{Offsets: make([]CommittedOffset, 0, len(ps))}
		for i, p := range ps {
			en := s.offsets.m[p.TopicPartition]
			v := s.visible(en)
			c := CommittedOffset{TopicPartition: p.TopicPartition, TopicID: p.TopicID, Offset: types.NoOffset, LeaderEpoch: -1}
			switch {
			case en != nil && en.err != nil:
				c.Err = coord.Refusal(en.err)
			case plans[i] != nil && plans[i].err != nil && (en == nil || !s.fenced(en)):
				c.Err = coord.Refusal(plans[i].err)
			case en != nil && en.unsure:
				c.Err = kerr.CoordinatorNotAvailable
			case r.All && v == nil:
				continue // nothing has been committed yet
			case r.All && r.RequireStable && s.unstable(en, v.TopicID):
				c.TopicID, c.Err = v.TopicID, kerr.UnstableOffsetCommit
			case !r.All && r.RequireStable && !p.TopicID.IsZero() && s.unstable(en, p.TopicID):
				c.Err = kerr.UnstableOffsetCommit
			case !r.All && (v == nil || v.TopicID != p.TopicID):
			default:
				c.TopicID, c.Offset, c.LeaderEpoch, c.Metadata = v.TopicID, v.Offset, v.Epoch, v.Metadata
			}
			resp.Offsets = append(resp.Offsets, c)
		}
		return resp
	}
}
