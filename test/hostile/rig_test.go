//go:build hostile

package hostile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/test/testkit"
)

const (
	// growth is how much more memory the process may hold after a case.
	growth = 64 << 20
	// floorP99 is what the good client's p99 may be in any case: below it two
	// busy cores make the difference, not the server.
	floorP99 = 50 * time.Millisecond
	// settle bounds the time until goroutines and memory are back.
	settle = 30 * time.Second
)

// rig is a process under attack and what it was like before.
type rig struct {
	*testkit.Stream
	base       metrics
	goroutines float64
	resident   float64
	p99        time.Duration
}

// metrics are one scrape: series as they are written, with their labels.
type metrics map[string]float64

// start runs a process for one test, with a topic "good" and a measured client.
// The limit on new connections is off unless args set it.
func start(t *testing.T, args ...string) *rig {
	t.Helper()
	return startOn(t, "", args...)
}

// startAside is start with the store in a process of its own: the embedded one
// keeps blocks of 8 MiB of every stream that was touched in the last seconds,
// which would hide what clients cost.
func startAside(t *testing.T, args ...string) *rig {
	t.Helper()
	return startOn(t, testkit.StartNATS(t, testkit.NATSOptions{}).URL, args...)
}

func startOn(t *testing.T, url string, args ...string) *rig {
	t.Helper()
	s := testkit.Start(t, testkit.Options{
		PubsubURL: url,
		Args:      append([]string{"--sync", "1m", "--max-connection-creation-rate", "0", "--group-initial-rebalance-delay-ms", "0", "--fetch-cache-bytes", "4MiB"}, args...),
		// Garbage that piles up under load by plan would hide what clients cost.
		Env: []string{"GOMEMLIMIT=400MiB", "GOGC=50"},
	})
	r := &rig{Stream: s}
	c := r.dial(t)
	c.create(t, "good", 1)
	// Large requests and answers once, so that buffers which are kept for the
	// next ones count as normal.
	c.produced(t, "warm up", 9, []int16{0}, part{"good", 0, one(900 << 10)})
	ask[*kmsg.FetchResponse](t, c, fetch(12, "good", 0, 0, 1<<20, 0))
	r.p99 = max(quantile(r.good(t, 150, nil)), time.Millisecond)
	_ = c.Close()
	testkit.Poll(t, patience, "idle before the test", func() error {
		if n := r.scrape(t)["stream_connections"]; n != 0 {
			return fmt.Errorf("%v connections", n)
		}
		return nil
	})
	r.settleBase(t)
	t.Cleanup(func() { r.after(t) })
	return r
}

// settleBase takes what is there now as the measure for later.
func (r *rig) settleBase(t testing.TB) {
	t.Helper()
	r.base = r.scrape(t)
	r.goroutines, r.resident = r.base["go_goroutines"], r.base["process_resident_memory_bytes"]
}

// scrape reads /metrics.
func (r *rig) scrape(t testing.TB) metrics {
	t.Helper()
	m, err := r.tryScrape()
	if err != nil {
		t.Fatalf("scrape: %v", err)
	}
	return m
}

func (r *rig) tryScrape() (metrics, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.Admin+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	req.Close = true
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(res.Body)
	if err = errors.Join(err, res.Body.Close()); err != nil {
		return nil, err
	}
	m := metrics{}
	for line := range strings.Lines(string(b)) {
		if i := strings.LastIndexByte(line, ' '); i > 0 && line[0] != '#' {
			if v, err := strconv.ParseFloat(strings.TrimSpace(line[i+1:]), 64); err == nil {
				m[line[:i]] = v
			}
		}
	}
	return m, nil
}

// pace is the time between two rounds of the good client.
const pace = 4 * time.Millisecond

// good produces and fetches as a good client does, n times or until stop is
// closed, and returns how long each took.
func (r *rig) good(t testing.TB, n int, stop <-chan struct{}) []time.Duration {
	t.Helper()
	took, err := r.tryGood(n, stop)
	if err != nil {
		t.Errorf("good client: %v", err)
	}
	return took
}

