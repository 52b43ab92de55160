package suites

import (
	"time"

	"github.com/hanzoai/stream/test/e2e/broker"
)

// one partition per topic that is created without a number, as in the
// environments of these suites.
var onePartition = []string{"num.partitions=1"}

const getOffsets = "calls a nil function in the test itself, which ends all other tests"

const docker = "stops a broker through docker"

// table is every suite. As many run at a time as the machine has cores.
var table = []*suite{
	{
		name:     "kafka-go",
		module:   "github.com/segmentio/kafka-go@v0.4.51",
		sum:      "h1:JgDPPG75tC1rWIS2Me6MwcvXJ6f49UQ4HjAOef71Hno=",
		packages: []string{".", "./compress", "./sasl", "./topics"},
		flags:    []string{"-parallel", "4"},
		env:      []string{"KAFKA_VERSION=2.3.1", "KAFKA_SKIP_NETTEST=1"},
		// The default port, which the tests write out or leave to the client.
		replace: []string{"9092", "{port}", "9093", "{saslport}"},
		broker:  broker.Options{Properties: onePartition, SASL: true, Advertised: "localhost"},
		skip: map[string]string{
			"TestReaderConsumerGroup/verify_offset_committed":                               getOffsets,
			"TestReaderConsumerGroup/verify_offset_committed_when_using_interval_committer": getOffsets,
			"TestReaderConsumerGroup/consumer_group_commits_on_close":                       getOffsets,
		},
		slow: map[string]string{
			"TestReaderConsumerGroup/rebalance_across_many_partitions_and_consumers": "28 s",
			"TestReaderConsumerGroup/consumer_group_rebalance_across_topics":         "22 s",
			"TestReaderConsumerGroup/consumer_group_reads_content_across_partitions": "12 s",
			"TestOffsetFetchRequestWithNoTopic":                                      "9 s",
			"TestConsumerGroupWithGroupTopicsMultiple":                               "8 s",
			"TestDialerResolver":                             "15 s, most of them for name servers",
			"TestWriter/test_write_message_with_writer_data": "11 s",
		},
		limit: 5 * time.Minute,
	},
	{
		name:     "confluent-kafka-go",
		module:   "github.com/confluentinc/confluent-kafka-go/v2@v2.11.1",
		sum:      "h1:qGCQznyp2BxyBNyOE+M7O1YS2tI1/Y60O0jQP452zA4=",
		packages: []string{"./kafka"},
		// The others need no broker, and wait minutes for none.
		flags: []string{"-run", "^Test(Integration|Transactional(Producer|SendOffsets)|ConsumerCloseForStaticMember|ParallelConsumerCloses)$"},
		// Docker is not used, and hundreds of modules stand behind it.
		replace: []string{
			`"github.com/testcontainers/testcontainers-go/modules/compose"`,
			`"github.com/confluentinc/confluent-kafka-go/v2/kafka/compose"`,
			// Tests that begin within the same second would use the same topics.
			`rand.Seed(time.Now().Unix())`, `rand.Seed(time.Now().UnixNano())`,
		},
		files: map[string]string{
			"kafka/compose/compose.go": noCompose,
			"kafka/testconf.json": `{"Brokers": "{addr}", "BrokersSasl": "{sasl}", "SaslUsername": "testuser", "SaslPassword": "testpass", "SaslMechanism": "PLAIN",
				"TopicName": "test", "GroupID": "testgroup", "PerfMsgCount": 10000, "PerfMsgSize": 100, "Config": ["api.version.request=true"]}`,
		},
		broker: broker.Options{SASL: true, Properties: []string{"num.partitions=4"}},
		slow: map[string]string{
			"kafka TestConsumerCloseForStaticMember": "18 s",
			// The last of eight messages is for partition 10000. If the topic's metadata
			// is there by then the client refuses it at once, which these take for an error.
			"kafka TestIntegration/TestProducerFunc":                              "a race in the client",
			"kafka TestIntegration/TestProducerFuncDR":                            "a race in the client",
			"kafka TestIntegration/TestAdminConfig":                               "15 s, most of them asleep",
			"kafka TestIntegration/TestConsumerSeekPartitions":                    "10 s",
			"kafka TestIntegration/TestAdminClient_ListAndDescribeConsumerGroups": "7 s",
		},
		limit: 5 * time.Minute,
	},
	{
		name:     "sarama",
		module:   "github.com/IBM/sarama@v1.61.1",
		sum:      "h1:I59MWPHQUWqJNdRpsDUcbeCriog8SxjQaPfHNWxidEg=",
		packages: []string{"."},
		flags: []string{"-tags", "functional", "-run",
			"^Test(Func.*|VersionMatrix.*|Consumer(HighWaterMarkOffset|PartialBatchRecovery|GroupDeadlock|FetchFollowerFailover)|ReadOnlyAndAllCommittedMessages|Interceptors|AsyncProducerRemoteBrokerClosed)$"},
		env: []string{"KAFKA_VERSION=4.3.1", "TOXIPROXY_ADDR={toxiproxy}"},
		// Five names of one broker, which clients reach through the proxy.
		replace: []string{
			`fmt.Sprintf("127.0.0.1:%d", 29090+i)`, `"{proxy}"`,
			`ReplicationFactor: 3,`, `ReplicationFactor: 1,`,
		},
		setup: toxiproxy,
		skip: map[string]string{
			"TestConsumerFetchFollowerFailover":     docker,
			"TestFuncAdminListConsumerGroupOffsets": docker,
			"TestFuncIdempotentBufferedSequence":    docker,
			"TestFuncTxnProduceWithBrokerFailure":   docker,
		},
		slow: map[string]string{
			"TestFuncConsumerGroupFuzzy":                          "35 s",
			"TestFuncConsumerGroupRebalanceAfterAddingPartitions": "23 s",
			"TestFuncProducingIdempotentWithBrokerFailure":        "19 s",
		},
		limit: 6 * time.Minute,
	},
	{
		name:     "watermill-kafka",
		module:   "github.com/ThreeDotsLabs/watermill-kafka/v3@v3.0.6",
		sum:      "h1:xK+VLDjYvBrRZDaFZ7WSqiNmZ9lcDG5RIilFVDZOVyQ=",
		packages: []string{"./pkg/kafka"},
		flags:    []string{"-short", "-parallel", "4"},
		env:      []string{"WATERMILL_TEST_KAFKA_BROKERS={addr}"},
		// Hundreds of topics at once: with 50 partitions each, one small node of
		// Apache Kafka is too slow for the time limits in the tests.
		replace: []string{"NumPartitions:     50,", "NumPartitions:     10,"},
		broker:  broker.Options{Properties: onePartition},
		slow: map[string]string{
			"pkg/kafka TestPublishSubscribe_AutoCommitDisabled/TestConcurrentSubscribe": "18 s",
			"pkg/kafka TestPublishSubscribe_AutoCommitDisabled/TestPublisherClose":      "10 s",
		},
		limit: 5 * time.Minute,
	},
	{
		name:     "rskafka",
		module:   "rskafka@0.6.0",
		programs: []string{"client", "consumer", "produce_consume", "producer"},
		flags:    []string{"--test-threads", "4"},
		env:      []string{"TEST_INTEGRATION=1", "TEST_BROKER_IMPL=kafka", "KAFKA_CONNECT={addr}"},
		broker:   broker.Options{Properties: []string{"auto.create.topics.enable=false"}},
		skip:     other(),
		limit:    2 * time.Minute,
	},
}

// other names the tests that need a client which is not in the programs.
func other() map[string]string {
	skip := map[string]string{"client test_sasl": "needs a user admin"}
	for _, codec := range []string{"nocompression", "gzip", "lz4", "snappy", "zstd"} {
		for _, pair := range []string{
			"java_consume_java", "java_consume_rskafka", "rskafka_consume_java",
			"rdkafka_consume_rdkafka", "rdkafka_consume_rskafka", "rskafka_consume_rdkafka",
		} {
			skip["produce_consume test_produce_"+pair+"_"+codec] = "needs the Java client or librdkafka, which meet in test/e2e/clients"
		}
	}
	return skip
}

const noCompose = `// Package compose stands for one that starts containers.
package compose

type LocalDockerCompose struct{}

func NewLocalDockerCompose([]string, string) *LocalDockerCompose { panic("no containers here") }

func (*LocalDockerCompose) Down() {}

func (d *LocalDockerCompose) WithCommand([]string) *LocalDockerCompose { return d }

func (*LocalDockerCompose) Invoke() (r struct{ Error error }) { return r }
`
