package broker

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hanzoai/stream/test/e2e/tools"
	"github.com/hanzoai/stream/test/testkit"
)

// kafka is one node of Apache Kafka, broker and controller in one.
type kafka struct {
	addr, properties string
	process          *testkit.Process
}

const kafkaProperties = `process.roles=broker,controller
node.id=1
controller.quorum.voters=1@%[2]s
listeners=PLAINTEXT://%[1]s,CONTROLLER://%[2]s
advertised.listeners=PLAINTEXT://%[4]s
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs=%[3]s
num.partitions=4
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

func startKafka(t testing.TB, advertised string) *kafka {
	t.Helper()
	dir := t.TempDir()
	k := &kafka{addr: testkit.FreeAddr(t), properties: filepath.Join(dir, "server.properties")}
	if advertised == "" {
		advertised = k.addr
	}
	text := fmt.Sprintf(kafkaProperties, k.addr, testkit.FreeAddr(t), filepath.Join(dir, "log"), advertised)
	if err := os.WriteFile(k.properties, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	tools.Kafka(t, "kafka-storage", "format", "-t", "c3RyZWFtLWUyZS10ZXN0cw", "-c", k.properties).Must(t)
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
