package main

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// brokerIDs are the ids that Metadata names, with their addresses checked.
func (n *node) brokerIDs() (ids []int32) {
	n.t.Helper()
	ports := map[int32]bool{}
	for _, b := range ask[*kmsg.MetadataResponse](n, 12, &kmsg.MetadataRequest{Topics: []kmsg.MetadataRequestTopic{}}).Brokers {
		if b.Host != "127.0.0.1" || ports[b.Port] {
			n.t.Errorf("broker %d at %s:%d", b.NodeID, b.Host, b.Port)
		}
		ports[b.Port] = true
		ids = append(ids, b.NodeID)
	}
	return ids
}

// together waits until all gateways that live name these brokers.
func (w *world) together(ids ...int32) {
	w.t.Helper()
	eventually(w.t, fmt.Sprintf("all name the brokers %v", ids), func() bool {
		return !slices.ContainsFunc(w.nodes, func(n *node) bool { return !n.dead && !slices.Equal(n.brokerIDs(), ids) })
	})
}

func (n *node) coordinator(group string) kmsg.FindCoordinatorResponse {
	n.t.Helper()
	return *ask[*kmsg.FindCoordinatorResponse](n, 3, &kmsg.FindCoordinatorRequest{CoordinatorKey: group})
}

func (n *node) join(group string) kmsg.JoinGroupResponse {
	n.t.Helper()
	req := kmsg.NewPtrJoinGroupRequest()
	req.Group, req.SessionTimeoutMillis, req.RebalanceTimeoutMillis, req.ProtocolType = group, 30_000, 30_000, "consumer"
	req.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range"}}
	return *ask[*kmsg.JoinGroupResponse](n, 3, req)
}

// offsets is the code of OffsetFetch, which only a group's owner answers with 0.
func (n *node) offsets(group string) int16 {
	n.t.Helper()
	return ask[*kmsg.OffsetFetchResponse](n, 7, &kmsg.OffsetFetchRequest{Group: group}).ErrorCode
}

func (n *node) listed() (groups []string) {
	n.t.Helper()
	resp := ask[*kmsg.ListGroupsResponse](n, 4, kmsg.NewPtrListGroupsRequest())
	if resp.ErrorCode != 0 {
		n.t.Errorf("list groups: %d", resp.ErrorCode)
	}
	for _, g := range resp.Groups {
		groups = append(groups, g.Group)
	}
	return groups
}

func (n *node) brokerConfig(id string) (code int16, values map[string]string) {
	n.t.Helper()
	req := kmsg.NewPtrDescribeConfigsRequest()
	req.Resources = []kmsg.DescribeConfigsRequestResource{{ResourceType: kmsg.ConfigResourceTypeBroker, ResourceName: id}}
	r := ask[*kmsg.DescribeConfigsResponse](n, 4, req).Resources[0]
	values = map[string]string{}
	for _, c := range r.Configs {
		if c.Value != nil {
			values[c.Name] = *c.Value
		}
	}
	return r.ErrorCode, values
}

// each version of the requests that name brokers, as answer bytes.
func (n *node) identity(groups []string) (all map[string][]byte) {
	n.t.Helper()
	all = map[string][]byte{}
	for v := int16(0); v <= 13; v++ {
		all[fmt.Sprintf("Metadata v%d", v)] = ask[*kmsg.MetadataResponse](n, v, kmsg.NewPtrMetadataRequest()).AppendTo(nil)
	}
	for v := int16(0); v <= 2; v++ {
		all[fmt.Sprintf("DescribeCluster v%d", v)] = ask[*kmsg.DescribeClusterResponse](n, v, &kmsg.DescribeClusterRequest{EndpointType: 1}).AppendTo(nil)
	}
	all["DescribeTopicPartitions"] = ask[*kmsg.DescribeTopicPartitionsResponse](n, 0, &kmsg.DescribeTopicPartitionsRequest{ResponsePartitionLimit: 2000}).AppendTo(nil)
	all["ListConfigResources"] = ask[*kmsg.ListConfigResourcesResponse](n, 1, kmsg.NewPtrListConfigResourcesRequest()).AppendTo(nil)
	for v := int16(0); v <= 6; v++ {
		for i, g := range groups {
			all[fmt.Sprintf("FindCoordinator v%d %d", v, i)] = ask[*kmsg.FindCoordinatorResponse](n, v, &kmsg.FindCoordinatorRequest{CoordinatorKey: g, CoordinatorKeys: []string{g}}).AppendTo(nil)
		}
	}
	return all
}

func groupNames(n int) (names []string) {
	for i := range n {
		names = append(names, "g"+strconv.Itoa(i))
	}
	return names
}

