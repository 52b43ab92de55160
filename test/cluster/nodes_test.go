package cluster

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/hanzoai/stream/test/testkit"
)

const terminate = syscall.SIGTERM

// seed is a client that knows one gateway.
func seed(t *testing.T, addr string) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.DialTimeout(2*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	return cl
}

// TestC38NodeIDIsTaken: the second gateway under a taken id does not serve, and
// leaves the first alone; of a killed one the id is free at once, as is that of a
// pod whose name ends in the ordinal. A gateway of the other address mode does not
// start either.
func TestC38NodeIDIsTaken(t *testing.T) {
	t.Parallel()
	nats := testkit.StartNATS(t, testkit.NATSOptions{})
	args := []string{"--address-mode", "per-gateway", "--node-id"}
	options := func(id string) testkit.Options {
		return testkit.Options{PubsubURL: nats.URL, Args: append(args[:len(args):len(args)], id)}
	}
	first := testkit.Start(t, options("stream-6")) // node 7
	cl := seed(t, first.Addr)
	defer cl.Close()
	produce := func(value string) {
		t.Helper()
		if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: "t", Value: []byte(value)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	if r, err := kadm.NewClient(cl).CreateTopic(t.Context(), 1, -1, nil, "t"); cmpErr(err, r.Err) != nil {
		t.Fatal(cmpErr(err, r.Err))
	}
	produce("a")

	second := testkit.Prepare(t, options("7"))
	second.Launch(t)
	if code := second.Process().ExitCode(t, 30*time.Second); code != 1 || !strings.Contains(second.Log(), "node id is taken by a running gateway: node 7 at 127.0.0.1:") || !strings.Contains(second.Log(), "hint: give each gateway a --node-id of its own") {
		t.Errorf("exit code %d:\n%s", code, second.Log())
	}
	other := testkit.Prepare(t, testkit.Options{PubsubURL: nats.URL, Args: []string{"--address-mode", "shared"}})
	other.Launch(t)
	if code := other.Process().ExitCode(t, 30*time.Second); code != 3 || !strings.Contains(other.Log(), "node 7 at "+first.Addr+" runs in per-gateway") || !strings.Contains(other.Log(), "hint: start it with --address-mode per-gateway") {
		t.Errorf("another address mode: exit code %d:\n%s", code, other.Log())
	}
	produce("b")
	if err := testkit.Get(t.Context(), first.Admin+"/readyz"); err != nil {
		t.Errorf("the first: %v", err)
	}
	if strings.Contains(first.Log(), "beginning a new life") {
		t.Error("the first was disturbed")
	}

	first.Kill(t)
	began := time.Now()
	second.Restart(t)
	t.Logf("ready under the id of a killed gateway after %v", time.Since(began).Round(time.Millisecond))
	again := seed(t, second.Addr)
	defer again.Close()
	if err := again.ProduceSync(t.Context(), &kgo.Record{Topic: "t", Value: []byte("c")}).FirstErr(); err != nil {
		t.Error(err)
	}
	// A frozen one cannot answer: it is waited for, and gone when it wakes up.
	if err := second.Process().Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	third := testkit.Start(t, options("7"))
	if err := second.Process().Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if code := second.Process().ExitCode(t, 30*time.Second); code != 1 || !strings.Contains(second.Log(), "node id is taken by a running gateway") {
		t.Errorf("it woke up beside its successor and ended with exit code %d:\n%s", code, second.Log())
	}
	if err := testkit.Get(t.Context(), third.Admin+"/readyz"); err != nil || strings.Contains(third.Log(), "beginning a new life") {
		t.Errorf("its successor: %v", err)
	}
}
