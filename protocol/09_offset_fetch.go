package protocol

import (
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/broker/group"
	"github.com/hanzoai/stream/types"
)

// OffsetFetch (key 9, v1–v10) reads committed offsets.
//
//   - Nothing committed, an unknown topic, partition or group: offset −1, epoch
//     −1, metadata "", no error. Only an unknown id is UNKNOWN_TOPIC_ID.
//   - Null topics mean everything that is committed; an empty list is nothing.
//   - A group, and a partition within its group, that is given twice is answered
//     once: its first place counts.
//   - A group that is loading, moved or out of reach, or a topic or an offset
//     that cannot be looked up, is an error of the whole group, never −1: Java's
//     consumer ends on any partition error but UNSTABLE_OFFSET_COMMIT, and
//     retries the group's.
//   - COORDINATOR_NOT_AVAILABLE is told as NOT_COORDINATOR, as Kafka does it:
//     consumers before 3.9 end on the former here, and only here (KAFKA-17267).
//
// v2 null topics, top-level error (before it the group's error stands on every
// partition); v3 throttle time; v5 leader epoch (KIP-320); v6 flexible; v7
// require_stable (KIP-447); v8 many groups, errors per group (KIP-709); v9
// member id and epoch (KIP-848); v10 topic ids, no names.
//
// Left out: member epochs of KIP-848 (v9+) are not compared.
var offsetFetchAPI = api{key: 9, min: 1, max: 10, serve: (*handler).offsetFetch}

func (h *handler) offsetFetch(ctx context.Context, r *request) (kmsg.Response, error) {
	req := r.Request.(*kmsg.OffsetFetchRequest)
	resp := req.ResponseKind().(*kmsg.OffsetFetchResponse)
	if req.Version >= 8 {
		seen := make(map[string]bool, len(req.Groups))
		for _, rg := range req.Groups {
			if seen[rg.Group] {
				continue
			}
			seen[rg.Group] = true
			resp.Groups = append(resp.Groups, h.groupOffsets(ctx, req, rg))
		}
		return resp, nil
	}

	rg := kmsg.NewOffsetFetchRequestGroup()
	rg.Group = req.Group
	if req.Topics != nil || req.Version < 2 {
		rg.Topics = make([]kmsg.OffsetFetchRequestGroupTopic, len(req.Topics))
	}
	for i, rt := range req.Topics {
		rg.Topics[i].Topic, rg.Topics[i].Partitions = rt.Topic, rt.Partitions
	}
	sg := h.groupOffsets(ctx, req, rg)
	resp.ErrorCode = sg.ErrorCode
	if req.Version < 2 && sg.ErrorCode != 0 {
		sg.Topics = sg.Topics[:0]
		for _, rt := range rg.Topics {
			st := kmsg.NewOffsetFetchResponseGroupTopic()
			st.Topic = rt.Topic
			for _, p := range rt.Partitions {
				st.Partitions = append(st.Partitions, uncommitted(p, sg.ErrorCode))
			}
			sg.Topics = append(sg.Topics, st)
		}
	}
	for _, gt := range sg.Topics {
		st := kmsg.NewOffsetFetchResponseTopic()
		st.Topic = gt.Topic
		for _, gp := range gt.Partitions {
			st.Partitions = append(st.Partitions, kmsg.OffsetFetchResponseTopicPartition(gp))
		}
		resp.Topics = append(resp.Topics, st)
	}
	return resp, nil
}

// groupOffsets answers for one group. With an error the topics are empty.
func (h *handler) groupOffsets(ctx context.Context, req *kmsg.OffsetFetchRequest, rg kmsg.OffsetFetchRequestGroup) kmsg.OffsetFetchResponseGroup {
	sg := kmsg.NewOffsetFetchResponseGroup()
	sg.Group = rg.Group
	var topics []kmsg.OffsetFetchResponseGroupTopic
	var err error
	if rg.Topics == nil {
		topics, err = h.allOffsets(ctx, req, rg)
	} else {
		topics, err = h.namedOffsets(ctx, req, rg)
	}
	if err != nil {
		sg.ErrorCode = h.backend.Code(err, true)
		if sg.ErrorCode == kerr.CoordinatorNotAvailable.Code {
			sg.ErrorCode = kerr.NotCoordinator.Code
		}
		return sg
	}
	sg.Topics = topics
	return sg
}

