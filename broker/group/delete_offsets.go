package group

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/types"
)

// DeleteOffsetsResponse answers DeleteOffsets. Err is for the whole group;
// Partitions are in the order of the request.
type DeleteOffsetsResponse struct {
	Err        error   `json:"-"`
	Partitions []error `json:"-"`
}

// DeleteOffsets forgets what a group committed for some partitions, but for
// topics that its members read (OffsetDelete, KIP-496). It returns when that is
// stored. What was never committed counts as forgotten. What open transactions
// committed is forgotten with it, as in Kafka.
func (co *Coordinator) DeleteOffsets(ctx context.Context, name string, partitions []types.TopicPartition) DeleteOffsetsResponse {
	if name == "" || len(name) > maxName {
		return DeleteOffsetsResponse{Err: kerr.InvalidGroupID}
	}
	out, err := co.planned(ctx, name, func(t *turn) ([]*op, []error, error) { return t.State.deleteOffsets(partitions) })
	if err != nil {
		return DeleteOffsetsResponse{Err: err}
	}
	return DeleteOffsetsResponse{Partitions: out}
}

// deleteOffsets is OffsetDelete up to the store: it returns, per partition, the
// plan whose outcome is the answer (nil: nothing to do), or the refusal. After
// Kafka's OffsetMetadataManager.deleteOffsets and ClassicGroup.
func (s *State) deleteOffsets(partitions []types.TopicPartition) (plans []*op, refused []error, err error) {
	switch {
	case !s.exists:
		return nil, nil, kerr.GroupIDNotFound
	case s.phase != Empty && s.protocolType != consumerType:
		return nil, nil, kerr.NonEmptyGroup
	}
	reads := s.subscriptions()
	plans, refused = make([]*op, len(partitions)), make([]error, len(partitions))
	for i, tp := range partitions {
		if reads(tp.Topic) {
			refused[i] = kerr.GroupSubscribedToTopic
			continue
		}
		en := s.offsets.m[tp]
		switch {
		case s.offsets.ops[tp] != nil || s.visible(en) != nil || s.unstable(en, types.TopicID{}) || en != nil && (en.unsure || en.err != nil):
			plans[i] = s.offsets.plan(tp, change{erase: true})
		case !s.fenced(en):
			s.fence(tp)
			plans[i] = s.offsets.ops[tp]
		}
	}
	return plans, refused, nil
}

// consumerType is the protocol type of groups whose metadata is a subscription.
const consumerType = "consumer"

// subscriptions tells which topics the members read, by what they said in the
// protocol of this generation. Where that cannot be told, because they have not
// chosen one yet or one of them says what cannot be read, it is every topic.
func (s *State) subscriptions() (reads func(topic string) bool) {
	if s.phase == Empty {
		return func(string) bool { return false }
	}
	topics := map[string]bool{}
	for _, m := range s.members {
		var sub kmsg.ConsumerMemberMetadata
		b := m.metadata(s.protocol)
		if b == nil || sub.ReadFrom(*b) != nil || sub.Version < 0 {
			return func(string) bool { return true }
		}
		for _, t := range sub.Topics {
			topics[t] = true
		}
	}
	return func(topic string) bool { return topics[topic] }
}
