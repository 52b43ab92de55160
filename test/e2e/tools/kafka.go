package tools

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/hanzoai/stream/test/testkit"
)

// classes are the main classes of Kafka's command line tools, release 4.3.
var classes = map[string]string{
	"kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
	"kafka-client-metrics":      "org.apache.kafka.tools.ClientMetricsCommand",
	"kafka-cluster":             "org.apache.kafka.tools.ClusterTool",
	"kafka-configs":             "kafka.admin.ConfigCommand",
	"connect-distributed":       "org.apache.kafka.connect.cli.ConnectDistributed",
	"connect-standalone":        "org.apache.kafka.connect.cli.ConnectStandalone",
	"kafka-console-consumer":    "org.apache.kafka.tools.consumer.ConsoleConsumer",
	"kafka-console-producer":    "org.apache.kafka.tools.ConsoleProducer",
	"kafka-consumer-groups":     "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
	"kafka-consumer-perf-test":  "org.apache.kafka.tools.ConsumerPerformance",
	"kafka-delete-records":      "org.apache.kafka.tools.DeleteRecordsCommand",
	"kafka-e2e-latency":         "org.apache.kafka.tools.EndToEndLatency",
	"kafka-features":            "org.apache.kafka.tools.FeatureCommand",
	"kafka-get-offsets":         "org.apache.kafka.tools.GetOffsetShell",
	"kafka-groups":              "org.apache.kafka.tools.GroupsCommand",
	"kafka-leader-election":     "org.apache.kafka.tools.LeaderElectionCommand",
	"kafka-log-dirs":            "org.apache.kafka.tools.LogDirsCommand",
	"kafka-producer-perf-test":  "org.apache.kafka.tools.ProducerPerformance",
	"kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
	"kafka-server-start":        "kafka.Kafka",
	"kafka-storage":             "kafka.tools.StorageTool",
	"kafka-topics":              "org.apache.kafka.tools.TopicCommand",
	"kafka-transactions":        "org.apache.kafka.tools.TransactionsCommand",
}

// Kafka is a run of one of Kafka's tools: the one of KAFKA_BIN_DIR, if that is
// set, else from the jars of setup.sh.
func Kafka(t testing.TB, name string, args ...string) Run {
	t.Helper()
	return kafka(t, name, "256m", args)
}

// KafkaServer is a run of Apache Kafka itself.
func KafkaServer(t testing.TB, properties string) Run {
	t.Helper()
	return kafka(t, "kafka-server-start", "512m", []string{properties})
}

func kafka(t testing.TB, name, heap string, args []string) Run {
	t.Helper()
	if dir := os.Getenv("KAFKA_BIN_DIR"); dir != "" {
		return Run{Path: filepath.Join(dir, name+".sh"), Args: args, Env: []string{"KAFKA_HEAP_OPTS=-Xmx" + heap}}
	}
	class, ok := classes[name]
	if !ok {
		t.Fatalf("no class is known for the tool %s", name)
	}
	java, err := exec.LookPath("java")
	if err != nil {
		Missing(t, "%v", err)
	}
	return Run{Path: java, Args: slices.Concat([]string{"-Xmx" + heap, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=" + tier(name)}, archived(), []string{
		"-Dlog4j2.configurationFile=" + filepath.Join(testkit.Root(), "test/e2e/kafka/log4j2.xml"),
		"-cp", installed(t, "kafka/libs") + "/*", class,
	}, args)}
}

// archived are the options for the archive of classes that setup.sh makes, which
// halves what a start costs. An archive that does not fit, of another Java or for
// jars elsewhere, is passed over in silence.
func archived() []string {
	path := filepath.Join(testkit.Cache(), "kafka/tools.jsa")
	if _, err := os.Stat(path); err != nil {
		return []string{"-Xshare:auto"}
	}
	return []string{"-Xshare:auto", "-Xlog:disable", "-XX:SharedArchiveFile=" + path}
}

// tier is the highest compiler used: short-lived tools start faster with the
// first alone.
func tier(name string) string {
	switch name {
	case "kafka-server-start", "kafka-producer-perf-test", "kafka-consumer-perf-test":
		return "4"
	}
	return "1"
}

// KafkaSource is a run of a Java source file of test/e2e/java on Kafka's
// libraries.
func KafkaSource(t testing.TB, file string, args ...string) Run {
	t.Helper()
	java, err := exec.LookPath("java")
	if err != nil {
		Missing(t, "%v", err)
	}
	return Run{Path: java, Args: slices.Concat([]string{"-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"}, archived(), []string{
		"-Dlog4j2.configurationFile=" + filepath.Join(testkit.Root(), "test/e2e/kafka/log4j2.xml"),
		"-cp", installed(t, "kafka/libs") + "/*", filepath.Join(testkit.Root(), "test/e2e/java", file),
	}, args)}
}