func (r *rig) tryGood(n int, stop <-chan struct{}) (took []time.Duration, err error) {
	c, err := dial(r.Addr)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for len(took) < n {
		select {
		case <-stop:
			return took, nil
		case <-tick.C:
		}
		began := time.Now()
		req := produce(9, -1, part{"good", 0, one(100)})
		if err := c.send(req); err != nil {
			return took, err
		}
		resp, err := c.recv(req)
		if err != nil {
			return took, fmt.Errorf("produce: %w", err)
		}
		p := resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0]
		if p.ErrorCode != 0 {
			return took, fmt.Errorf("produce: error %d", p.ErrorCode)
		}
		read := fetch(12, "good", 0, p.BaseOffset, 1<<20, time.Second)
		if err := c.send(read); err != nil {
			return took, err
		}
		if resp, err = c.recv(read); err != nil {
			return took, fmt.Errorf("fetch: %w", err)
		}
		if f := resp.(*kmsg.FetchResponse).Topics[0].Partitions[0]; f.ErrorCode != 0 || len(f.RecordBatches) == 0 {
			return took, fmt.Errorf("fetch: error %d, %d bytes", f.ErrorCode, len(f.RecordBatches))
		}
		took = append(took, time.Since(began))
	}
	return took, nil
}

// quantile is the p99.
func quantile(took []time.Duration) time.Duration {
	if len(took) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(took))
	return s[(len(s)-1)*99/100]
}

// under runs f while a good client works, and compares its p99.
func (r *rig) under(t testing.TB, f func()) {
	t.Helper()
	stop, done := make(chan struct{}), make(chan struct{})
	var took []time.Duration
	var err error
	go func() {
		defer close(done)
		took, err = r.tryGood(1<<30, stop)
	}()
	var once sync.Once
	end := func() { once.Do(func() { close(stop); <-done }) }
	defer end()
	f()
	end()
	if err != nil {
		t.Errorf("good client: %v", err)
	}
	if len(took) < 100 { // the attack was short: what it left behind counts
		took = append(took, r.good(t, 100-len(took), nil)...)
	}
	got, most := quantile(took), max(2*r.p99, floorP99)
	if got > most {
		// The machine may have become slower meanwhile: what is normal now?
		most = max(most, 2*quantile(r.good(t, 150, nil)))
	}
	t.Logf("good client: p99 %v of %d, %v before", got, len(took), r.p99)
	if got > most {
		t.Errorf("a good client's p99 is %v, it was %v before: more than %v", got, r.p99, most)
	}
}

// after checks the conditions that hold for every case.
func (r *rig) after(t testing.TB) {
	t.Helper()
	select {
	case <-r.Process().Exited():
		t.Errorf("the process has ended")
		return
	default:
	}
	var last metrics
	testkit.Poll(t, settle, "goroutines and memory are back", func() error {
		m, err := r.tryScrape()
		if err != nil {
			return err
		}
		last = m
		if n := m["stream_connections"]; n != 0 {
			return fmt.Errorf("%v connections are open", n)
		}
		for _, pool := range []string{"requests", "answers"} {
			if n := m[`stream_memory_used_bytes{pool="`+pool+`"}`]; n != 0 {
				return fmt.Errorf("%v bytes of %s are held", n, pool)
			}
		}
		// A few come and go by themselves: timers of the store, this scrape.
		if g := m["go_goroutines"]; g > r.goroutines+8 {
			return fmt.Errorf("%v goroutines, %v before", g, r.goroutines)
		}
		if rss := m["process_resident_memory_bytes"]; rss > r.resident+growth {
			return fmt.Errorf("%.0f MiB resident, %.0f before", rss/(1<<20), r.resident/(1<<20))
		}
		return nil
	})
	t.Logf("resident %+.1f MiB, goroutines %+.0f", (last["process_resident_memory_bytes"]-r.resident)/(1<<20), last["go_goroutines"]-r.goroutines)
	if n := last[`stream_panics_total{where="protocol"}`] + last[`stream_panics_total{where="admin"}`]; n != 0 {
		t.Errorf("%v panics", n)
	}
	if strings.Contains(r.Log(), secret) {
		t.Error("what a client sent as content is in the log")
	}
	r.good(t, 5, nil)
}

