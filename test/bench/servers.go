package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/test/testkit"
)

// Cores of clients and servers in pinned views.
const (
	clientCore = "0"
	serverCore = "1"
)

// firstAnswer bounds the start of a system, beside others on a busy machine too.
const firstAnswer = 5 * time.Minute

// server is one system under load.
type server struct {
	name    string // kafka, stream, other, nats
	addr    string // host:port; of NATS a URL
	process *testkit.Process
	started time.Duration // from exec to the first answer
	dir     string
	cl      *kgo.Client
}

// kafkaProperties are those of one node, with Kafka's defaults where they
// matter here: eight network and three disk threads, no fsync.
const kafkaProperties = `process.roles=broker,controller
node.id=1
controller.quorum.voters=1@%[2]s
listeners=PLAINTEXT://%[1]s,CONTROLLER://%[2]s
advertised.listeners=PLAINTEXT://%[1]s
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs=%[3]s
offsets.topic.replication.factor=1
offsets.topic.num.partitions=5
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=5
log.segment.delete.delay.ms=1000
`

// start starts a system for a view and waits for its first answer.
func (b *bench) start(v view, name string) *server {
	s := &server{name: name, dir: filepath.Join(b.dir, v.name+"-"+name)}
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		b.t.Fatal(err)
	}
	var cmd testkit.Command
	switch name {
	case "kafka":
		cmd = b.kafka(s, v)
	case "nats":
		cmd = b.nats(s, v)
	default:
		cmd = b.stream(s, v)
	}
	cmd.Name = name
	if v.pinned {
		cmd.Args = append([]string{"-c", serverCore, cmd.Path}, cmd.Args...)
		cmd.Path = "taskset"
	}
	begin := time.Now()
	s.process = testkit.StartProcess(b.t, cmd)
	if name == "nats" {
		testkit.Poll(b.t, time.Minute, "first answer of nats", func() error {
			return testkit.Get(b.t.Context(), "http://"+s.monitor()+"/healthz")
		})
		s.started = time.Since(begin)
		return s
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(s.addr))
	if err != nil {
		b.t.Fatal(err)
	}
	s.cl = cl
	b.t.Cleanup(cl.Close)
	testkit.Poll(b.t, firstAnswer, "first answer of "+name, func() error {
		select {
		case <-s.process.Exited():
			b.t.Fatalf("%s has ended:\n%s", name, s.process.Log())
		default:
		}
		ctx, cancel := context.WithTimeout(b.t.Context(), time.Second)
		defer cancel()
		return cl.Ping(ctx)
	})
	s.started = time.Since(begin)
	return s
}

func (b *bench) kafka(s *server, v view) testkit.Command {
	s.addr = testkit.FreeAddr(b.t)
	text := fmt.Sprintf(kafkaProperties, s.addr, testkit.FreeAddr(b.t), filepath.Join(s.dir, "log"))
	if v.fsync {
		text += "log.flush.interval.messages=1\n"
	}
	logs := filepath.Join(testkit.Root(), "test/e2e/kafka/log4j2.xml")
	if b.plan != nil {
		text += "log.cleaner.backoff.ms=1000\n"
		logs = filepath.Join(testkit.Root(), "test/bench/kafka/log4j2.xml")
	}
	file := filepath.Join(s.dir, "server.properties")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		b.t.Fatal(err)
	}
	java := func(class string, args ...string) []string {
		return append([]string{ // the options of kafka-server-start.sh
			"-Xms1g", "-Xmx1g", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20",
			"-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent",
			"-Dlog4j2.configurationFile=" + logs,
			"-cp", b.tools.kafkaLibs + "/*", class,
		}, args...)
	}
	format := append([]string{b.tools.java}, java("kafka.tools.StorageTool", "format", "-t", "c3RyZWFtLWUyZS10ZXN0cw", "-c", file)...)
	if err := command(b.t.Context(), s.dir, format...); err != nil {
		b.t.Fatal(err)
	}
	return testkit.Command{Path: b.tools.java, Args: java("kafka.Kafka", file)}
}

