package main

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestParseClients(t *testing.T) {
	out := `% Sending 1000000 messages of size 100 bytes
% 862666 messages produced (86266600 bytes), 762666 delivered (offset 1762665, 0 failed) in 1000ms: 762369 msgs/s and 76.24 MB/s, 23 produce failures, 100000 in queue, no compression
% 1000000 messages produced (100000000 bytes), 1000000 delivered (offset 1999999, 0 failed) in 2473ms: 404247 msgs/s and 40.42 MB/s, 44 produce failures, 0 in queue, no compression
`
	if n, took, err := produced(out); n != 1000000 || took != 2473*time.Millisecond || err != nil {
		t.Errorf("produced: %d, %v, %v", n, took, err)
	}
	if _, _, err := produced(strings.ReplaceAll(out, ", 0 failed", ", 7 failed")); err == nil {
		t.Error("failed records are no error")
	}
	if _, _, err := produced("% ERROR CALLBACK: all brokers down\n"); err == nil {
		t.Error("no result is no error")
	}
	out = `% 672011 messages (67201100 bytes) consumed in 1018ms: 659789 msgs/s (65.98 MB/s)
% 2000000 messages (200000000 bytes) consumed in 2585ms: 773436 msgs/s (77.34 MB/s)
% Average application fetch latency: 1us
`
	if n, took, err := consumed(out); n != 2000000 || took != 2585*time.Millisecond || err != nil {
		t.Errorf("consumed: %d, %v, %v", n, took, err)
	}
	if r, err := natsRate("NATS JetStream ordered ephemeral consumer stats: 308,315 msgs/sec ~ 29 MiB/sec\n"); r != 308315 || err != nil {
		t.Errorf("nats: %v, %v", r, err)
	}
}

func TestParseProc(t *testing.T) {
	stat := "7 (a ) b) S 1 7 7 0 -1 4194304 100 0 0 0 150 50 0 0 20 0 8 0 100 0 0"
	if d, err := parseStat(stat); d != 2*time.Second || err != nil {
		t.Errorf("stat: %v, %v", d, err)
	}
	if d, err := parseBusy("cpu  100 10 40 9000 500 20 30 7 0 0\ncpu0 1 2\n"); d != 2*time.Second || err != nil {
		t.Errorf("busy: %v, %v", d, err)
	}
}

func TestNumbers(t *testing.T) {
	us := []sample{{rate: 2}, {rate: 30}, {rate: 8}}
	them := []sample{{rate: 1}, {rate: 10}, {rate: 8}}
	if mid, low, high := ratios(us, them, rate); mid != 2 || low != 1 || high != 3 {
		t.Errorf("ratios: %v (%v to %v)", mid, low, high)
	}
	// 110 lines: the first 11 do not count, the rest is 1 to 99 ms.
	var b strings.Builder
	b.WriteString(strings.Repeat("900000\n", 11))
	for i := 1; i <= 99; i++ {
		fmt.Fprintf(&b, "%d000\n", i)
	}
	got, err := latencies(b.String())
	if got != (times{mean: 50, p50: 50, p99: 99}) || err != nil {
		t.Errorf("latencies: %+v, %v", got, err)
	}
	if _, err := latencies("1\n2\n"); err == nil {
		t.Error("two latencies are enough")
	}
}
