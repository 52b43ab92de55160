package kgo

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hanzoai/stream/test/e2e/broker"
	"github.com/hanzoai/stream/test/testkit"
)

// skipsItself are the tests that the suite skips with the settings used here,
// whatever the broker.
var skipsItself = map[string]string{
	"TestIssueProduceBrokerTooOldFailsRecords": "needs a broker without Produce v2; Apache Kafka 4.3 has it too",
	"TestOAuthAuth":               "no SASL listener",
	"TestSCRAMAuth":               "no SASL listener",
	"TestSCRAMAuthBadCredentials": "no SASL listener",
}

// notServed are the tests that need what stream does not serve yet: they skip
// themselves or fail. Every other test must pass.
var notServed = map[string]string{
	"Test848RegexBrokerResolves":         "KIP-848 groups (ConsumerGroupHeartbeat)",
	"TestConsumeRegexShareSkipsInternal": "share groups",
	"TestShareGroup":                     "share groups",
	"TestShareGroupAckOnClose":           "share groups",
	"TestShareGroupETL":                  "share groups",
	"TestShareGroupOffsetsAdmin":         "share groups",
}

// limit bounds the suite: 90 s on an idle machine.
const limit = 8 * time.Minute

func TestSuite(t *testing.T) {
	broker.Each(t, []string{broker.NATS}, func(t *testing.T, b *broker.Broker) {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		cmd := exec.CommandContext(ctx, "go", "test", "-json", "-count=1", "-timeout", limit.String(), "github.com/twmb/franz-go/pkg/kgo")
		cmd.Dir = filepath.Join(testkit.Root(), "test/e2e") // the version is this module's
		cmd.Env = append(os.Environ(), "KGO_SEEDS="+b.Addr, "KGO_TEST_RF=1", "KGO_TEST_RECORDS=10000")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
		cmd.WaitDelay = 5 * time.Second
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		runErr := cmd.Run() // not nil if any test failed: judged by name below
		results, output := parse(t, &stdout)
		if len(results) == 0 {
			t.Fatalf("no test ran: %v\n%s\n%s", runErr, stderr.String(), output[""])
		}

		expected := maps.Clone(skipsItself)
		if b.Kind != broker.Kafka {
			maps.Copy(expected, notServed)
		}
		count := map[string]int{}
		for _, name := range slices.Sorted(maps.Keys(results)) {
			action := results[name]
			count[action]++
			why, known := expected[name]
			switch {
			case action == "pass" && known:
				t.Logf("%s passes, though %q: take it off the list", name, why)
			case action != "pass" && !known:
				t.Errorf("%s: %s\n%s", name, action, strings.Join(output[name], ""))
			}
		}
		for name := range expected {
			if _, ran := results[name]; !ran {
				t.Errorf("%s is listed, but there is no such test", name)
			}
		}
		if p := output[""]; count["pass"] == 0 || slices.ContainsFunc(p, func(l string) bool { return strings.HasPrefix(l, "panic:") }) {
			t.Errorf("the suite did not end by itself: %v\n%s", runErr, strings.Join(p, ""))
		}
		t.Logf("franz-go's suite: %d passed, %d failed, %d skipped", count["pass"], count["fail"], count["skip"])
	})
}

// parse returns the last action (pass, fail, skip, or run if it never ended) of
// every top-level test, and the output by top-level test; "" is the package's.
func parse(t *testing.T, r *bytes.Buffer) (results map[string]string, output map[string][]string) {
	t.Helper()
	results, output = map[string]string{}, map[string][]string{}
	for sc := bufio.NewScanner(r); sc.Scan(); {
		var e struct{ Action, Test, Output string }
		if err := json.Unmarshal(sc.Bytes(), &e); err != nil {
			output[""] = append(output[""], sc.Text()+"\n")
			continue
		}
		top, _, sub := strings.Cut(e.Test, "/")
		switch {
		case e.Action == "output":
			output[top] = append(output[top], e.Output)
		case top == "" || sub:
		case e.Action == "run" || e.Action == "pass" || e.Action == "fail" || e.Action == "skip":
			results[top] = e.Action
		}
	}
	return results, output
}