func (b *bench) stream(s *server, v view) testkit.Command {
	s.addr = testkit.FreeAddr(b.t)
	_, port, _ := strings.Cut(s.addr, ":")
	sync := "2m" // Kafka's default leaves it to the system too
	if v.fsync {
		sync = "always"
	}
	path := b.other
	if s.name == "stream" {
		path = testkit.Binary(b.t)
	}
	args := []string{
		"--bind", "127.0.0.1", "--host", "127.0.0.1", "--port", port, "--admin-port", "0",
		"--data-dir", s.dir, "--sync", sync,
	}
	if b.plan == nil {
		args = append(args, "--log-level", "warn")
	} else {
		args = append(append(args, "--log-level", "info", "--log-format", "text", "--log-cleaner-backoff-ms", "1s"), b.plan.args...)
	}
	return testkit.Command{Path: path, Args: args}
}

func (b *bench) nats(s *server, v view) testkit.Command {
	bin, version, err := testkit.NATSBinary(b.t.Context(), "")
	if err != nil {
		b.t.Fatal(err)
	}
	b.versions["nats-server"] = version
	s.addr = "nats://" + testkit.FreeAddr(b.t)
	monitor := testkit.FreePort(b.t)
	sync := "2m"
	if v.fsync {
		sync = "always"
	}
	conf := filepath.Join(s.dir, "nats.conf")
	text := fmt.Sprintf("host: 127.0.0.1\nport: %d\nhttp: 127.0.0.1:%d\nmax_payload: 8388608\njetstream { store_dir: %q, sync_interval: %q }\n",
		testkit.Port(b.t, s.addr), monitor, s.dir, sync)
	if err := os.WriteFile(conf, []byte(text), 0o644); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.dir, "monitor"), fmt.Appendf(nil, "127.0.0.1:%d", monitor), 0o644); err != nil {
		b.t.Fatal(err)
	}
	return testkit.Command{Path: bin, Args: []string{"-c", conf}}
}

// monitor is the address of NATS's HTTP.
func (s *server) monitor() string {
	b, _ := os.ReadFile(filepath.Join(s.dir, "monitor"))
	return string(b)
}

// create makes a topic of one partition, with configs as name=value.
func (b *bench) create(s *server, topic string, configs ...string) {
	req := kmsg.NewPtrCreateTopicsRequest()
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = topic, 1, 1
	for _, c := range configs {
		name, value, _ := strings.Cut(c, "=")
		t.Configs = append(t.Configs, kmsg.CreateTopicsRequestTopicConfig{Name: name, Value: &value})
	}
	req.Topics = append(req.Topics, t)
	testkit.Poll(b.t, 30*time.Second, "create "+topic, func() error {
		ctx, cancel := context.WithTimeout(b.t.Context(), 20*time.Second)
		defer cancel()
		resp, err := req.RequestWith(ctx, s.cl)
		if err != nil {
			return err
		}
		if err := kerr.ErrorForCode(resp.Topics[0].ErrorCode); err != nil && err != kerr.TopicAlreadyExists {
			return err
		}
		return nil
	})
}

// remove deletes a topic: the disk is not endless.
func (b *bench) remove(s *server, topic string) {
	req := kmsg.NewPtrDeleteTopicsRequest()
	t := kmsg.NewDeleteTopicsRequestTopic()
	t.Topic = kmsg.StringPtr(topic)
	req.Topics, req.TopicNames = append(req.Topics, t), []string{topic}
	ctx, cancel := context.WithTimeout(b.t.Context(), 30*time.Second)
	defer cancel()
	if resp, err := req.RequestWith(ctx, s.cl); err != nil {
		b.t.Logf("bench: delete %s: %v", topic, err)
	} else if err := kerr.ErrorForCode(resp.Topics[0].ErrorCode); err != nil {
		b.t.Logf("bench: delete %s: %v", topic, err)
	}
}
