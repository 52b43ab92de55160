package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/hanzoai/stream/pubsub/embedded"
)

// binary is the built program, for tests of what only a process has.
var binary string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "stream-test-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer func() { _ = os.RemoveAll(dir) }()
		binary = filepath.Join(dir, "stream")
		if runtime.GOOS == "windows" {
			binary += ".exe"
		}
		if out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
			return 1
		}
		code := m.Run()
		if code == 0 {
			if err := goleak.Find(); err != nil {
				fmt.Fprintln(os.Stderr, err)
				code = 1
			}
		}
		return code
	}())
}

// stream runs the program to its end in an environment of its own.
func stream(t *testing.T, environ []string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Env = append([]string{"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH")}, environ...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	exit := (*exec.ExitError)(nil)
	if err != nil && !errors.As(err, &exit) || ctx.Err() != nil {
		t.Fatalf("stream %q: %v %v\n%s", args, err, ctx.Err(), errs.String())
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// messages are the lines of stderr that are for a person: no log lines.
func messages(stderr string) string {
	var b strings.Builder
	for l := range strings.Lines(stderr) {
		if !strings.HasPrefix(l, "{") {
			b.WriteString(l)
		}
	}
	return b.String()
}

func TestExitCodes(t *testing.T) {
	t.Parallel()
	file := writeFile(t, "c.yaml", "prot: 1\nstorage: tape\n")
	notDir := writeFile(t, "plain", "")
	for _, c := range []struct {
		name   string
		env    []string
		args   []string
		code   int
		stdout string
		stderr string // exact if it ends in a line end, else a part
	}{
		{"version", nil, []string{"version"}, 0, "stream ", ""},
		{"help", nil, []string{"--help"}, 0, "--pubsub-url", ""},
		{"help of serve", nil, []string{"help", "serve"}, 0, "--kafka-property", ""},
		{"completion", nil, []string{"completion", "bash"}, 0, "bash", ""},
		{"config", nil, []string{"config"}, 0, "print", ""},
		{"unknown flag", nil, []string{"--prot", "1"}, 2, "", "stream: unknown flag --prot\nhint: did you mean --port? see stream --help\n"},
		{"unknown flag of serve", nil, []string{"serve", "--data-dri=x"}, 2, "", "stream: unknown flag --data-dri\nhint: did you mean --data-dir? see stream serve --help\n"},
		{"unknown short flag", nil, []string{"-q"}, 2, "", "see stream --help\n"},
		{"flag without value", nil, []string{"--port"}, 2, "", "stream: flag needs an argument: --port\nhint: see stream --help\n"},
		{"secret as flag", nil, []string{"--nats-password=planted"}, 2, "", "hint: set the variable STREAM_NATS_PASSWORD or use --nats-password-file\n"},
		{"unknown command", nil, []string{"sevre"}, 2, "", "stream: unknown command \"sevre\" for stream\nhint: did you mean \"serve\"? see stream --help\n"},
		{"unknown subcommand", nil, []string{"config", "prnt"}, 2, "", "did you mean \"print\"?"},
		{"argument", nil, []string{"serve", "now"}, 2, "", "stream: unexpected argument \"now\"\nhint: see stream serve --help\n"},
		{"every problem", nil, []string{"--config", file, "--port", "x"}, 2, "",
			"stream: config file " + file + ": unknown key \"prot\": did you mean \"port\"?\n" +
				"stream: storage: \"tape\" is not one of file, memory: did you mean file? (from file " + file + ")\n" +
				"stream: port: \"x\" is not a whole number (from flag --port)\n" +
				"stream: configuration: 3 problems\nhint: every key is explained in docs/config.md and by stream serve --help\n"},
		{"check-config ok", nil, []string{"--check-config"}, 0, "configuration ok\n", ""},
		{"check-config warning", []string{"STREAM_PROT=1"}, []string{"serve", "--check-config"}, 0, "configuration ok\n", "warning: unknown variable STREAM_PROT is ignored: did you mean STREAM_PORT?\n"},
		{"check-config bad", nil, []string{"--check-config", "--prefix", "a.b"}, 2, "", "stream: configuration: 1 problem\n"},
		{"data folder", nil, []string{"--port", "0", "--admin-port", "0", "--data-dir", filepath.Join(notDir, "x")}, 1, "", "hint: make the folder writable for this user"},
		{"bind elsewhere", nil, []string{"--bind", "192.0.2.1:0"}, 2, "", "hint: bind must name an address of this machine\n"},
		{"nats unreachable", nil, []string{"--port", "0", "--admin-port", "0", "--pubsub-url", "nats://127.0.0.1:1"}, 3, "", "stream: nats is unreachable at nats://127.0.0.1:1"},
		{"client variable", []string{"STREAM_BOOTSTRAP_SERVERS=h:1"}, []string{"--check-config"}, 0, "configuration ok\n", ""},
		{"client command alone", nil, []string{"topic"}, 0, "truncate", ""},
		{"client subcommand", nil, []string{"topic", "lst"}, 2, "", "stream: unknown command \"lst\" for stream topic\nhint: did you mean \"list\"? see stream topic --help\n"},
		{"client flag", nil, []string{"topic", "create", "t", "--partition", "3"}, 2, "", "stream: unknown flag --partition\nhint: did you mean --partitions? see stream topic create --help\n"},
		{"client without name", nil, []string{"group", "describe"}, 2, "", "stream: the name of a group is missing\nhint: see stream group describe --help\n"},
		{"client argument", nil, []string{"topic", "offsets", "a", "b"}, 2, "", "stream: unexpected argument \"b\"\nhint: see stream topic offsets --help\n"},
		{"client output", nil, []string{"status", "-o", "xml"}, 2, "", "stream: -o \"xml\": table, json or yaml is wanted\nhint: see stream status --help\n"},
		{"client position", nil, []string{"consume", "t", "--from", "soon"}, 2, "", "stream: --from: \"soon\" is no position: "},
		{"client template", nil, []string{"consume", "t", "-f", "%q"}, 2, "", "stream: --format: unknown \"%q\"\nhint: see stream consume --help\n"},
		{"client flags at odds", nil, []string{"produce", "t", "--json", "-k", "x"}, 2, "", "stream: --json says keys, headers and nulls itself\nhint: see stream produce --help\n"},
		{"client config", nil, []string{"topic", "create", "t", "-c", "retention.ms"}, 2, "", "stream: --config \"retention.ms\": name=value is wanted\nhint: see stream topic create --help\n"},
		{"client nothing to do", nil, []string{"topic", "alter", "t"}, 2, "", "stream: nothing to change: --set, --unset or --partitions is wanted\nhint: see stream topic alter --help\n"},
		{"client reset", nil, []string{"group", "reset", "g", "-t", "t"}, 2, "", "stream: either --to or --shift is wanted\nhint: see stream group reset --help\n"},
		{"client address", nil, []string{"topic", "list", "-b", "localhost:kafka"}, 2, "", "stream: \"localhost:kafka\" is no host:port\nhint: see stream topic list --help\n"},
		{"client unreachable", []string{"STREAM_BOOTSTRAP_SERVERS=127.0.0.1:1"}, []string{"topic", "list"}, 3, "", "stream: no answer from 127.0.0.1:1: "},
		{"client named server", []string{"STREAM_BOOTSTRAP_SERVERS=h:1"}, []string{"topic", "list", "-b", "127.0.0.1:1"}, 3, "", "hint: is the server running there? "},
		{"context missing", nil, []string{"--port", "0", "--admin-port", "0", "--nats-context", "nowhere"}, 2, "", "stream: nats context nowhere"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			code, stdout, stderr := stream(t, c.env, c.args...)
			stderr = messages(stderr)
			if code != c.code || !strings.Contains(stdout, c.stdout) || !strings.Contains(stderr, c.stderr) || c.stderr == "" && stderr != "" {
				t.Errorf("exit code %d, want %d\n%s%s", code, c.code, stdout, stderr)
			}
			if strings.HasPrefix(c.stderr, "stream: ") && strings.HasSuffix(c.stderr, "\n") && stderr != c.stderr {
				if c.name != "check-config bad" {
					t.Errorf("stderr\n%swant\n%s", stderr, c.stderr)
				}
			}
			if code == 2 && stdout != "" {
				t.Errorf("stdout of a refusal: %s", stdout)
			}
			if strings.Contains(stdout+stderr, "planted") {
				t.Errorf("secret shown: %s%s", stdout, stderr)
			}
		})
	}
}

func TestPortTaken(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := fmt.Sprint(portOf(l))
	for _, c := range []struct {
		args []string
		hint string
	}{
		{[]string{"--bind", "127.0.0.1", "--port", port, "--admin-port", "0"}, "--port"},
		{[]string{"--bind", "127.0.0.1", "--port", "0", "--admin-port", port}, "--admin-port"},
	} {
		dir := filepath.Join(t.TempDir(), "data")
		code, stdout, stderr := stream(t, nil, append(c.args, "--data-dir", dir)...)
		want := "stream: port " + port + " is taken: listen on 127.0.0.1:" + port + ": address already in use\n" +
			"hint: stop the process that has it, or choose another with " + c.hint + "\n"
		if code != 1 || stdout != "" || messages(stderr) != want {
			t.Errorf("exit code %d, stderr\n%swant\n%s", code, stderr, want)
		}
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("something was done before: %v", err)
		}
	}
}

