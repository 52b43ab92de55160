package webui

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Calls of Java's AdminClient 4.3.1, in its versions.

func javaDescribeCluster(t *testing.T, w *world) {
	req := kmsg.NewPtrDescribeClusterRequest()
	req.IncludeClusterAuthorizedOperations = true
	resp := ask[*kmsg.DescribeClusterResponse](t, w, req, 2)
	ok(t, "cluster", resp.ErrorCode)
	if resp.ClusterID == "" || len(resp.Brokers) != 1 || resp.Brokers[0].NodeID != 1 || fmt.Sprintf("%s:%d", resp.Brokers[0].Host, resp.Brokers[0].Port) != w.Addr || resp.ControllerID != 1 {
		t.Errorf("%+v", resp)
	}
}

func describeConfigs(typ kmsg.ConfigResourceType, names ...string) *kmsg.DescribeConfigsRequest {
	req := kmsg.NewPtrDescribeConfigsRequest()
	req.IncludeSynonyms, req.IncludeDocumentation = true, true
	for _, name := range names {
		r := kmsg.NewDescribeConfigsRequestResource()
		r.ResourceType, r.ResourceName = typ, name
		req.Resources = append(req.Resources, r)
	}
	return req
}

func javaBrokerConfigs(t *testing.T, w *world) {
	resp := ask[*kmsg.DescribeConfigsResponse](t, w, describeConfigs(kmsg.ConfigResourceTypeBroker, "1"), 4)
	checkBrokerConfigs(t, resp)
}

func checkBrokerConfigs(t *testing.T, resp *kmsg.DescribeConfigsResponse) {
	t.Helper()
	if len(resp.Resources) != 1 {
		t.Fatalf("%d resources", len(resp.Resources))
	}
	ok(t, "broker", resp.Resources[0].ErrorCode)
	found := map[string]string{}
	for _, c := range resp.Resources[0].Configs {
		if c.Value != nil {
			found[c.Name] = *c.Value
		}
	}
	for name, want := range map[string]string{"num.partitions": "4", "node.id": "1", "log.retention.hours": "168", "delete.topic.enable": "true"} {
		if found[name] != want {
			t.Errorf("%s is %q, want %q", name, found[name], want)
		}
	}
}

func javaFeatures(t *testing.T, w *world) {
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = "apache-kafka-java", "4.3.1"
	resp := ask[*kmsg.ApiVersionsResponse](t, w, req, 4)
	ok(t, "versions", resp.ErrorCode)
	i := slices.IndexFunc(resp.FinalizedFeatures, func(f kmsg.ApiVersionsResponseFinalizedFeature) bool { return f.Name == "metadata.version" })
	// 4.3-IV0 is level 30: kafbat UI shows the version it stands for.
	if i < 0 || resp.FinalizedFeatures[i].MaxVersionLevel != 30 {
		t.Errorf("no metadata.version 30 in %+v", resp.FinalizedFeatures)
	}
}

// refused checks that a request the tool can do without is answered so that the
// tool does without: not served at all, or refused by code.
func refused(t *testing.T, w *world, req kmsg.Request, version int16, code func(kmsg.Response) int16, allowed ...*kerr.Error) {
	t.Helper()
	resp, err := send(t, w, req, version)
	if err != nil {
		// What Java calls UnsupportedVersionException, before it sends anything.
		if !strings.Contains(err.Error(), "broker is too old") {
			t.Error(err)
		}
		return
	}
	if err := kerr.TypedErrorForCode(code(resp)); err != nil && !slices.Contains(allowed, err) {
		t.Error(err)
	}
}

func javaNoACLs(t *testing.T, w *world) {
	req := kmsg.NewPtrDescribeACLsRequest()
	req.ResourceType, req.ResourcePatternType, req.Operation, req.PermissionType = kmsg.ACLResourceTypeAny, kmsg.ACLResourcePatternTypeAny, kmsg.ACLOperationAny, kmsg.ACLPermissionTypeAny
	refused(t, w, req, 3, func(r kmsg.Response) int16 { return r.(*kmsg.DescribeACLsResponse).ErrorCode }, kerr.SecurityDisabled)
}

func javaNoQuorum(t *testing.T, w *world) {
	req := kmsg.NewPtrDescribeQuorumRequest()
	topic := kmsg.NewDescribeQuorumRequestTopic()
	topic.Topic = "__cluster_metadata"
	topic.Partitions = append(topic.Partitions, kmsg.NewDescribeQuorumRequestTopicPartition())
	req.Topics = append(req.Topics, topic)
	refused(t, w, req, 2, func(r kmsg.Response) int16 { return r.(*kmsg.DescribeQuorumResponse).ErrorCode })
}

