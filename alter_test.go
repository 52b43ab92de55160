package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/test/testkit"
)

// incremental sets configs of a topic, or with "" of all brokers.
func (n *node) incremental(topic, key, value string, op kmsg.IncrementalAlterConfigOp) {
	n.t.Helper()
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeTopic, topic
	if topic == "" {
		r.ResourceType = kmsg.ConfigResourceTypeBroker
	}
	c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	c.Name, c.Op, c.Value = key, op, &value
	r.Configs = append(r.Configs, c)
	req.Resources = append(req.Resources, r)
	if resp := ask[*kmsg.IncrementalAlterConfigsResponse](n, 1, req); resp.Resources[0].ErrorCode != 0 {
		n.t.Fatalf("%s=%s: %d %s", key, value, resp.Resources[0].ErrorCode, *resp.Resources[0].ErrorMessage)
	}
}

func (n *node) describeConfig(topic, key string) string {
	n.t.Helper()
	req := kmsg.NewPtrDescribeConfigsRequest()
	r := kmsg.NewDescribeConfigsRequestResource()
	r.ResourceType, r.ResourceName, r.ConfigNames = kmsg.ConfigResourceTypeTopic, topic, []string{key}
	req.Resources = append(req.Resources, r)
	c := ask[*kmsg.DescribeConfigsResponse](n, 4, req).Resources[0].Configs[0]
	return fmt.Sprint(*c.Value, " ", c.Source)
}

// within polls what another gateway must have brought about within a second.
func within(t *testing.T, what string, cond func() bool) {
	t.Helper()
	if err := testkit.Within(time.Second, 5*time.Millisecond, func() error {
		if !cond() {
			return fmt.Errorf("%s: not within a second", what)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

// A change made through one gateway is shown by all others at once and obeyed
// within a second, partitions that are open included, and taken back likewise.
func TestC43ChangesReachOpenPartitions(t *testing.T) {
	w := newWorld(t, 3)
	a, b, c := w.nodes[0], w.nodes[1], w.nodes[2]
	a.mustCreate("t", 1)
	for _, n := range w.nodes {
		n.mustProduce("t", records(-1, -1, 1, "open"))
	}
	big := string(make([]byte, 2000))
	for _, s := range []struct {
		topic, key, value string
		op                kmsg.IncrementalAlterConfigOp
		shown             string
		code              int16
	}{
		{"t", "max.message.bytes", "1000", 0, "1000 DYNAMIC_TOPIC_CONFIG", 10},
		{"t", "max.message.bytes", "", 1, "1048588 DEFAULT_CONFIG", 0},
		{"", "message.max.bytes", "900", 0, "900 DYNAMIC_DEFAULT_BROKER_CONFIG", 10},
		{"t", "max.message.bytes", "5000", 0, "5000 DYNAMIC_TOPIC_CONFIG", 0},
		{"t", "max.message.bytes", "", 1, "900 DYNAMIC_DEFAULT_BROKER_CONFIG", 10},
		{"", "message.max.bytes", "", 1, "1048588 DEFAULT_CONFIG", 0},
	} {
		a.incremental(s.topic, s.key, s.value, s.op)
		if got := a.produce(9, "t", records(-1, -1, 1, big)).ErrorCode; got != s.code {
			t.Errorf("%+v: the gateway that answered says %d", s, got)
		}
		for _, n := range []*node{b, c} {
			if got := n.describeConfig("t", "max.message.bytes"); got != s.shown {
				t.Errorf("%+v: another gateway shows %s", s, got)
			}
			within(t, fmt.Sprintf("%+v", s), func() bool { return n.produce(9, "t", records(-1, -1, 1, big)).ErrorCode == s.code })
		}
	}
	// One that starts later knows too.
	a.incremental("", "message.max.bytes", "800", 0)
	d := w.start()
	if got := d.produce(9, "t", records(-1, -1, 1, big)).ErrorCode; got != 10 {
		t.Errorf("a gateway that started later: %d", got)
	}
}

// A partition that one gateway has made is there for all from its answer on: to
// write, to read, to commit.
func TestC07GrownTopicIsUsableOnAllGateways(t *testing.T) {
	w := newWorld(t, 3)
	w.nodes[0].mustCreate("t", 1)
	for _, n := range w.nodes {
		n.mustProduce("t", records(-1, -1, 1, "open"))
	}
	for count := int32(2); count < 12; count++ {
		by := w.nodes[int(count)%3]
		req := kmsg.NewPtrCreatePartitionsRequest()
		rt := kmsg.NewCreatePartitionsRequestTopic()
		rt.Topic, rt.Count = "t", count
		req.Topics, req.TimeoutMillis = append(req.Topics, rt), 10_000
		if resp := ask[*kmsg.CreatePartitionsResponse](by, 3, req); resp.Topics[0].ErrorCode != 0 {
			t.Fatalf("grow to %d: %d", count, resp.Topics[0].ErrorCode)
		}
		for i, n := range w.nodes {
			pr := kmsg.NewPtrProduceRequest()
			pt := kmsg.NewProduceRequestTopic()
			pp := kmsg.NewProduceRequestTopicPartition()
			pp.Partition, pp.Records = count-1, records(-1, -1, 1, "new")
			pt.Topic, pt.Partitions = "t", append(pt.Partitions, pp)
			pr.Topics, pr.Acks, pr.TimeoutMillis = append(pr.Topics, pt), -1, 10_000
			sp := ask[*kmsg.ProduceResponse](n, 9, pr).Topics[0].Partitions[0]
			if sp.ErrorCode != 0 || sp.BaseOffset != int64(i) {
				t.Errorf("partition %d, gateway %d: %d at %d", count-1, i, sp.ErrorCode, sp.BaseOffset)
			}
			within(t, "metadata", func() bool { return len(n.metadata(12, "t", false)[0].Partitions) == int(count) })
		}
	}
}

// Defaults from the configuration are in force and shown, below what is changed
// while gateways run.
func TestC43TopicDefaults(t *testing.T) {
	w := newWorld(t, 1, "--topic-defaults", "log.message.timestamp.type=LogAppendTime; log.roll.hours=2",
		"--kafka-property", "message.max.bytes=900")
	n := w.nodes[0]
	n.mustCreate("t", 1)
	for key, want := range map[string]string{
		"message.timestamp.type": "LogAppendTime STATIC_BROKER_CONFIG",
		"max.message.bytes":      "900 STATIC_BROKER_CONFIG",
		// As in Kafka: another key of the chain gives the value, not the source.
		"segment.ms": "7200000 DEFAULT_CONFIG",
	} {
		if got := n.describeConfig("t", key); got != want {
			t.Errorf("%s: %s, want %s", key, got, want)
		}
	}
	n.mustProduce("t", records(-1, -1, 1, "x"))
	if b := batches(t, n.fetch(12, "t", [16]byte{}, 0)); len(b) != 1 || !b[0].LogAppendTime() {
		t.Error("the batch does not carry the time of its append")
	}
	n.incremental("", "log.message.timestamp.type", "CreateTime", 0)
	if got := n.describeConfig("t", "message.timestamp.type"); got != "CreateTime DYNAMIC_DEFAULT_BROKER_CONFIG" {
		t.Error(got)
	}
}
