package deploy

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/hanzoai/stream/test/testkit"
)

// natsLog keeps what the servers warn of.
type natsLog struct {
	mu    sync.Mutex // guards: lines
	lines []string
}

func (l *natsLog) add(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, fmt.Sprintf(format, args...))
}

// violations are the lines about something that was not permitted.
func (l *natsLog) violations() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []string
	for _, line := range l.lines {
		if strings.Contains(line, "Violation") {
			out = append(out, line)
		}
	}
	return out
}

func (l *natsLog) Noticef(string, ...any)            {}
func (l *natsLog) Debugf(string, ...any)             {}
func (l *natsLog) Tracef(string, ...any)             {}
func (l *natsLog) Warnf(format string, args ...any)  { l.add(format, args...) }
func (l *natsLog) Errorf(format string, args ...any) { l.add(format, args...) }
func (l *natsLog) Fatalf(format string, args ...any) { l.add(format, args...) }

// startNATS starts the servers of the manifests in this process. Of their
// configuration only addresses and folders are others.
func startNATS(t *testing.T, m *manifests) ([]*server.Server, *natsLog) {
	t.Helper()
	w, text, log := m.workload("nats"), natsConf(t, m), &natsLog{}
	var options []*server.Options
	var routes []*url.URL
	for i := range w.replicas {
		o := processConfig(t, text, fmt.Sprintf("%s-%d", w.meta.Name, i))
		o.Host, o.Port, o.HTTPHost, o.HTTPPort = "127.0.0.1", -1, "127.0.0.1", -1
		o.Cluster.Host, o.Cluster.Port = "127.0.0.1", testkit.FreePort(t)
		o.StoreDir, o.PidFile, o.NoSigs = t.TempDir(), "", true
		routes = append(routes, &url.URL{Scheme: "nats-route", Host: net.JoinHostPort("127.0.0.1", itoa(o.Cluster.Port))})
		options = append(options, o)
	}
	var servers []*server.Server
	for _, o := range options {
		o.Routes = routes
		s, err := server.NewServer(o)
		if err != nil {
			t.Fatal(err)
		}
		s.SetLoggerV2(log, false, false, false)
		t.Cleanup(func() {
			s.Shutdown()
			s.WaitForShutdown()
		})
		servers = append(servers, s)
		s.Start()
	}
	t.Cleanup(func() {
		if t.Failed() {
			log.mu.Lock()
			defer log.mu.Unlock()
			t.Logf("nats:\n%s", strings.Join(log.lines, "\n"))
		}
	})
	return servers, log
}

// gateway is a gateway's process.
type gateway struct {
	addr, web string
	command   testkit.Command
	process   *testkit.Process
}

// waitStarted waits for /readyz. Both gateways start on an empty cluster at the
// same time, and neither may fail for what the other one is making.
func (g *gateway) waitStarted(t *testing.T) {
	t.Helper()
	testkit.Poll(t, 2*time.Minute, "gateway ready", func() error {
		select {
		case <-g.process.Exited():
			t.Fatalf("a gateway ended with exit code %d:\n%s", g.process.ExitCode(t, time.Second), g.process.Log())
		default:
		}
		return testkit.Get(t.Context(), "http://"+g.web+"/readyz")
	})
}

