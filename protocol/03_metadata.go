package protocol

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/broker/topic"
	"github.com/hanzoai/stream/types"
)

// Metadata (key 3, v0–v13) names the brokers and the topics with their leaders.
//
//   - v0: no topics means all. v1+: null means all, an empty list none.
//   - A topic that is named and unknown is made if auto.create.topics.enable is
//     set and the request allows it (v0–v3 always do), else
//     UNKNOWN_TOPIC_OR_PARTITION. A request for all topics makes none.
//   - v12+: topics may be named by id, with null for the name; an unknown id is
//     UNKNOWN_TOPIC_ID. In v10 and v11 an id or a null name makes the whole
//     request INVALID_REQUEST.
//   - Leader epoch 0. As many replicas, in-sync and offline ones as the stream has,
//     the leader first (handler.replicas). Any broker serves any partition: a
//     leader is a hint.
//   - Authorized operations are all there are when asked for, else −2147483648.
//
// v1 controller, rack, internal flag; v2 cluster id; v3 throttle time; v4
// auto-create flag; v5 offline replicas; v7 leader epochs; v8 authorized
// operations; v9 flexible; v10 topic ids in the answer; v11 no cluster
// operations; v12 topics by id; v13 top-level error.
var metadataAPI = api{key: 3, min: 0, max: 13, lends: true, serve: (*handler).metadata}

// notAsked stands for authorized operations that were not asked for.
const notAsked int32 = -1 << 31

const topicOperations int32 = aclRead | 1<<4 /* write */ | aclCreate | aclDelete | aclAlter | aclDescribe | aclDescribeConfigs | aclAlterConfigs

func (h *handler) metadata(ctx context.Context, r *request) (kmsg.Response, error) {
	req := r.Request.(*kmsg.MetadataRequest)
	resp := req.ResponseKind().(*kmsg.MetadataResponse)
	all := req.Topics == nil || req.Version == 0 && len(req.Topics) == 0
	if !all && (req.Version == 10 || req.Version == 11) {
		for _, t := range req.Topics {
			if t.Topic == nil || t.TopicID != (types.TopicID{}) {
				return h.metadataRefused(req, resp), nil
			}
		}
	}

	brokers := h.brokers(r)
	for _, n := range brokers.Nodes {
		b := kmsg.NewMetadataResponseBroker()
		b.NodeID, b.Host, b.Port, b.Rack = n.ID, n.Host, n.Port, n.Rack
		resp.Brokers = append(resp.Brokers, b)
	}
	id := h.backend.ClusterID()
	resp.ClusterID = &id
	resp.ControllerID = brokers.Controller
	resp.AuthorizedOperations = notAsked
	if req.IncludeClusterAuthorizedOperations {
		resp.AuthorizedOperations = clusterOperations
	}

	fresh, cancel := context.WithTimeout(ctx, copiesPatience)
	defer cancel()
	resp.Topics = []kmsg.MetadataResponseTopic{}
	if all {
		topics, err := h.backend.Topics(ctx)
		if err != nil {
			return h.metadataFailed(req, resp, err)
		}
		h.backend.RefreshCopies(fresh, topics...)
		for _, t := range topics {
			resp.Topics = append(resp.Topics, h.describeTopic(req, t, brokers))
		}
		return resp, nil
	}

	create := h.backend.AutoCreate() && (req.Version < 4 || req.AllowAutoTopicCreation)
	names, ids := map[string]bool{}, map[types.TopicID]bool{}
	for i := range req.Topics {
		t := &req.Topics[i]
		var found *topic.Topic
		var err error
		switch {
		case t.TopicID != types.TopicID{}:
			if ids[t.TopicID] {
				continue
			}
			ids[t.TopicID] = true
			found, err = h.backend.TopicByID(ctx, t.TopicID)
		case t.Topic == nil:
			err = kerr.InvalidRequest
		default:
			if names[*t.Topic] {
				continue
			}
			names[*t.Topic] = true
			found, err = h.findOrCreate(ctx, *t.Topic, create)
		}
		if err != nil {
			resp.Topics = append(resp.Topics, refusedTopic(req, t, h.backend.Code(err, false)))
			continue
		}
		h.backend.RefreshCopies(fresh, found)
		resp.Topics = append(resp.Topics, h.describeTopic(req, found, brokers))
	}
	return resp, nil
}