func TestDataFolderLocked(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	srv, err := embedded.Start(t.Context(), embedded.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Stop()
	code, _, stderr := stream(t, nil, "--port", "0", "--admin-port", "0", "--data-dir", dir)
	if m := messages(stderr); code != 1 || !strings.Contains(m, "in use by another process") || !strings.Contains(m, "hint: stop that process") || strings.Count(m, "\n") != 2 {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

func TestNATSWithoutJetStream(t *testing.T) {
	t.Parallel()
	srv, err := natsserver.NewServer(&natsserver.Options{Host: "127.0.0.1", Port: natsserver.RANDOM_PORT, NoLog: true, NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	defer func() { srv.Shutdown(); srv.WaitForShutdown() }()
	if !srv.ReadyForConnections(10 * time.Second) {
		t.Fatal("the NATS server did not start")
	}
	code, _, stderr := stream(t, nil, "--port", "0", "--admin-port", "0", "--pubsub-url", srv.ClientURL())
	if m := messages(stderr); code != 3 || !strings.Contains(m, "jetstream is not enabled") || !strings.Contains(m, "hint: start the NATS server with JetStream") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

// Streams without the cluster's identity are somebody's data.
func TestNATSWithForeignStreams(t *testing.T) {
	t.Parallel()
	srv, err := embedded.Start(t.Context(), embedded.Config{Dir: t.TempDir(), Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Stop()
	nc, err := nats.Connect(srv.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := nc.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.AddStream(&nats.StreamConfig{Name: "kafka-orders-0", Subjects: []string{"kafka.orders.0"}}); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := stream(t, nil, "--port", "0", "--admin-port", "0", "--pubsub-url", srv.ClientURL())
	if m := messages(stderr); code != 3 || stdout != "" || !strings.Contains(m, "hint: ") || strings.Count(m, "\n") != 2 {
		t.Errorf("exit code %d: %s%s", code, stdout, stderr)
	}
}

func TestNATSTooOld(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { // says what an old server says, as far as clients listen
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, `INFO {"server_id":"X","version":"2.10.22","proto":1,"headers":true,"max_payload":1048576,"jetstream":true}`+"\r\n")
			br := bufio.NewReader(c)
			for {
				line, err := br.ReadString('\n')
				if err != nil {
					break
				}
				if strings.HasPrefix(line, "PING") {
					_, _ = io.WriteString(c, "PONG\r\n")
				}
			}
			_ = c.Close()
		}
	}()
	defer func() { _ = l.Close(); <-done }()
	code, _, stderr := stream(t, nil, "--port", "0", "--admin-port", "0", "--pubsub-url", "nats://u:planted@"+l.Addr().String())
	if m := messages(stderr); code != 3 || !strings.Contains(m, "version 2.10.22") || !strings.Contains(m, "hint: upgrade the NATS server to 2.10.23") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	if strings.Contains(stderr, "planted") {
		t.Errorf("secret shown: %s", stderr)
	}
}

func TestSecretsAreNeverPrinted(t *testing.T) {
	t.Parallel()
	const planted = "pl4nted"
	file := writeFile(t, "c.yaml", "nats-password: "+planted+"\n")
	for _, env := range [][]string{
		{"STREAM_NATS_PASSWORD=" + planted, "STREAM_NATS_USER=u", "STREAM_PUBSUB_URL=nats://127.0.0.1:1"},
		{"STREAM_PUBSUB_URL=nats://u:" + planted + "@127.0.0.1:1,nats://" + planted + "@127.0.0.1:1"},
		{"NATS_URL=nats://u:" + planted + "@127.0.0.1:1"},
		{"STREAM_NATS_USER=u", "STREAM_CONFIG=" + file, "STREAM_PUBSUB_URL=nats://127.0.0.1:1"},
		{"STREAM_PUBSUB_URL=nats://u:" + planted + "/x@127.0.0.1:1"}, // not a URL
		{"STREAM_NATS_PASSWORD=" + planted},                          // refused
	} {
		for _, args := range [][]string{{"config", "print"}, {"config", "print", "--resolved"}, {"--check-config"},
			{"--port", "0", "--admin-port", "0", "--log-level", "debug", "--log-format", "text"}, {"-X", "nats-password=" + planted}} {
			_, stdout, stderr := stream(t, env, args...)
			if strings.Contains(stdout+stderr, planted) {
				t.Errorf("%q %q:\n%s%s", env, args, stdout, stderr)
			}
		}
	}
}