// TestCluster runs what the manifests describe: three NATS servers with their
// configuration, two gateways with their arguments, and clients.
func TestCluster(t *testing.T) {
	m := render(t)
	gatewayPod, natsPod := m.workload("stream"), m.workload("nats")
	binary := hostBinary(t)
	servers, log := startNATS(t, m)
	var urls []string
	for _, s := range servers {
		waitProbes(t, natsPod.pod.Spec.Containers[0], "http://"+s.MonitorAddr().String())
		urls = append(urls, s.ClientURL())
	}

	var gateways []*gateway
	for i := range gatewayPod.replicas {
		g := &gateway{addr: testkit.FreeAddr(t), web: testkit.FreeAddr(t)}
		c := gatewayPod.start(t, fmt.Sprintf("stream-%d", i))
		args := append(c.args, "--pubsub-url="+strings.Join(urls, ","), "--bind="+g.addr, "--admin-bind="+g.web, "--advertised-address="+g.addr)
		g.command = testkit.Command{Name: "stream", Path: binary, Args: args, Env: c.env, Dir: t.TempDir()}
		g.process = testkit.StartProcess(t, g.command)
		gateways = append(gateways, g)
	}
	for _, g := range gateways {
		g.waitStarted(t)
		waitProbes(t, gatewayPod.pod.Spec.Containers[0], "http://"+g.web)
	}
	one, two := gateways[0], gateways[1]

	var status struct {
		NodeID     int `json:"node_id"`
		Gateways   []any
		Warnings   []string
		Durability struct{ Level string }
		NATS       struct {
			MaxPayload int `json:"max_payload"`
		}
	}
	testkit.Poll(t, 20*time.Second, "two gateways", func() error {
		if err := getJSON(t.Context(), "http://"+one.web+"/v1/stream/status", &status); err != nil {
			return err
		}
		if len(status.Gateways) != 2 {
			return fmt.Errorf("%d gateways", len(status.Gateways))
		}
		return nil
	})
	if status.Durability.Level != "r3-always" || status.NATS.MaxPayload != 8<<20 || len(status.Warnings) > 0 {
		t.Errorf("status: %+v", status)
	}

	// Written through one, read in a group through the other.
	const topic, group = "orders", "workers"
	writer := client(t, one.addr)
	var want []string
	for i := range 20 {
		want = append(want, itoa(i))
	}
	produce(t, writer, topic, want...)
	reader := func() *kgo.Client {
		return client(t, two.addr, kgo.ConsumeTopics(topic), kgo.ConsumerGroup(group), kgo.DisableAutoCommit(),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	}
	first := reader()
	if got := consume(t, first, len(want)); !slices.Equal(got, want) {
		t.Fatalf("read %q", got)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := first.CommitUncommittedOffsets(ctx); err != nil {
		t.Fatal(err)
	}
	first.Close()
	if v := log.violations(); len(v) > 0 {
		t.Errorf("not permitted: %q", v)
	}
	checkStream(t, urls[0], "kafka-"+topic+"-0", natsPod.replicas)

	// Gateways reach each other: one of a node id that is taken asks its holder,
	// whose answer refuses it.
	double := two.command
	double.Args = append(slices.Clone(double.Args), fmt.Sprintf("--node-id=%d", status.NodeID), "--bind="+testkit.FreeAddr(t), "--admin-port=0")
	p := testkit.StartProcess(t, double)
	if code := p.ExitCode(t, time.Minute); code == 0 ||
		!strings.Contains(p.Log(), "taken by a running gateway") || strings.Contains(p.Log(), "renews its key") {
		t.Errorf("a second gateway of node %d: exit code %d: %s", status.NodeID, code, p.Log())
	}

	// A gateway is told to go: not ready at once, but still there for clients
	// that were sent to it, until the delay is over.
	stopped := time.Now()
	if err := one.process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	testkit.Poll(t, 5*time.Second, "not ready", func() error {
		if testkit.Get(t.Context(), "http://"+one.web+"/readyz") == nil {
			return fmt.Errorf("ready")
		}
		return nil
	})
	late := client(t, one.addr)
	produce(t, late, topic, "late")
	late.Close()
	delay := duration(t, resolved(t, gatewayPod.start(t, "stream-0"))["shutdown-delay"])
	if code := one.process.ExitCode(t, time.Duration(*gatewayPod.pod.Spec.TerminationGracePeriodSeconds)*time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if took := time.Since(stopped); took < delay {
		t.Errorf("it ended after %v, before shutdown-delay, %v", took, delay)
	}

	// The other goes on, from the committed offset.
	produce(t, client(t, two.addr), topic, "more")
	if got := consume(t, reader(), 2); !slices.Equal(got, []string{"late", "more"}) {
		t.Errorf("read %q after the commit", got)
	}
	if v := log.violations(); len(v) > 0 {
		t.Errorf("not permitted: %q", v)
	}

	checkLogin(t, urls[0])
}

func getJSON(ctx context.Context, url string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	req.Close = true
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", url, res.Status)
	}
	return json.NewDecoder(res.Body).Decode(into)
}

// connect logs in to NATS as the gateways do.
func connect(t *testing.T, url string, failed chan<- error) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(url, nats.UserInfo("stream", password), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		select {
		case failed <- err:
		default:
		}
	}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// checkStream wants a stream with all replicas, current.
func checkStream(t *testing.T, url, name string, replicas int) {
	t.Helper()
	nc := connect(t, url, nil)
	testkit.Poll(t, 20*time.Second, "replicas of "+name, func() error {
		msg, err := nc.Request("$JS.API.STREAM.INFO."+name, nil, 5*time.Second)
		if err != nil {
			return err
		}
		var info server.JSApiStreamInfoResponse
		if err := json.Unmarshal(msg.Data, &info); err != nil {
			return err
		}
		if info.StreamInfo == nil || info.Cluster == nil || info.Config.Replicas != replicas || len(info.Cluster.Replicas) != replicas-1 {
			return fmt.Errorf("%s", msg.Data)
		}
		for _, r := range info.Cluster.Replicas {
			if !r.Current {
				return fmt.Errorf("%s is behind", r.Name)
			}
		}
		return nil
	})
}

// checkLogin: nobody without the password, and with it nothing but what the
// gateways need.
func checkLogin(t *testing.T, url string) {
	t.Helper()
	for _, opts := range [][]nats.Option{nil, {nats.UserInfo("stream", "wrong")}} {
		if nc, err := nats.Connect(url, opts...); err == nil {
			nc.Close()
			t.Error("NATS lets in without the password")
		}
	}
	failed := make(chan error, 1)
	nc := connect(t, url, failed)
	for _, subject := range []string{"orders", "$KV.other.x", "$SYS.REQ.SERVER.PING", "kafka2.x.0"} {
		if err := nc.Publish(subject, nil); err != nil {
			t.Fatal(err)
		}
		refusedIn(t, nc, failed, "publish to "+subject)
	}
	for _, subject := range []string{">", "kafka.>", "$KV.>"} {
		if _, err := nc.Subscribe(subject, func(*nats.Msg) {}); err != nil {
			t.Fatal(err)
		}
		refusedIn(t, nc, failed, "subscribe to "+subject)
	}
}

func refusedIn(t *testing.T, nc *nats.Conn, failed <-chan error, what string) {
	t.Helper()
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-failed:
		if !strings.Contains(strings.ToLower(err.Error()), "permissions violation") {
			t.Errorf("%s: %v", what, err)
		}
	case <-time.After(5 * time.Second):
		t.Errorf("%s: permitted", what)
	}
}