func javaLogDirs(t *testing.T, w *world) {
	resp := ask[*kmsg.DescribeLogDirsResponse](t, w, kmsg.NewPtrDescribeLogDirsRequest(), 4)
	checkLogDirs(t, resp)
}

// checkLogDirs checks that what holds records has a size and what is empty has
// none, and that the folder is said to have room.
func checkLogDirs(t *testing.T, resp *kmsg.DescribeLogDirsResponse) {
	t.Helper()
	ok(t, "log dirs", resp.ErrorCode)
	sizes := map[string]int64{}
	for _, d := range resp.Dirs {
		ok(t, d.Dir, d.ErrorCode)
		if d.TotalBytes <= 0 || d.UsableBytes <= 0 || d.UsableBytes > d.TotalBytes {
			t.Errorf("%s: %d of %d bytes", d.Dir, d.UsableBytes, d.TotalBytes)
		}
		for _, topic := range d.Topics {
			for _, p := range topic.Partitions {
				if p.OffsetLag != 0 || p.IsFuture {
					t.Errorf("%s-%d: %+v", topic.Topic, p.Partition, p)
				}
				sizes[fmt.Sprintf("%s-%d", topic.Topic, p.Partition)] = p.Size
			}
		}
	}
	// A record is at least its batch's header of 61 bytes, and these are small.
	for name, records := range map[string]int64{"orders-0": ends[0] - starts[0], "orders-1": ends[1] - starts[1]} {
		if size, ok := sizes[name]; !ok || size < records*61 || size > 10*1000 {
			t.Errorf("%s has %d bytes for %d records", name, size, records)
		}
	}
	if size, ok := sizes["empty-0"]; !ok || size != 0 {
		t.Errorf("empty-0: %d, %v", size, ok)
	}
}

func javaListGroups(t *testing.T, w *world) {
	resp := ask[*kmsg.ListGroupsResponse](t, w, kmsg.NewPtrListGroupsRequest(), 5)
	ok(t, "groups", resp.ErrorCode)
	states, types := map[string]string{}, map[string]string{}
	for _, g := range resp.Groups {
		states[g.Group], types[g.Group] = g.GroupState, g.ProtocolType+"/"+g.GroupType
	}
	same(t, "states", states, map[string]string{"live": "Stable", "idle": "Empty"})
	same(t, "types", types, map[string]string{"live": "consumer/classic", "idle": "/classic"})
}

func javaListTopics(t *testing.T, w *world) {
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = nil
	resp := ask[*kmsg.MetadataResponse](t, w, req, 13)
	var names []string
	for _, topic := range resp.Topics {
		names = append(names, *topic.Topic)
		if topic.IsInternal != strings.HasPrefix(*topic.Topic, "__") {
			t.Errorf("%s is internal: %v", *topic.Topic, topic.IsInternal)
		}
	}
	has(t, "topics", names, "orders", "empty", "__consumer_offsets")
}

func javaDescribeTopics(t *testing.T, w *world) {
	req := kmsg.NewPtrDescribeTopicPartitionsRequest()
	req.ResponsePartitionLimit = 2000
	for _, name := range []string{"empty", "orders"} {
		topic := kmsg.NewDescribeTopicPartitionsRequestTopic()
		topic.Topic = name
		req.Topics = append(req.Topics, topic)
	}
	resp := ask[*kmsg.DescribeTopicPartitionsResponse](t, w, req, 0)
	counts := map[string]int{}
	for _, topic := range resp.Topics {
		ok(t, *topic.Topic, topic.ErrorCode)
		counts[*topic.Topic] = len(topic.Partitions)
		for _, p := range topic.Partitions {
			ok(t, *topic.Topic, p.ErrorCode)
			if p.LeaderID != 1 || !slices.Equal(p.Replicas, []int32{1}) || !slices.Equal(p.ISR, []int32{1}) || len(p.OfflineReplicas) > 0 {
				t.Errorf("%s: %+v", *topic.Topic, p)
			}
		}
	}
	same(t, "partitions", counts, map[string]int{"orders": 2, "empty": 1})
}

func javaTopicConfigs(t *testing.T, w *world) {
	resp := ask[*kmsg.DescribeConfigsResponse](t, w, describeConfigs(kmsg.ConfigResourceTypeTopic, "orders", "empty"), 4)
	checkTopicConfigs(t, resp, 2)
}

