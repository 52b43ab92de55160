package protocol

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/broker/group"
	"github.com/hanzoai/stream/broker/topic"
)

// Each topic is answered alone, and null is not an empty assignment.
func TestCreatePartitions(t *testing.T) {
	versions(t, &createPartitionsAPI, func(t *testing.T, v int16) {
		for _, check := range []bool{false, true} {
			type grown struct {
				Name string
				topic.Growth
			}
			var done []grown
			b := &stub{topics: []*topic.Topic{stubTopic(1, "one", 1), stubTopic(2, "two", 1), stubTopic(3, "small", 9), stubTopic(4, "away", 1), stubTopic(5, "twice", 1)}}
			b.grow = func(t *topic.Topic, g topic.Growth) error {
				switch t.Name {
				case "small":
					return refuse(kerr.InvalidPartitions, "no increase")
				case "away":
					return errStore
				}
				done = append(done, grown{t.Name, g})
				return nil
			}
			req := kmsg.NewPtrCreatePartitionsRequest()
			req.ValidateOnly, req.TimeoutMillis = check, 1000
			add := func(name string, count int32, assignments ...[]int32) {
				rt := kmsg.NewCreatePartitionsRequestTopic()
				rt.Topic, rt.Count = name, count
				for _, a := range assignments {
					ra := kmsg.NewCreatePartitionsRequestTopicAssignment()
					ra.Replicas = a
					rt.Assignment = append(rt.Assignment, ra)
				}
				req.Topics = append(req.Topics, rt)
			}
			add("one", 3, []int32{1}, []int32{2, 3})
			add("gone", 3)
			add("twice", 3)
			add("small", 3)
			add("two", -5)
			add("away", 3)
			add("twice", 4)
			add("", 3)
			add("empty", 3)
			req.Topics = append(req.Topics, kmsg.CreatePartitionsRequestTopic{Topic: "two2", Assignment: []kmsg.CreatePartitionsRequestTopicAssignment{}})
			b.topics = append(b.topics, stubTopic(6, "two2", 1))
			resp := asked[*kmsg.CreatePartitionsResponse](t, b, &createPartitionsAPI, v, req)
			type line struct {
				Name string
				Code int16
				Text bool
			}
			var got []line
			for _, st := range resp.Topics {
				got = append(got, line{st.Topic, st.ErrorCode, st.ErrorMessage != nil})
			}
			same(t, "topics", got, []line{{"one", 0, false}, {"gone", 3, false}, {"twice", 42, true}, {"small", 37, true}, {"two", 0, false},
				{"away", 56, true}, {"", 3, false}, {"empty", 3, false}, {"two2", 0, false}})
			same(t, "done", done, []grown{
				{"one", topic.Growth{Partitions: 3, Assignments: [][]int32{{1}, {2, 3}}, ValidateOnly: check}},
				{"two", topic.Growth{Partitions: -5, ValidateOnly: check}},
				{"two2", topic.Growth{Assignments: [][]int32{}, ValidateOnly: check}},
			})
		}
	})
}

// What another gateway has made a moment ago is not denied from memory: a commit
// to a new partition is taken, and what was committed there is found.
func TestC07GrownElsewhere(t *testing.T) {
	old, now := stubTopic(1, "t", 1), stubTopic(1, "t", 3)
	var committed []group.CommitPartition
	var fetched []group.FetchPartition
	b := &stub{topics: []*topic.Topic{old}, newest: now}
	b.groups = stubGroups{
		commit: func(r group.CommitRequest) group.CommitResponse {
			committed = r.Partitions
			return group.CommitResponse{Partitions: make([]error, len(r.Partitions))}
		},
		fetch: func(r group.FetchRequest) group.FetchResponse {
			fetched = r.Partitions
			return group.FetchResponse{Offsets: make([]group.CommittedOffset, len(r.Partitions))}
		},
	}
	commit := kmsg.NewPtrOffsetCommitRequest()
	ct := kmsg.NewOffsetCommitRequestTopic()
	ct.Topic = "t"
	fetch := kmsg.NewPtrOffsetFetchRequest()
	ft := kmsg.NewOffsetFetchRequestGroupTopic()
	ft.Topic = "t"
	for _, n := range []int32{0, 2, 3, -1} {
		p := kmsg.NewOffsetCommitRequestTopicPartition()
		p.Partition = n
		ct.Partitions = append(ct.Partitions, p)
		ft.Partitions = append(ft.Partitions, n)
	}
	commit.Topics = append(commit.Topics, ct)
	fg := kmsg.NewOffsetFetchRequestGroup()
	fg.Topics = append(fg.Topics, ft)
	fetch.Groups = append(fetch.Groups, fg)

	resp := asked[*kmsg.OffsetCommitResponse](t, b, &offsetCommitAPI, 9, commit)
	var codes []int16
	for _, p := range resp.Topics[0].Partitions {
		codes = append(codes, p.ErrorCode)
	}
	same(t, "codes", codes, []int16{0, 0, 3, 3})
	if len(committed) != 2 || committed[1].Partition != 2 {
		t.Errorf("%+v", committed)
	}
	asked[*kmsg.OffsetFetchResponse](t, b, &offsetFetchAPI, 9, fetch)
	var known []bool
	for _, p := range fetched {
		known = append(known, !p.TopicID.IsZero())
	}
	same(t, "known partitions", known, []bool{true, true, false, false})
}
