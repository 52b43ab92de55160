package suites

import (
	"time"

	"github.com/hanzoai/stream/test/e2e/broker"
)

// one partition per topic that is created without a number, as in the
// environments of these suites.
var onePartition = []string{"num.partitions=1"}

const getOffsets = "calls a nil function in the test itself, which ends all other tests"

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
		limit: 5 * time.Minute,
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
		limit:   5 * time.Minute,
	},
}
