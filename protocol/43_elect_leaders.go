package protocol

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/broker/topic"
)

// ElectLeaders (key 43, v0–v2) asks for the election of leaders, of which none
// is ever due: the leader that clients see is the one replica that they see,
// and always the preferred one.
//
//   - Named partitions are ELECTION_NOT_NEEDED, unknown ones
//     UNKNOWN_TOPIC_OR_PARTITION; a topic named without partitions is answered
//     without partitions.
//   - null means all partitions: Kafka then leaves those out that need no
//     election, so every topic is there and has none.
//   - An election type other than preferred (0) and unclean (1) is
//     INVALID_REQUEST, on each partition too.
//
// v1 election type (KIP-460) and top-level error; v2 flexible.
var electLeadersAPI = api{key: 43, min: 0, max: 2, large: true, serve: (*handler).electLeaders}

// uncleanElection is the higher of the two election types
// (org.apache.kafka.common.ElectionType).
const uncleanElection = 1

func (h *handler) electLeaders(ctx context.Context, r *request) (kmsg.Response, error) {
	req := r.Request.(*kmsg.ElectLeadersRequest)
	resp := req.ResponseKind().(*kmsg.ElectLeadersResponse)
	ctx, cancel := adminTimeout(ctx, req.TimeoutMillis)
	defer cancel()
	var bad error
	if req.ElectionType < 0 || req.ElectionType > uncleanElection {
		bad = refuse(kerr.InvalidRequest, "Unknown election type %d", req.ElectionType)
		resp.ErrorCode = h.backend.Code(bad, false)
	}
	if req.Topics == nil && bad == nil {
		topics, err := h.backend.Topics(ctx)
		if err != nil {
			if resp.ErrorCode = h.backend.Code(err, false); req.Version < 1 {
				return nil, err // no place for a code, and no topics would be a lie
			}
			return resp, nil
		}
		for _, t := range topics {
			st := kmsg.NewElectLeadersResponseTopic()
			st.Topic = t.Name
			resp.Topics = append(resp.Topics, st)
		}
		return resp, nil
	}
	find := h.finder(ctx)
	for i := range req.Topics {
		rt := &req.Topics[i]
		st := kmsg.NewElectLeadersResponseTopic()
		st.Topic = rt.Topic
		st.Partitions = make([]kmsg.ElectLeadersResponseTopicPartition, len(rt.Partitions))
		for j, n := range rt.Partitions {
			err := bad
			if err == nil {
				err = h.election(ctx, find, rt.Topic, n)
			}
			sp := &st.Partitions[j]
			*sp = kmsg.NewElectLeadersResponseTopicPartition()
			sp.Partition = n
			sp.ErrorCode, sp.ErrorMessage = h.refusal(err, false)
		}
		resp.Topics = append(resp.Topics, st)
	}
	return resp, nil
}

// election is why no leader of a partition is elected.
func (h *handler) election(ctx context.Context, find func(name string) (*topic.Topic, error), name string, n int32) error {
	t, err := find(name)
	switch {
	case notThere(err):
		return refuse(kerr.UnknownTopicOrPartition, "No such topic as %s", name)
	case err != nil:
		return err
	case n < 0 || n >= h.upTo(ctx, t, n).Partitions:
		return refuse(kerr.UnknownTopicOrPartition, "No such partition as %s-%d", name, n)
	}
	return errElectionNotNeeded
}

var errElectionNotNeeded = refuse(kerr.ElectionNotNeeded, "Leader election not needed for topic partition.")

// finder looks topics up by name, each once in a request that names it often.
func (h *handler) finder(ctx context.Context) func(name string) (*topic.Topic, error) {
	type found struct {
		t   *topic.Topic
		err error
	}
	known := map[string]found{}
	return func(name string) (*topic.Topic, error) {
		f, ok := known[name]
		if !ok {
			f.t, f.err = h.backend.Topic(ctx, name)
			known[name] = f
		}
		return f.t, f.err
	}
}

// notThere reports that there is no topic of that name, or can be none.
func notThere(err error) bool {
	return refusedWith(err, kerr.UnknownTopicOrPartition) || refusedWith(err, kerr.InvalidTopicException)
}
