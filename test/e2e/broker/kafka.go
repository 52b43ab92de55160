package broker

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hanzoai/stream/test/e2e/tools"
	"github.com/hanzoai/stream/test/testkit"
)

// kafka is one node of Apache Kafka, broker and controller in one.
type kafka struct {
	addr, sasl, properties string
	process                *testkit.Process
}

const kafkaProperties = `process.roles=broker,controller
node.id=1
controller.quorum.voters=1@%[2]s
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT
log.dirs=%[3]s
offsets.topic.replication.factor=1
offsets.topic.num.partitions=5
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=5
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.coordinator.rebalance.protocols=classic,consumer,streams,share
group.initial.rebalance.delay.ms=0
`

// Users of the SASL listener: the ones that the suites of kafka-go and of
// confluent-kafka-go expect.
const saslProperties = `sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512
listener.name.sasl.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required user_adminplain="admin-secret" user_testuser="testpass";
listener.name.sasl.scram-sha-256.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.sasl.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
allow.everyone.if.no.acl.found=true
super.users=User:ANONYMOUS
`

var scramUsers = []string{
	"--add-scram", "SCRAM-SHA-256=[name=adminscram,password=admin-secret-256]",
	"--add-scram", "SCRAM-SHA-512=[name=adminscram,password=admin-secret-512]",
}

func startKafka(t testing.TB, o Options) *kafka {
	t.Helper()
	dir := t.TempDir()
	k := &kafka{addr: o.Addr, properties: filepath.Join(dir, "server.properties")}
	controller := testkit.FreeAddr(t)
	text := fmt.Sprintf(kafkaProperties, k.addr, controller, filepath.Join(dir, "log"))
	listeners, advertised := "PLAINTEXT://"+k.addr, "PLAINTEXT://"+o.Advertised
	// Without eligible leader replicas (KIP-966): with them it keeps a cluster
	// default of min.insync.replicas, shows it as a config of every topic, and
	// refuses every AlterConfigs of the cluster that would leave it out. We have no
	// such thing.
	format := []string{"format", "-t", "c3RyZWFtLWUyZS10ZXN0cw", "-c", k.properties, "--feature", "eligible.leader.replicas.version=0"}
	if o.SASL {
		k.sasl = testkit.FreeAddr(t)
		listeners += ",SASL://" + k.sasl
		advertised += ",SASL://" + k.sasl
		text += saslProperties
		format = append(format, scramUsers...)
	}
	text += "listeners=" + listeners + ",CONTROLLER://" + controller + "\nadvertised.listeners=" + advertised + "\n"
	// The last value of a name counts.
	text += strings.Join(append([]string{"num.partitions=4"}, o.Properties...), "\n") + "\n"
	if err := os.WriteFile(k.properties, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	tools.Kafka(t, "kafka-storage", format...).Must(t)
	k.Restart(t)
	return k
}

func (k *kafka) Restart(t testing.TB) {
	t.Helper()
	run := tools.KafkaServer(t, k.properties)
	k.process = testkit.StartProcess(t, testkit.Command{Name: "kafka", Path: run.Path, Args: run.Args, Env: run.Env})
	ping(t, k.addr, time.Minute, k.process.Exited())
}

func (k *kafka) Kill(testing.TB) { k.process.Kill() }

func (k *kafka) Stop(t testing.TB) {
	t.Helper()
	k.process.Terminate(t, time.Minute)
}

func (k *kafka) Log() string { return k.process.Log() }
