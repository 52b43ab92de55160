package protocol

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/broker/topic"
	"github.com/hanzoai/stream/types"
)

// DeleteTopics (key 20, v1–v6) deletes topics with their records and commits.
//
//   - Unknown name UNKNOWN_TOPIC_OR_PARTITION, unknown id UNKNOWN_TOPIC_ID (the
//     answer has no name then); each topic is answered alone.
//   - Name and id together, or neither, is INVALID_REQUEST; so is a name or an
//     id given twice, and an id whose name is given too: none of these is
//     deleted. Repetitions are answered once.
//   - What is deleted is the topic that was found: one made anew under the same
//     name meanwhile stays.
//   - The client's timeout bounds the call: REQUEST_TIMED_OUT.
//
// v1 throttle time; v4 flexible; v5 error text and may say
// THROTTLING_QUOTA_EXCEEDED; v6 by name or id (KIP-516).
var deleteTopicsAPI = api{key: 20, min: 1, max: 6, serve: (*handler).deleteTopics}

// deletion is one topic of a request.
type deletion struct {
	name  *string // null: named by id
	id    types.TopicID
	topic *topic.Topic
	err   error
}

func (h *handler) deleteTopics(ctx context.Context, r *request) (kmsg.Response, error) {
	req := r.Request.(*kmsg.DeleteTopicsRequest)
	resp := req.ResponseKind().(*kmsg.DeleteTopicsResponse)
	ctx, cancel := adminTimeout(ctx, req.TimeoutMillis)
	defer cancel()

	deletions := deletionsOf(req)
	found := make(map[types.TopicID]int, len(deletions))
	lives := h.backend.Unbroken()
	for _, d := range deletions {
		if d.err != nil {
			continue
		}
		if d.name != nil {
			d.topic, d.err = h.backend.Topic(ctx, *d.name)
		} else {
			d.topic, d.err = h.backend.TopicByID(ctx, d.id)
		}
		if d.err == nil {
			found[d.topic.ID]++
		}
	}
	for _, d := range deletions {
		st := kmsg.NewDeleteTopicsResponseTopic()
		st.Topic, st.TopicID = d.name, d.id
		if d.err == nil {
			st.Topic, st.TopicID = &d.topic.Name, d.topic.ID
			if found[d.topic.ID] > 1 {
				d.err = refuse(kerr.InvalidRequest, "The topic is given by its name and by its id.")
			} else {
				late := d.name != nil && !lives(ctx)
				if !late {
					d.err = h.backend.DeleteTopic(ctx, d.topic)
				}
				again := d.name != nil && refusedWith(d.err, kerr.UnknownTopicOrPartition)
				switch late = late || again && !lives(ctx); {
				case late:
					d.err = topic.ErrLate // as ofName
				case again:
					// Perhaps it was the one before that we had in memory.
					d.err = h.ofName(ctx, *d.name, func(t *topic.Topic) error {
						st.TopicID = t.ID
						return h.backend.DeleteTopic(ctx, t)
					})
				}
			}
		}
		st.ErrorCode, st.ErrorMessage = h.refusal(d.err, false)
		resp.Topics = append(resp.Topics, st)
	}
	return resp, nil
}

// deletionsOf lists what a request names, each name and id once, with the
// errors that need no look at the topics.
func deletionsOf(req *kmsg.DeleteTopicsRequest) []*deletion {
	var all []*deletion
	byName := make(map[string]*deletion)
	byID := make(map[types.TopicID]*deletion)
	add := func(name *string, id types.TopicID) {
		d := &deletion{name: name, id: id}
		switch {
		case name == nil && id.IsZero():
			d.err = refuse(kerr.InvalidRequest, "Neither topic name nor id were specified.")
		case name != nil && !id.IsZero():
			d.err = refuse(kerr.InvalidRequest, "You may not specify both topic name and topic id.")
		case name != nil:
			if first := byName[*name]; first != nil {
				first.err = refuse(kerr.InvalidRequest, "Duplicate topic name.")
				return
			}
			byName[*name] = d
		default:
			if first := byID[id]; first != nil {
				first.err = refuse(kerr.InvalidRequest, "Duplicate topic id.")
				return
			}
			byID[id] = d
		}
		all = append(all, d)
	}
	for _, name := range req.TopicNames {
		add(&name, types.TopicID{})
	}
	for _, rt := range req.Topics {
		add(rt.Topic, rt.TopicID)
	}
	return all
}
