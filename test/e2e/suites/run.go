package suites

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/hanzoai/stream/test/e2e/broker"
	"github.com/hanzoai/stream/test/testkit"
)

// outcome is what one run of a suite said. Tests are named with the folder of
// their package in front: "sasl TestSASL/PLAIN", or "TestClient" at the root.
type outcome struct {
	results map[string]string   // pass, fail or skip
	output  map[string][]string // of a test without its subtests; "" is everything else
	seconds map[string]float64
}

// run runs the suite against a broker of its own, without the tests that omit names.
func (s *suite) run(t *testing.T, kind string, omit []string) outcome {
	t.Helper()
	options := s.broker
	var more []string
	if s.setup != nil {
		more = s.setup(t, &options)
	}
	b := broker.StartWith(t, kind, options)
	warm(t, b.Addr)
	sasl := b.SASL
	if sasl == "" {
		sasl = testkit.FreeAddr(t) // nobody listens
	}
	addresses := strings.NewReplacer(append(more, "{addr}", b.Addr, "{port}", port(b.Addr), "{sasl}", sasl, "{saslport}", port(sasl))...)
	env := testkit.Environ()
	for _, v := range s.env {
		env = append(env, addresses.Replace(v))
	}
	if len(s.programs) > 0 {
		return s.runPrograms(t, env, omit)
	}
	return s.runGo(t, env, omit, addresses, strings.NewReplacer(port(b.Addr), "{port}", port(sasl), "{saslport}"))
}

// runGo runs the packages of the suite with go test. Ports are put back in names.
func (s *suite) runGo(t *testing.T, env, omit []string, addresses, ports *strings.Replacer) outcome {
	t.Helper()
	dir := s.prepare(t, addresses)
	// -trimpath: what was built in another folder is used again.
	args := []string{"test", "-json", "-count=1", "-vet=off", "-trimpath", "-p", "1", "-timeout", s.limit.String()}
	if len(omit) > 0 {
		args = append(args, "-skip", skipPattern(omit))
	}
	limit := s.limit + time.Minute // go test itself ends a package after s.limit
	stdout, stderr, err := execute(t, limit*time.Duration(len(s.packages)), dir, append(env, "GOWORK=off", "GOFLAGS=-mod=mod -buildvcs=false"),
		"go", append(append(args, s.flags...), s.packages...)...)
	module, _, _ := strings.Cut(s.module, "@")
	o := parse(t, bytes.NewReader(stdout), module, ports)
	if len(o.results) == 0 {
		t.Fatalf("%s: no test ran: %v\n%s\n%s", s, err, stderr, strings.Join(o.output[""], ""))
	}
	return o
}

// execute runs a program and what it starts, at most for limit. Its error says
// little: programs fail when a test does, which is judged by name later.
func execute(t *testing.T, limit time.Duration, dir string, env []string, path string, args ...string) (stdout, stderr []byte, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Dir, cmd.Env = dir, env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	var out, diagnostics bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &diagnostics
	err = cmd.Run()
	return out.Bytes(), diagnostics.Bytes(), err
}

func port(addr string) string { return addr[strings.LastIndexByte(addr, ':')+1:] }

// warm waits until groups and producer ids are served: a fresh Apache Kafka first
// makes the topics behind them, and these suites were written for one that runs.
func warm(t *testing.T, addr string) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	testkit.Poll(t, time.Minute, "group coordinator and producer id", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, _, idErr := cl.ProducerID(ctx)
		return errors.Join(kadm.NewClient(cl).FindGroupCoordinators(ctx, "warm").Error(), idErr)
	})
}

// skipPattern matches the tests of the given names, whatever their package.
func skipPattern(names []string) string {
	var patterns []string
	for _, n := range names {
		n = regexp.QuoteMeta(n[strings.IndexByte(n, ' ')+1:])
		patterns = append(patterns, "^"+strings.ReplaceAll(n, "/", "$/^")+"$")
	}
	return strings.Join(patterns, "|")
}

// uuid is a name given to the only subtest of a test, another in each run.
var uuid = regexp.MustCompile(`/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

// parse reads the lines of go test -json. A test that never ended has failed. A
// test with subtests counts only if it failed though none of them did. Names lose
// what is another in each run: ports, by the given replacer, and uuids.
func parse(t testing.TB, r io.Reader, module string, ports *strings.Replacer) outcome {
	t.Helper()
	o := outcome{results: map[string]string{}, output: map[string][]string{}, seconds: map[string]float64{}}
	parents, brokenBelow := map[string]bool{}, map[string]bool{}
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, 64<<20)
	for sc.Scan() {
		var e struct {
			Action, Package, Test, Output string
			Elapsed                       float64
		}
		if json.Unmarshal(sc.Bytes(), &e) != nil {
			o.output[""] = append(o.output[""], sc.Text()+"\n")
			continue
		}
		name := ""
		if e.Test != "" {
			folder := strings.TrimPrefix(strings.TrimPrefix(e.Package, module), "/")
			name = strings.TrimPrefix(folder+" "+ports.Replace(uuid.ReplaceAllString(e.Test, "")), " ")
		}
		switch e.Action {
		case "output", "build-output":
			o.output[name] = append(o.output[name], e.Output)
		case "run", "pass", "fail", "skip":
			if name == "" || e.Action == "pass" && o.results[name] == "skip" {
				continue // the parent of a skipped subtest that has no name of its own
			}
			o.results[name], o.seconds[name] = e.Action, e.Elapsed
			if e.Action == "run" {
				o.results[name] = "fail"
			}
			for p := parent(name); p != ""; p = parent(p) {
				parents[p] = true
				brokenBelow[p] = brokenBelow[p] || e.Action == "fail"
			}
		}
	}
	if err := sc.Err(); err != nil {
		t.Fatalf("read the results: %v", err)
	}
	for p := range parents {
		if o.results[p] != "fail" || brokenBelow[p] {
			delete(o.results, p)
		}
	}
	return o
}

// parent is the test that a subtest belongs to, "" for a test of its own.
func parent(name string) string {
	if i := strings.LastIndexByte(name, '/'); i > strings.IndexByte(name, ' ') {
		return name[:i]
	}
	return ""
}