// findOrCreate is a topic by name, made if need be and allowed.
func (h *handler) findOrCreate(ctx context.Context, name string, create bool) (*topic.Topic, error) {
	t, err := h.backend.Topic(ctx, name)
	if !create || !refusedWith(err, kerr.UnknownTopicOrPartition) || topic.Internal(name) {
		return t, err
	}
	t, err = h.backend.CreateTopic(ctx, topic.Spec{Name: name, Partitions: -1, Replicas: -1})
	if refusedWith(err, kerr.TopicAlreadyExists) {
		// Somebody else made it just now, here or on another gateway. If it
		// cannot be seen yet, it will be at the next try.
		if t, err = h.backend.Topic(ctx, name); refusedWith(err, kerr.UnknownTopicOrPartition) {
			err = kerr.LeaderNotAvailable
		}
	}
	if refusedWith(err, kerr.InvalidTopicException) {
		// The name is one, but collides with another topic's: Kafka's controller
		// keeps that to itself, and the topic stays unknown.
		err = kerr.UnknownTopicOrPartition
	}
	return t, err
}

func (h *handler) describeTopic(req *kmsg.MetadataRequest, t *topic.Topic, brokers Brokers) kmsg.MetadataResponseTopic {
	st := kmsg.NewMetadataResponseTopic()
	name := t.Name
	st.Topic, st.TopicID, st.IsInternal = &name, t.ID, topic.Internal(t.Name)
	st.AuthorizedOperations = notAsked
	if req.IncludeTopicAuthorizedOperations {
		st.AuthorizedOperations = topicOperations
	}
	st.Partitions = make([]kmsg.MetadataResponseTopicPartition, t.Partitions)
	for i := range st.Partitions {
		p := &st.Partitions[i]
		*p = kmsg.NewMetadataResponseTopicPartition()
		p.Partition, p.LeaderEpoch = int32(i), 0
		p.Replicas, p.ISR, p.OfflineReplicas = h.replicas(brokers, t, p.Partition)
		p.Leader = p.Replicas[0]
	}
	return st
}

func refusedTopic(req *kmsg.MetadataRequest, t *kmsg.MetadataRequestTopic, code int16) kmsg.MetadataResponseTopic {
	st := kmsg.NewMetadataResponseTopic()
	st.Topic, st.TopicID, st.ErrorCode = t.Topic, t.TopicID, code
	if st.Topic == nil && req.Version < 12 {
		st.Topic = new(string) // null is not in these versions' answers
	}
	st.AuthorizedOperations = notAsked
	st.Partitions = []kmsg.MetadataResponseTopicPartition{}
	return st
}

// metadataRefused is Kafka's answer to a request that contradicts its version:
// no brokers, the code on each topic.
func (h *handler) metadataRefused(req *kmsg.MetadataRequest, resp *kmsg.MetadataResponse) kmsg.Response {
	resp.Brokers = []kmsg.MetadataResponseBroker{}
	resp.AuthorizedOperations = notAsked
	resp.ErrorCode = kerr.InvalidRequest.Code // v13+
	for i := range req.Topics {
		resp.Topics = append(resp.Topics, refusedTopic(req, &req.Topics[i], kerr.InvalidRequest.Code))
	}
	return resp
}

// metadataFailed answers for all topics when the store does not. Below v13 there
// is no place for a code, and an empty list would say that there are no topics:
// closing the connection is the only truth, and the client asks elsewhere.
func (h *handler) metadataFailed(req *kmsg.MetadataRequest, resp *kmsg.MetadataResponse, err error) (kmsg.Response, error) {
	code := h.backend.Code(err, false)
	if req.Version < 13 {
		return nil, err
	}
	resp.ErrorCode = code
	return resp, nil
}