// allOffsets lists everything that is committed for topics of today: an offset
// of a topic that was deleted is gone with it, also where the name lives on.
func (h *handler) allOffsets(ctx context.Context, req *kmsg.OffsetFetchRequest, rg kmsg.OffsetFetchRequestGroup) ([]kmsg.OffsetFetchResponseGroupTopic, error) {
	res := h.backend.Groups().Fetch(ctx, group.FetchRequest{Group: rg.Group, All: true, RequireStable: req.RequireStable})
	if res.Err != nil {
		return nil, res.Err
	}
	var topics []kmsg.OffsetFetchResponseGroupTopic
	var name string
	var id types.TopicID // of name today; zero: there is none
	for i, o := range res.Offsets {
		if i == 0 || o.Topic != name {
			name, id = o.Topic, types.TopicID{}
			t, err := h.backend.Topic(ctx, name)
			switch {
			case err == nil:
				id = t.ID
			case !unknownTopic(err):
				return nil, err
			}
		}
		if id.IsZero() {
			continue
		}
		sp, err := committed(o) // before the id is looked at: an offset that could not be read has none
		if err != nil {
			return nil, err
		}
		if id != o.TopicID {
			continue
		}
		if n := len(topics); n == 0 || topics[n-1].Topic != name {
			st := kmsg.NewOffsetFetchResponseGroupTopic()
			st.Topic, st.TopicID = name, id
			topics = append(topics, st)
		}
		st := &topics[len(topics)-1]
		st.Partitions = append(st.Partitions, sp)
	}
	return topics, nil
}

// namedOffsets answers for the topics of the request, in its order.
func (h *handler) namedOffsets(ctx context.Context, req *kmsg.OffsetFetchRequest, rg kmsg.OffsetFetchRequestGroup) ([]kmsg.OffsetFetchResponseGroupTopic, error) {
	fetch := group.FetchRequest{Group: rg.Group, RequireStable: req.RequireStable}
	topics := make([]kmsg.OffsetFetchResponseGroupTopic, len(rg.Topics))
	seen := map[produceKey]bool{}
	var answers []*kmsg.OffsetFetchResponseGroupTopicPartition // where the answer for fetch.Partitions[i] goes
	for i, rt := range rg.Topics {
		st := &topics[i]
		st.Topic, st.TopicID = rt.Topic, rt.TopicID
		rt.Partitions = slices.DeleteFunc(rt.Partitions, func(p int32) bool {
			k := produceKey{rt.Topic, rt.TopicID, p}
			again := seen[k]
			seen[k] = true
			return again
		})
		st.Partitions = make([]kmsg.OffsetFetchResponseGroupTopicPartition, len(rt.Partitions))
		t, err := h.topicOf(ctx, rt.Topic, rt.TopicID, req.Version >= 10)
		switch {
		case err == nil:
			t = h.upTo(ctx, t, rt.Partitions...)
		case refusedWith(err, kerr.UnknownTopicID):
			for j, p := range rt.Partitions {
				st.Partitions[j] = uncommitted(p, kerr.UnknownTopicID.Code)
			}
			continue
		case !unknownTopic(err):
			return nil, err
		}
		for j, p := range rt.Partitions {
			fp := group.FetchPartition{TopicPartition: types.TopicPartition{Topic: rt.Topic, Partition: p}}
			if t != nil {
				fp.Topic = t.Name
				if p >= 0 && p < t.Partitions {
					fp.TopicID = t.ID
				}
			}
			fetch.Partitions = append(fetch.Partitions, fp)
			answers = append(answers, &st.Partitions[j])
		}
	}
	res := h.backend.Groups().Fetch(ctx, fetch)
	if res.Err != nil {
		return nil, res.Err
	}
	for i, answer := range answers {
		sp, err := committed(res.Offsets[i])
		if err != nil {
			return nil, err
		}
		*answer = sp
	}
	return topics, nil
}

// committed turns one answer of the group into the wire's. An error is one that
// no partition may show.
func committed(o group.CommittedOffset) (sp kmsg.OffsetFetchResponseGroupTopicPartition, err error) {
	sp = kmsg.NewOffsetFetchResponseGroupTopicPartition()
	switch {
	case o.Err == nil:
		sp.Partition, sp.Offset, sp.LeaderEpoch, sp.Metadata = o.Partition, int64(o.Offset), o.LeaderEpoch, &o.Metadata
	case refusedWith(o.Err, kerr.UnstableOffsetCommit):
		sp = uncommitted(o.Partition, kerr.UnstableOffsetCommit.Code)
	default:
		err = o.Err
	}
	return sp, err
}

// uncommitted is the answer for a partition of which nothing is told.
func uncommitted(partition int32, code int16) kmsg.OffsetFetchResponseGroupTopicPartition {
	sp := kmsg.NewOffsetFetchResponseGroupTopicPartition()
	sp.Partition, sp.Offset, sp.Metadata, sp.ErrorCode = partition, int64(types.NoOffset), new(string), code
	return sp
}

// unknownTopic reports that there is surely no topic of this name: an impossible
// name is as unknown as a possible one.
func unknownTopic(err error) bool {
	return refusedWith(err, kerr.UnknownTopicOrPartition) || refusedWith(err, kerr.InvalidTopicException)
}