// checkTopicConfigs checks values and where they come from: the one that was set
// from the topic, all others from defaults, with a documentation.
func checkTopicConfigs(t *testing.T, resp *kmsg.DescribeConfigsResponse, topics int) {
	t.Helper()
	if len(resp.Resources) != topics {
		t.Fatalf("%d resources", len(resp.Resources))
	}
	for _, r := range resp.Resources {
		ok(t, r.ResourceName, r.ErrorCode)
		if len(r.Configs) != 33 {
			t.Errorf("%s has %d configs", r.ResourceName, len(r.Configs))
		}
		for _, c := range r.Configs {
			source, value := kmsg.ConfigSourceDefaultConfig, "604800000"
			if r.ResourceName == "orders" {
				source, value = kmsg.ConfigSourceDynamicTopicConfig, retention
			}
			switch {
			case c.Name == "retention.ms":
				if c.Source != source || c.Value == nil || *c.Value != value || r.ResourceName == "orders" && (len(c.ConfigSynonyms) == 0 || c.ConfigSynonyms[0].Source != source) {
					t.Errorf("%s: %+v", r.ResourceName, c)
				}
			case c.Source != kmsg.ConfigSourceDefaultConfig:
				t.Errorf("%s: %s comes from %s", r.ResourceName, c.Name, c.Source)
			}
			if c.Documentation == nil || *c.Documentation == "" || c.ReadOnly || c.IsSensitive {
				t.Errorf("%s: %+v", r.ResourceName, c)
			}
		}
	}
}

func javaEndOffsets(t *testing.T, w *world) {
	same(t, "ends", javaListOffsets(t, w, -1), ends)
}

func javaStartOffsets(t *testing.T, w *world) {
	same(t, "starts", javaListOffsets(t, w, -2), starts)
}

func javaListOffsets(t *testing.T, w *world, at int64) map[int32]int64 {
	t.Helper()
	req := kmsg.NewPtrListOffsetsRequest()
	topic := kmsg.NewListOffsetsRequestTopic()
	topic.Topic = "orders"
	for p := range int32(2) {
		partition := kmsg.NewListOffsetsRequestTopicPartition()
		partition.Partition, partition.Timestamp = p, at
		topic.Partitions = append(topic.Partitions, partition)
	}
	req.Topics = append(req.Topics, topic)
	got := map[int32]int64{}
	for _, topic := range ask[*kmsg.ListOffsetsResponse](t, w, req, 11).Topics {
		for _, p := range topic.Partitions {
			ok(t, "offsets", p.ErrorCode)
			got[p.Partition] = p.Offset
		}
	}
	return got
}

func javaDescribeGroups(t *testing.T, w *world) {
	req := kmsg.NewPtrDescribeGroupsRequest()
	req.Groups = []string{"live", "idle"}
	resp := ask[*kmsg.DescribeGroupsResponse](t, w, req, 6)
	members := map[string]int{}
	for _, g := range resp.Groups {
		ok(t, g.Group, g.ErrorCode)
		members[g.Group] = len(g.Members)
		for _, m := range g.Members {
			if m.ClientID != "app" || m.ClientHost != "/127.0.0.1" || g.State != "Stable" || g.Protocol != "range" {
				t.Errorf("%+v", g)
			}
			var a kmsg.ConsumerMemberAssignment
			if err := a.ReadFrom(m.MemberAssignment); err != nil || len(a.Topics) != 1 || a.Topics[0].Topic != "orders" || !slices.Equal(a.Topics[0].Partitions, []int32{0, 1}) {
				t.Errorf("assignment: %v, %+v", err, a)
			}
		}
	}
	same(t, "members", members, map[string]int{"live": 1, "idle": 0})
}

func javaGroupOffsets(t *testing.T, w *world) {
	req := kmsg.NewPtrOffsetFetchRequest()
	for group := range commits {
		g := kmsg.NewOffsetFetchRequestGroup()
		g.Group, g.Topics = group, nil
		req.Groups = append(req.Groups, g)
	}
	resp := ask[*kmsg.OffsetFetchResponse](t, w, req, 9)
	for _, g := range resp.Groups {
		ok(t, g.Group, g.ErrorCode)
		got := map[int32]int64{}
		for _, topic := range g.Topics {
			for _, p := range topic.Partitions {
				ok(t, g.Group, p.ErrorCode)
				got[p.Partition] = p.Offset
			}
		}
		same(t, g.Group, got, commits[g.Group]) // only what is committed
	}
}

func javaProducers(t *testing.T, w *world) {
	req := kmsg.NewPtrDescribeProducersRequest()
	topic := kmsg.NewDescribeProducersRequestTopic()
	topic.Topic, topic.Partitions = "orders", []int32{0, 1}
	req.Topics = append(req.Topics, topic)
	for _, topic := range ask[*kmsg.DescribeProducersResponse](t, w, req, 0).Topics {
		for _, p := range topic.Partitions {
			ok(t, "producers", p.ErrorCode)
			if len(p.ActiveProducers) != 1 || p.ActiveProducers[0].LastSequence != int32(ends[p.Partition])-1 || p.ActiveProducers[0].CurrentTxnStartOffset != -1 {
				t.Errorf("orders-%d: %+v", p.Partition, p.ActiveProducers)
			}
		}
	}
}

func javaMessages(t *testing.T, w *world) { consoleMessages(t, w) }