// line is a log line.
type line struct {
	Level, Msg, Error, Reason string
	ClientID                  string `json:"client_id"`
	raw                       string
}

// lines are the log lines from byte from on that are worth a person's look.
func (r *rig) lines(t testing.TB, from int) []line {
	t.Helper()
	var out []line
	log := r.Log()[from:]
	for raw := range strings.Lines(log) {
		if !strings.HasPrefix(raw, "{") {
			continue // the banner
		}
		var l line
		if err := json.Unmarshal([]byte(raw), &l); err != nil {
			if !strings.HasSuffix(raw, "\n") {
				break // being written
			}
			t.Errorf("a log line that is no JSON: %.200q", raw)
			continue
		}
		l.raw = raw
		if l.Level == "WARN" || l.Level == "ERROR" {
			out = append(out, l)
		}
	}
	return out
}

// bad is a series of stream_bad_requests_total.
func bad(reason string) string { return fmt.Sprintf("stream_bad_requests_total{reason=%q}", reason) }

// closedFor is a series of stream_connections_closed_total.
func closedFor(reason string) string {
	return fmt.Sprintf("stream_connections_closed_total{reason=%q}", reason)
}

// answered is a series of stream_kafka_requests_total.
func answered(api, err string) string {
	return fmt.Sprintf("stream_kafka_requests_total{api=%q,error=%q}", api, err)
}

// limited is a series of stream_limit_hits_total.
func limited(key string) string { return fmt.Sprintf("stream_limit_hits_total{limit=%q}", key) }

// counted runs f and wants the series to grow by n, and this many lines at warn
// or above. It returns the lines.
func (r *rig) counted(t testing.TB, what, series string, n float64, lines int, f func()) []line {
	t.Helper()
	before, from := r.scrape(t)[series], len(r.Log())
	f()
	var got []line
	r.grown(t, what, series, before+n)
	testkit.Poll(t, patience, what+": log lines", func() error {
		if got = r.lines(t, from); len(got) < lines {
			return fmt.Errorf("%d, want %d", len(got), lines)
		}
		return nil
	})
	if len(got) > lines {
		t.Errorf("%s: %d log lines, want %d: %s", what, len(got), lines, got[lines].raw)
	}
	return got
}

// grown waits until a series has a value, and wants no more than that.
func (r *rig) grown(t testing.TB, what, series string, want float64) {
	t.Helper()
	var got float64
	testkit.Poll(t, patience, what+": "+series, func() error {
		m, err := r.tryScrape()
		if err != nil {
			return err
		}
		if got = m[series]; got < want {
			return fmt.Errorf("%v, want %v", got, want)
		}
		return nil
	})
	if got > want {
		t.Errorf("%s: %s is %v, want %v", what, series, got, want)
	}
}

// peak samples the resident memory until the returned func is called, which
// gives the largest, in bytes.
func (r *rig) peak() func() float64 {
	stop, done := make(chan struct{}), make(chan struct{})
	most := 0.0
	statm := fmt.Sprintf("/proc/%d/statm", r.Process().Pid())
	go func() {
		defer close(done)
		tick := time.NewTicker(25 * time.Millisecond)
		defer tick.Stop()
		for {
			if b, err := os.ReadFile(statm); err == nil {
				if f := strings.Fields(string(b)); len(f) > 1 {
					n, _ := strconv.ParseFloat(f[1], 64)
					most = max(most, n*float64(os.Getpagesize()))
				}
			}
			select {
			case <-stop:
				return
			case <-tick.C:
			}
		}
	}()
	return func() float64 { close(stop); <-done; return most }
}
