package webui

import (
	"testing"
	"time"

	"github.com/hanzoai/stream/test/e2e/broker"
)

// page is what a tool asks for one of its pages, in its order.
type page struct {
	tool, page string
	calls      []call
}

// call asks and checks the answer.
type call struct {
	name string
	do   func(t *testing.T, w *world)
}

// pages are the tools' calls. Left out: what needs a Schema Registry or Connect.
var pages = []page{
	// kafbat UI ab8c9ceb8: ReactiveAdminClient.create, StatisticsService,
	// ScrapedClusterState.scrape (every 30 s, all pages show what it has found),
	// TopicsService, ConsumerGroupService, MessagesService.
	{"kafbat UI", "start", []call{
		{"describeCluster", javaDescribeCluster},
		{"describeConfigs of the controller", javaBrokerConfigs},
		{"describeFeatures", javaFeatures},
		{"describeAcls, to see whether security is on", javaNoACLs},
	}},
	{"kafbat UI", "scrape", []call{
		{"describeCluster", javaDescribeCluster},
		{"describeMetadataQuorum", javaNoQuorum},
		{"describeLogDirs", javaLogDirs},
		{"listConsumerGroups", javaListGroups},
		{"listTopics", javaListTopics},
		{"describeTopics", javaDescribeTopics},
		{"describeConfigs of topics, synonyms and docs", javaTopicConfigs},
		{"listOffsets latest", javaEndOffsets},
		{"listOffsets earliest", javaStartOffsets},
		{"describeConsumerGroups", javaDescribeGroups},
		{"listConsumerGroupOffsets, all topics", javaGroupOffsets},
	}},
	{"kafbat UI", "topic", []call{
		{"describeTopics", javaDescribeTopics},
		{"describeConfigs of topics, synonyms and docs", javaTopicConfigs},
		{"describeProducers", javaProducers},
		{"messages", javaMessages},
	}},
	{"kafbat UI", "broker", []call{
		{"describeConfigs of the broker", javaBrokerConfigs},
		{"describeLogDirs", javaLogDirs},
	}},

	// AKHQ 91aa445f: AbstractKafkaWrapper, behind all repositories.
	{"AKHQ", "nodes", []call{
		{"describeCluster", javaDescribeCluster},
		{"describeLogDirs", javaLogDirs},
		{"describeConfigs of the broker", javaBrokerConfigs},
	}},
	{"AKHQ", "topics", []call{
		{"listTopics", javaListTopics},
		{"describeTopics", javaDescribeTopics},
		{"consumer: beginningOffsets", javaStartOffsets},
		{"consumer: endOffsets", javaEndOffsets},
		{"describeLogDirs", javaLogDirs},
		{"listConsumerGroups", javaListGroups},
		{"describeConsumerGroups", javaDescribeGroups},
		{"listConsumerGroupOffsets, all topics", javaGroupOffsets},
	}},
	{"AKHQ", "topic", []call{
		{"describeConfigs of topics, synonyms and docs", javaTopicConfigs},
		{"describeAcls", javaNoACLs},
		{"messages", javaMessages},
	}},

	// Redpanda Console 12ba56d5f: backend/pkg/console.
	{"Redpanda Console", "start", []call{
		{"Metadata, ApiVersions", consoleStart},
	}},
	{"Redpanda Console", "overview, brokers", []call{
		{"Metadata", consoleMetadata},
		{"DescribeLogDirs of all brokers", consoleLogDirs},
		{"DescribeConfigs of the broker", consoleBrokerConfigs},
	}},
	{"Redpanda Console", "topics", []call{
		{"Metadata", consoleMetadata},
		{"DescribeConfigs cleanup.policy of all topics", consoleCleanupPolicies},
		{"DescribeAllLogDirs", consoleLogDirs},
	}},
	{"Redpanda Console", "topic", []call{
		{"Metadata, ListStartOffsets, ListEndOffsets", consoleWatermarks},
		{"DescribeConfigs of the topic", consoleTopicConfigs},
		{"ListGroups, DescribeGroups, OffsetFetch: consumers", consoleGroups},
		{"messages", consoleMessages},
	}},
	{"Redpanda Console", "groups", []call{
		{"ListGroups, DescribeGroups, FetchManyOffsets, ListEndOffsets", consoleGroups},
	}},
	{"Redpanda Console", "reassign partitions", []call{
		{"ListPartitionReassignments", consoleReassignments},
	}},

	// kafka_exporter 953e2f1: Exporter.collect, at every scrape.
	{"kafka_exporter", "scrape", []call{
		{"Topics, Partitions, Leader, GetOffset, Replicas, InSyncReplicas", exporterTopics},
		{"ListGroups, DescribeGroups, FetchOffset, GetOffset", exporterGroups},
	}},

	// Burrow ced55ba: core/internal/cluster, core/internal/consumer.
	{"Burrow", "cluster module", []call{
		{"Topics, Partitions, Leader, GetAvailableOffsets", burrowOffsets},
	}},
	{"Burrow", "consumer module", []call{
		{"__consumer_offsets from the beginning", burrowCommits},
	}},
}

func TestPages(t *testing.T) {
	for _, kind := range broker.Kinds([]string{broker.Embedded}) {
		t.Run(kind, func(t *testing.T) {
			open(t, newWorld(t, broker.StartWith(t, kind, broker.Options{Properties: []string{"num.partitions=4"}})))
		})
	}
}

func open(t *testing.T, w *world) {
	calls := 0
	for _, p := range pages {
		for _, c := range p.calls {
			calls++
			t.Run(p.tool+"/"+p.page+"/"+c.name, func(t *testing.T) {
				start := time.Now()
				c.do(t, w)
				if took := time.Since(start); took > 3*time.Second {
					t.Errorf("the page would wait %v", took)
				}
			})
		}
	}
	t.Logf("%d calls of %d pages", calls, len(pages))
}
