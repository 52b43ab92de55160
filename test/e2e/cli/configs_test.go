package cli

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hanzoai/stream/test/e2e/broker"
	"github.com/hanzoai/stream/test/testkit"
)

// configs changes topics and brokers as administrators do.
func configs(t *testing.T, b *broker.Broker) {
	create(t, b, "cli-configs", 1)
	topic := []string{"--entity-type", "topics", "--entity-name", "cli-configs"}
	shows := func(what, want string, entity []string) {
		t.Helper()
		// Apache Kafka's brokers hear of a change a moment after it was answered.
		testkit.Poll(t, 10*time.Second, what, func() error {
			out := tool(t, b, "kafka-configs", slices.Concat([]string{"--describe"}, entity)...).Must(t).Stdout
			if !strings.Contains(out, want) {
				return fmt.Errorf("no %q in %q", want, out)
			}
			return nil
		})
	}
	alter := func(entity []string, args ...string) string {
		t.Helper()
		return tool(t, b, "kafka-configs", slices.Concat([]string{"--alter"}, entity, args)...).Must(t).Stdout
	}
	if out := alter(topic, "--add-config", "retention.ms=60000,cleanup.policy=[compact,delete]"); !strings.Contains(out, "Completed updating config for topic cli-configs.") {
		t.Errorf("alter: %q", out)
	}
	shows("the topic's", "cleanup.policy=compact,delete sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:cleanup.policy=compact,delete, DEFAULT_CONFIG:log.cleanup.policy=delete}", topic)
	shows("the topic's", "retention.ms=60000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=60000}", topic)
	alter(topic, "--delete-config", "cleanup.policy")

	all := []string{"--entity-type", "brokers", "--entity-default"}
	if out := alter(all, "--add-config", "log.retention.ms=70000"); !strings.Contains(out, "Completed updating default config for brokers in the cluster.") {
		t.Errorf("alter all brokers: %q", out)
	}
	shows("all brokers'", "log.retention.ms=70000 sensitive=false synonyms={DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.ms=70000}", all)
	shows("the topic's, over the brokers'", "retention.ms=60000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=60000, DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.ms=70000, DEFAULT_CONFIG:log.retention.hours=168}", topic)
	alter(all, "--delete-config", "log.retention.ms")

	group := []string{"--entity-type", "groups", "--entity-name", "cli-group"}
	if out := alter(group, "--add-config", "consumer.session.timeout.ms=50000"); !strings.Contains(out, "Completed updating config for group cli-group.") {
		t.Errorf("alter a group: %q", out)
	}
	shows("the group's", "consumer.session.timeout.ms=50000 sensitive=false synonyms={DYNAMIC_GROUP_CONFIG:consumer.session.timeout.ms=50000, DEFAULT_CONFIG:group.consumer.session.timeout.ms=45000}", group)
	tool(t, b, "kafka-client-metrics", "--alter", "--name", "cli-metrics", "--metrics", "org.apache.kafka.", "--interval", "10000").Must(t)
	testkit.Poll(t, 10*time.Second, "the subscription", func() error {
		if out := tool(t, b, "kafka-client-metrics", "--describe").Must(t).Stdout; !strings.Contains(out, "cli-metrics") || !strings.Contains(out, "interval.ms=10000") {
			return fmt.Errorf("%q", out)
		}
		return nil
	})

	for _, bad := range [][]string{{"--add-config", "no.such=1"}, {"--add-config", "retention.ms=zzz"}} {
		res, err := tool(t, b, "kafka-configs", slices.Concat([]string{"--alter"}, topic, bad)...).Do(t.Context())
		if out := res.Stdout + res.Stderr; err != nil || res.Code == 0 || !strings.Contains(out, "InvalidConfigurationException") {
			t.Errorf("%v: exit code %d, %v, %s", bad, res.Code, err, out)
		}
	}

	tool(t, b, "kafka-topics", "--alter", "--topic", "cli-configs", "--partitions", "3").Must(t)
	testkit.Poll(t, 10*time.Second, "three partitions", func() error {
		out := tool(t, b, "kafka-topics", "--describe", "--topic", "cli-configs").Must(t).Stdout
		if !strings.Contains(out, "PartitionCount: 3") || !strings.Contains(out, "Configs: retention.ms=60000") && !strings.Contains(out, ",retention.ms=60000") {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
	res, err := tool(t, b, "kafka-topics", "--alter", "--topic", "cli-configs", "--partitions", "2").Do(t.Context())
	if out := res.Stdout + res.Stderr; err != nil || res.Code == 0 || !strings.Contains(out, "2 would not be an increase") {
		t.Errorf("fewer: exit code %d, %v, %s", res.Code, err, out)
	}
}