// TestC38SharedAddress: behind one address there is one broker, id 1, whichever
// gateway answers and whatever its node id.
func TestC38SharedAddress(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3)
	w.nodes[0].mustCreate("t", 8)
	for i, n := range w.nodes {
		eventually(t, "the topic", func() bool { return n.metadata(12, "t", false)[0].ErrorCode == 0 })
		if ids := n.brokerIDs(); !slices.Equal(ids, []int32{1}) {
			t.Errorf("gateway %d: brokers %v", i, ids)
		}
		for v := int16(0); v <= 2; v++ {
			if r := ask[*kmsg.DescribeClusterResponse](n, v, &kmsg.DescribeClusterRequest{EndpointType: 1}); r.ControllerID != 1 || len(r.Brokers) != 1 || r.Brokers[0].NodeID != 1 {
				t.Errorf("gateway %d: DescribeCluster v%d: %+v", i, v, r)
			}
		}
		for _, p := range n.metadata(12, "t", false)[0].Partitions {
			if p.Leader != 1 || !slices.Equal(p.Replicas, []int32{1}) || !slices.Equal(p.ISR, []int32{1}) {
				t.Errorf("gateway %d: %+v", i, p)
			}
		}
		for v := int16(0); v <= 6; v++ {
			r := ask[*kmsg.FindCoordinatorResponse](n, v, &kmsg.FindCoordinatorRequest{CoordinatorKey: "g", CoordinatorKeys: []string{"g"}})
			if v < 4 && r.NodeID != 1 || v >= 4 && r.Coordinators[0].NodeID != 1 {
				t.Errorf("gateway %d: FindCoordinator v%d: %+v", i, v, r)
			}
		}
		if code, values := n.brokerConfig("1"); code != 0 || values["node.id"] != "1" || values["broker.id"] != "1" {
			t.Errorf("gateway %d: configs of broker 1: %d, %v", i, code, values)
		}
		for _, other := range []string{"2", "3"} {
			if code, _ := n.brokerConfig(other); code != kerr.InvalidRequest.Code {
				t.Errorf("gateway %d: configs of broker %s: %d", i, other, code)
			}
		}
	}
}

