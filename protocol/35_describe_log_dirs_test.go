package protocol

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/broker/topic"
)

// sizedTopics answers Sizes: partition n of a topic has 100 times the length of
// its name and n bytes.
func sizedTopics(ts []*topic.Topic) (all [][]int64, err error) {
	for _, t := range ts {
		if t.Name == "gone" {
			all = append(all, nil)
			continue
		}
		sizes := make([]int64, t.Partitions)
		for n := range sizes {
			sizes[n] = int64(100*len(t.Name) + n)
		}
		all = append(all, sizes)
	}
	return all, nil
}

func TestDescribeLogDirs(t *testing.T) {
	type size = kmsg.DescribeLogDirsResponseDirTopicPartition
	versions(t, &describeLogDirsAPI, func(t *testing.T, v int16) {
		for _, c := range []struct {
			name  string
			asked map[string][]int32 // nil: null
			want  map[string][]size
		}{
			{"all", nil, map[string][]size{"a": {{Partition: 0, Size: 100}}, "bb": {{Partition: 0, Size: 200}, {Partition: 1, Size: 201}}}},
			{"none", map[string][]int32{}, nil},
			{"some", map[string][]int32{"bb": {1, 1, 7, -1}, "x": {0}, "a": {}}, map[string][]size{"bb": {{Partition: 1, Size: 201}}}},
			{"deleted meanwhile", map[string][]int32{"gone": {0}, "a": {0}}, map[string][]size{"a": {{Partition: 0, Size: 100}}}},
		} {
			w := newWorld()
			w.topics = []*topic.Topic{stubTopic(1, "a", 1), stubTopic(2, "bb", 2), stubTopic(3, "gone", 1)}
			w.sizes = sizedTopics
			req := kmsg.NewPtrDescribeLogDirsRequest()
			if c.asked != nil {
				req.Topics = []kmsg.DescribeLogDirsRequestTopic{}
			}
			for name, ns := range c.asked {
				req.Topics = append(req.Topics, kmsg.DescribeLogDirsRequestTopic{Topic: name, Partitions: ns})
			}
			resp := asked[*kmsg.DescribeLogDirsResponse](t, w, &describeLogDirsAPI, v, req)
			want := kmsg.NewDescribeLogDirsResponse()
			want.Version = v
			dir := kmsg.NewDescribeLogDirsResponseDir()
			dir.Dir = "here"
			if v >= 4 {
				dir.TotalBytes, dir.UsableBytes = 100, 50
			}
			for _, name := range []string{"a", "bb"} {
				if c.want[name] != nil {
					dir.Topics = append(dir.Topics, kmsg.DescribeLogDirsResponseDirTopic{Topic: name, Partitions: c.want[name]})
				}
			}
			want.Dirs = append(want.Dirs, dir)
			same(t, c.name, resp, &want)
		}
	})
}

// A store that does not answer is a failed folder, never an empty one.
func TestDescribeLogDirsFails(t *testing.T) {
	for name, set := range map[string]func(w *world){
		"space":  func(w *world) { w.space = func() (Space, error) { return Space{Dir: "here"}, errStore } },
		"sizes":  func(w *world) { w.sizes = func([]*topic.Topic) ([][]int64, error) { return nil, errStore } },
		"topics": func(w *world) { w.topicErr = errStore },
	} {
		for _, all := range []bool{true, false} {
			w := newWorld()
			set(w)
			req := kmsg.NewPtrDescribeLogDirsRequest()
			if !all {
				req.Topics = []kmsg.DescribeLogDirsRequestTopic{{Topic: "t0", Partitions: []int32{0}}}
			}
			resp := asked[*kmsg.DescribeLogDirsResponse](t, w, &describeLogDirsAPI, 4, req)
			if len(resp.Dirs) != 1 || resp.Dirs[0].ErrorCode != 56 || resp.Dirs[0].Topics != nil || resp.Dirs[0].Dir != "here" && name != "space" {
				t.Errorf("%s, all %v: %+v", name, all, resp)
			}
		}
	}
}
