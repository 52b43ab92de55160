package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// runLimit bounds one client.
const runLimit = 2 * time.Minute

// client is one run of a load program.
type client struct {
	cmd    *exec.Cmd
	out    bytes.Buffer
	cancel context.CancelFunc
}

// client starts a load program on the clients' core.
func (b *bench) client(v view, path string, args ...string) *client {
	ctx, cancel := context.WithTimeout(b.t.Context(), runLimit)
	if v.pinned {
		path, args = "taskset", append([]string{"-c", clientCore, path}, args...)
	}
	c := &client{cmd: exec.CommandContext(ctx, path, args...), cancel: cancel}
	c.cmd.Stdout, c.cmd.Stderr = &c.out, &c.out
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := c.cmd.Start(); err != nil {
		cancel()
		b.t.Fatalf("start %s: %v", path, err)
	}
	return c
}

// wait returns the output and the CPU time used.
func (c *client) wait() (string, time.Duration, error) {
	defer c.cancel()
	err := c.cmd.Wait()
	out := c.out.String()
	if err != nil {
		if len(out) > 1<<10 {
			out = out[len(out)-1<<10:]
		}
		return "", 0, fmt.Errorf("%s: %w: %s", strings.Join(c.cmd.Args, " "), err, out)
	}
	st := c.cmd.ProcessState
	return out, st.UserTime() + st.SystemTime(), nil
}

// producer runs rdkafka_performance; linger and batch size are librdkafka's own
// defaults unless args say otherwise (the program's are one second and small).
func (b *bench) producer(v view, addr, topic string, size, count int, args ...string) *client {
	return b.client(v, b.tools.rdkafka, append([]string{
		"-P", "-b", addr, "-t", topic, "-p", "0", "-s", strconv.Itoa(size), "-c", strconv.Itoa(count), "-a", "-1",
		"-X", "linger.ms=5",
	}, args...)...)
}

func (b *bench) consumer(v view, addr, topic string, count int, args ...string) *client {
	return b.client(v, b.tools.rdkafka, append([]string{
		"-C", "-b", addr, "-t", topic, "-p", "0", "-o", "beginning", "-c", strconv.Itoa(count),
	}, args...)...)
}

var (
	producedLine = regexp.MustCompile(`(?m)^% \d+ messages produced \(\d+ bytes\), (\d+) delivered \(offset \d+, (\d+) failed\) in (\d+)ms`)
	consumedLine = regexp.MustCompile(`(?m)^% (\d+) messages \(\d+ bytes\) consumed in (\d+)ms`)
	natsLine     = regexp.MustCompile(`(?m)stats: ([\d,]+) msgs/sec`)
)

// produced reads the last line of a producer: records delivered and the time.
func produced(out string) (int, time.Duration, error) {
	all := producedLine.FindAllStringSubmatch(out, -1)
	if len(all) == 0 {
		return 0, 0, fmt.Errorf("no result of a producer in %q", out)
	}
	m := all[len(all)-1]
	if m[2] != "0" {
		return 0, 0, fmt.Errorf("%s records failed: %q", m[2], out)
	}
	return atoi(m[1]), time.Duration(atoi(m[3])) * time.Millisecond, nil
}

// consumed reads the last line of a consumer, whose time runs from its first
// record.
func consumed(out string) (int, time.Duration, error) {
	all := consumedLine.FindAllStringSubmatch(out, -1)
	if len(all) == 0 {
		return 0, 0, fmt.Errorf("no result of a consumer in %q", out)
	}
	m := all[len(all)-1]
	return atoi(m[1]), time.Duration(atoi(m[2])) * time.Millisecond, nil
}

// natsRate reads messages a second out of what nats bench prints.
func natsRate(out string) (float64, error) {
	m := natsLine.FindStringSubmatch(out)
	if m == nil {
		return 0, errors.New("no result of nats bench in " + strconv.Quote(out))
	}
	return strconv.ParseFloat(strings.ReplaceAll(m[1], ",", ""), 64)
}

// atoi is for digits that a pattern has matched.
func atoi(s string) int {
	n, _ := strconv.Atoi(s)
	return n
}