// TestC38AddressPerGateway: each gateway is a broker, and every API on every
// gateway tells the same of all of them; leaders and coordinators are spread, any
// gateway serves any partition, and a group only its owner.
func TestC38AddressPerGateway(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3, "--address-mode", "per-gateway")
	w.together(1, 2, 3)
	id := w.nodes[0].mustCreate("t", 30)
	for _, n := range w.nodes {
		eventually(t, "the topic", func() bool { return n.metadata(12, "t", false)[0].ErrorCode == 0 })
	}
	groups := groupNames(20)
	// A peer may be suspect for a moment when the machine is busy.
	eventually(t, "all gateways tell the same", func() bool {
		first := w.nodes[0].identity(groups)
		for _, n := range w.nodes[1:] {
			for what, b := range n.identity(groups) {
				if !bytes.Equal(b, first[what]) {
					t.Logf("%s differs: brokers %v here, %v there", what, n.brokerIDs(), w.nodes[0].brokerIDs())
					return false
				}
			}
		}
		return true
	})
	leaders := map[int32]int{}
	for _, p := range w.nodes[0].metadata(12, "t", false)[0].Partitions {
		leaders[p.Leader]++
		if p.LeaderEpoch != 0 || !slices.Equal(p.Replicas, []int32{p.Leader}) || !slices.Equal(p.ISR, p.Replicas) {
			t.Errorf("%+v", p)
		}
	}
	if len(leaders) != 3 {
		t.Errorf("leaders %v", leaders)
	}
	// Any gateway serves partition 0, whoever is named for it.
	for i, n := range w.nodes {
		if base := n.mustProduce("t", records(0, 0, 1, "v")); base != int64(i) {
			t.Errorf("gateway %d: base %d", i, base)
		}
	}
	for i, n := range w.nodes {
		if sp := n.list(7, "t", -1); sp.Offset != 3 {
			t.Errorf("gateway %d: end %d", i, sp.Offset)
		}
		if bs := batches(t, n.fetch(13, "", id, 0)); len(bs) != 3 {
			t.Errorf("gateway %d: %d batches", i, len(bs))
		}
	}

	// Groups: who coordinates serves, others say who does not.
	byID := map[int32]*node{}
	for _, n := range w.nodes {
		node, _ := n.gateway.(*kafka).broker.Node()
		byID[node] = n
	}
	owners := map[int32]int{}
	for _, g := range groups {
		c := w.nodes[0].coordinator(g)
		if r := byID[c.NodeID].join(g); r.ErrorCode != 0 {
			t.Fatalf("join %s at its coordinator: %d", g, r.ErrorCode)
		}
		owners[c.NodeID]++
		for other, n := range byID {
			if other == c.NodeID {
				continue
			}
			if r := n.join(g); r.ErrorCode != kerr.NotCoordinator.Code {
				t.Errorf("join %s elsewhere: %d", g, r.ErrorCode)
			}
			eventually(t, "the owner is known everywhere", func() bool { return n.coordinator(g).NodeID == c.NodeID })
		}
	}
	if len(owners) != 3 {
		t.Errorf("coordinators %v", owners)
	}
	eventually(t, "each group is listed by one broker", func() bool {
		var all []string
		for _, n := range w.nodes {
			all = append(all, n.listed()...)
		}
		slices.Sort(all)
		want := slices.Sorted(slices.Values(groups))
		return slices.Equal(all, want)
	})
	// Configs of every broker, whoever is asked.
	for i, n := range w.nodes {
		for _, id := range []string{"1", "2", "3"} {
			code, values := n.brokerConfig(id)
			of := byID[map[string]int32{"1": 1, "2": 2, "3": 3}[id]]
			if code != 0 || values["broker.id"] != id || values["node.id"] != id || values["advertised.listeners"] != "PLAINTEXT://"+of.addr {
				t.Errorf("gateway %d: configs of broker %s: %d, %v", i, id, code, values)
			}
		}
		if code, _ := n.brokerConfig("4"); code != kerr.InvalidRequest.Code {
			t.Errorf("gateway %d: configs of broker 4: %d", i, code)
		}
	}

	// One drains: nobody is told of it any more, and its groups are served by those
	// whom all name.
	leaving := byID[2]
	w.nodes = slices.DeleteFunc(w.nodes, func(n *node) bool { return n == leaving })
	leaving.gateway.Leaving(t.Context())
	if ids := leaving.brokerIDs(); !slices.Equal(ids, []int32{1, 3}) {
		t.Errorf("it names %v", ids)
	}
	w.together(1, 3)
	leaving.gateway.Shutdown(t.Context())
	leaving.gateway.Close(t.Context())
	for _, g := range groups {
		eventually(t, "a coordinator that serves", func() bool {
			c := w.nodes[0].coordinator(g)
			return c.NodeID != 2 && byID[c.NodeID].offsets(g) == 0
		})
	}

	// One is killed: nobody is told of it within two seconds.
	killed := byID[3]
	killed.kill()
	began := time.Now()
	w.nodes = slices.DeleteFunc(w.nodes, func(n *node) bool { return n == killed })
	w.together(1)
	t.Logf("a killed gateway was named for %v", time.Since(began).Round(time.Millisecond))
}

// TestC38ReplicasPerGateway: as many brokers are named for a partition as it has
// copies, as far as there are so many.
func TestC38ReplicasPerGateway(t *testing.T) {
	t.Parallel()
	w := newWorldOn(t, 3, 3, "--address-mode", "per-gateway", "--replicas", "3")
	w.together(1, 2, 3)
	w.nodes[0].mustCreate("t", 4)
	var seen [][]int32
	for _, p := range w.nodes[0].metadata(12, "t", false)[0].Partitions {
		if sorted := slices.Sorted(slices.Values(p.Replicas)); !slices.Equal(sorted, []int32{1, 2, 3}) || p.Leader != p.Replicas[0] || !slices.Equal(p.ISR, p.Replicas) {
			t.Errorf("%+v", p)
		}
		seen = append(seen, p.Replicas)
	}
	// What it has may be assigned to it, as tools do that repeat what they read.
	req := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	req.TimeoutMillis = 10_000
	rt := kmsg.NewAlterPartitionAssignmentsRequestTopic()
	rt.Topic = "t"
	for i, r := range seen {
		rt.Partitions = append(rt.Partitions, kmsg.AlterPartitionAssignmentsRequestTopicPartition{Partition: int32(i), Replicas: r})
	}
	req.Topics = append(req.Topics, rt)
	for _, p := range ask[*kmsg.AlterPartitionAssignmentsResponse](w.nodes[1], 0, req).Topics[0].Partitions {
		if p.ErrorCode != 0 {
			t.Errorf("reassign %d: %d", p.Partition, p.ErrorCode)
		}
	}
	// Sizes: each broker tells of what it is named for.
	dirs := kmsg.NewPtrDescribeLogDirsRequest()
	for i, n := range w.nodes {
		d := ask[*kmsg.DescribeLogDirsResponse](n, 4, dirs).Dirs[0]
		if d.ErrorCode != 0 || len(d.Topics) != 1 || len(d.Topics[0].Partitions) != 4 {
			t.Errorf("gateway %d: %+v", i, d)
		}
	}
}
