package tools

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hanzoai/stream/test/testkit"
)

// KafkaTools runs Kafka's tools one after another in one Java process
// (test/e2e/java/Tools.java), which takes milliseconds for each where a process
// takes seconds.
type KafkaTools struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	out   *bufio.Reader
	log   strings.Builder // what the process wrote outside of tools
}

// StartKafkaTools starts the process, which ends with the test.
func StartKafkaTools(t testing.TB) *KafkaTools {
	t.Helper()
	java, err := exec.LookPath("java")
	if err != nil {
		Missing(t, "%v", err)
	}
	var jars string
	if dir := os.Getenv("KAFKA_BIN_DIR"); dir != "" {
		jars = filepath.Join(dir, "../libs/*")
	} else {
		jars = installed(t, "kafka/libs") + "/*"
	}
	k := &KafkaTools{cmd: exec.Command(java, slices.Concat([]string{"-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"}, archived(), []string{
		"-Dlog4j2.configurationFile=" + filepath.Join(testkit.Root(), "test/e2e/kafka/log4j2-tools.xml"),
		"-cp", jars, filepath.Join(testkit.Root(), "test/e2e/java/Tools.java"),
	})...)}
	k.cmd.Stderr = &k.log
	if k.stdin, err = k.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := k.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	k.out = bufio.NewReader(out)
	if err := k.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		k.stdin.Close() // it ends by itself then
		kill := time.AfterFunc(10*time.Second, func() { k.cmd.Process.Kill() })
		defer kill.Stop()
		k.cmd.Wait()
	})
	return k
}

// Do runs a tool to its end. The error is about the process and the limit,
// never about the exit code.
func (k *KafkaTools) Do(name string, args []string, stdin string, limit time.Duration) (Result, error) {
	class, ok := classes[name]
	if !ok {
		return Result{}, fmt.Errorf("no class is known for the tool %s", name)
	}
	request, err := json.Marshal(map[string]any{"class": class, "args": args, "stdin": stdin, "limit": limit.Milliseconds()})
	if err != nil {
		return Result{}, err
	}
	if _, err := k.stdin.Write(append(request, '\n')); err != nil {
		return Result{}, fmt.Errorf("the process of the tools is gone: %w\n%s", err, k.log.String())
	}
	// The process keeps the limit; this one is for a process that hangs.
	stop := time.AfterFunc(limit+30*time.Second, func() { k.cmd.Process.Kill() })
	line, err := k.out.ReadBytes('\n')
	stop.Stop()
	if err != nil {
		return Result{}, fmt.Errorf("%s ended the process of the tools (one that calls System.exit, not Kafka's Exit, cannot be run here): %w", name, err)
	}
	var answer struct {
		Stdout, Stderr string
		Code           int
	}
	if err := json.Unmarshal(line, &answer); err != nil {
		return Result{}, err
	}
	res := Result(answer)
	if res.Code == -1 {
		return res, errors.New(res.Stderr)
	}
	return res, nil
}
