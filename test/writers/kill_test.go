package writers

import (
	"bufio"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hanzoai/stream/test/testkit"
)

// metric reads one of a gateway's metrics.
func metric(t *testing.T, s *testkit.Stream, name string) float64 {
	t.Helper()
	r, err := http.Get(s.Admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer http.DefaultClient.CloseIdleConnections()
	defer func() { _ = r.Body.Close() }()
	for lines := bufio.NewScanner(r.Body); lines.Scan(); {
		if v, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			n, err := strconv.ParseFloat(v, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

// TestHintedAppenderEnds kills, and with the long loads also freezes, the gateway
// to which two others hand their batches: they go on within two seconds, and
// nothing is lost or stored twice.
func TestHintedAppenderEnds(t *testing.T) {
	f := newFleet(t, 3)
	first := f.gateways[0]
	// A topic whose partition the first gateway is hinted for.
	var topic string
	for n := 0; topic == "" && n < 30; n++ {
		name := fmt.Sprintf("hinted-%d", n)
		f.create(t, name, 1)
		before := metric(t, first, "stream_append_taken_batches_total")
		l := load{topic: name, gateways: f.gateways[1:], partitions: 1, producers: 4, depth: 5, size: 100, length: 300 * time.Millisecond}
		l.run(t, f)
		if metric(t, first, "stream_append_taken_batches_total") > before {
			topic = name
		}
	}
	if topic == "" {
		t.Fatal("nothing is ever handed over")
	}
	for _, x := range []struct {
		how string
		do  func()
	}{
		{"killed", func() { first.Kill(t) }},
		{"frozen", func() { _ = first.Process().Signal(syscall.SIGSTOP) }},
	} {
		if x.how == "frozen" {
			if !full {
				break
			}
			first.Restart(t)
		}
		// The topic has records already: a new one would have another hint.
		begin := end(t, f.gateways[1], topic)
		l := load{topic: topic, gateways: f.gateways[1:], partitions: 1, producers: 4, depth: 5, size: 100, length: 4 * time.Second, begin: begin}
		timer := time.AfterFunc(time.Second, x.do)
		o := l.run(t, f)
		timer.Stop()
		t.Logf("%s: %v", x.how, o)
		limit := 15 * time.Second
		if full {
			limit = 2 * time.Second
			if x.how == "frozen" {
				limit = 3 * time.Second
			}
		}
		if o.wait(1) > limit {
			t.Errorf("%s: a producer waited %v", x.how, o.wait(1))
		}
		l.check(t, o, f.gateways[2])
		if x.how == "frozen" {
			_ = first.Process().Signal(syscall.SIGCONT)
		}
	}
}
