//go:build hostile

package hostile

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/test/testkit"
)

// crowd opens n connections.
func (r *rig) crowd(t *testing.T, n int) []*client {
	t.Helper()
	cs := make([]*client, n)
	for i := range cs {
		cs[i] = r.dial(t)
	}
	return cs
}

// ended wants the end of all of them, and closes them.
func ended(t *testing.T, what string, cs []*client, limit time.Duration) {
	t.Helper()
	deadline := time.Now().Add(limit)
	failed := 0
	for _, c := range cs {
		if err := c.end(max(time.Until(deadline), time.Millisecond)); err != nil {
			failed++
		}
		_ = c.Close()
	}
	if failed > 0 {
		t.Errorf("%s: %d of %d were not closed within %v", what, failed, len(cs), limit)
	}
}

// flat wants the memory to be flat after a flood that was measured by peak.
func (r *rig) flat(t *testing.T, what string, most float64) {
	t.Helper()
	t.Logf("%s: resident %.0f MiB at most, %.0f before", what, most/(1<<20), r.resident/(1<<20))
	if most > r.resident+growth {
		t.Errorf("%s: resident %.0f MiB at most, %.0f before: not flat", what, most/(1<<20), r.resident/(1<<20))
	}
}

// Row 3, and the 2,000 connections with a valid frame that comes a byte
// at a time, and 1,000 that say nothing.
func TestRow03SlowAndSilent(t *testing.T) {
	const slow, silent = 2000, 2000
	r := start(t, "--frame-timeout", "4s", "--connections-max-idle-ms", "4s")
	from := len(r.Log())
	r.under(t, func() {
		stop := r.peak()
		quiet := r.crowd(t, silent)
		slowly := r.crowd(t, slow)
		b := framed(encode(at(9, kmsg.NewPtrMetadataRequest()), 1, strings.Repeat("x", 1000)))
		done, end := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			tick := time.NewTicker(time.Second)
			defer tick.Stop()
			for i := range b {
				for _, c := range slowly {
					_, _ = c.Write(b[i : i+1])
				}
				select {
				case <-tick.C:
				case <-end:
					return
				}
			}
		}()
		r.unharmed(t, "4,000 connections are slow or silent")
		ended(t, "1 byte a second", slowly, 12*time.Second)
		close(end)
		<-done
		ended(t, "silent", quiet, 12*time.Second)
		r.flat(t, "4,000 connections", stop())
	})
	r.grown(t, "slow", closedFor("frame.timeout"), slow)
	r.grown(t, "silent", closedFor("connections.max.idle.ms"), silent)
	if n := len(r.lines(t, from)); n == 0 || n > 10 {
		t.Errorf("%d log lines for 2,000 connections", n)
	}
}

// Row 7 and the 100 clients that never read: 10,000 requests in a row,
// small and large answers.
func TestRow07ClientsThatNeverRead(t *testing.T) {
	r := startAside(t, "--write-timeout", "10s", "--fetch-held-bytes", "16MiB", "--queued-max-request-bytes", "32MiB")
	c := r.dial(t)
	c.create(t, "big", 1)
	c.create(t, "other", 1)
	for range 50 {
		c.produced(t, "fill", 9, []int16{0}, part{"big", 0, one(900 << 10)})
	}
	for i := range 40 {
		c.create(t, fmt.Sprintf("topic-%d", i), 1)
	}
	// What a good client does with these topics is normal.
	ask[*kmsg.FetchResponse](t, c, fetch(12, "big", 0, 0, 50<<20, 0))
	_ = c.Close()
	testkit.Poll(t, patience, "idle", func() error {
		if n := r.scrape(t)["stream_connections"]; n != 0 {
			return fmt.Errorf("%v connections", n)
		}
		return nil
	})
	r.settleBase(t)

	configs := at(4, kmsg.NewPtrDescribeConfigsRequest())
	configs.IncludeSynonyms, configs.IncludeDocumentation = true, true
	for i := range 40 {
		res := kmsg.NewDescribeConfigsRequestResource()
		res.ResourceType, res.ResourceName = kmsg.ConfigResourceTypeTopic, fmt.Sprintf("topic-%d", i)
		configs.Resources = append(configs.Resources, res)
	}
	api := at(3, kmsg.NewPtrApiVersionsRequest())
	api.ClientSoftwareName, api.ClientSoftwareVersion = "hostile", "1"
	all := at(12, kmsg.NewPtrMetadataRequest())
	all.Topics = nil
	questions := []kmsg.Request{
		api, all, configs, at(4, kmsg.NewPtrListGroupsRequest()),
		fetch(12, "big", 0, 0, 50<<20, 0), fetch(4, "big", 0, 0, 50<<20, 0), produce(9, -1, part{"other", 0, one(10)}),
	}
	r.under(t, func() {
		stop := r.peak()
		cs := r.crowd(t, 100)
		var wg sync.WaitGroup
		for i, c := range cs {
			req := questions[i%len(questions)]
			one := framed(encode(req, 1, "never reads"))
			wg.Go(func() {
				_ = c.SetWriteDeadline(time.Now().Add(4 * patience))
				// 10,000 requests; it is cut before all were taken, or it is
				// small and the sockets hold its answers.
				_, _ = io.Copy(c, io.LimitReader(repeat(one), int64(len(one))*10_000))
			})
		}
		r.quiet(t)
		testkit.Poll(t, patience, "those with large answers are closed", func() error {
			m, err := r.tryScrape()
			if err != nil {
				return err
			}
			if n := m[closedFor("write.timeout")] + m[closedFor("fetch.held.bytes")]; n < 20 { // the others wait for their turn to be answered at all
				return fmt.Errorf("%v", n)
			}
			return nil
		})
		for _, c := range cs {
			_ = c.Close()
		}
		wg.Wait()
		most, allowed := stop(), r.resident+growth+16<<20+32<<20 // what the limits above allow
		t.Logf("100 clients that never read: resident %.0f MiB at most, %.0f before", most/(1<<20), r.resident/(1<<20))
		if most > allowed {
			t.Errorf("100 clients that never read: resident %.0f MiB at most, %.0f allowed: not flat", most/(1<<20), allowed/(1<<20))
		}
	})
	m := r.scrape(t)
	if m[limited("max.inflight.per.connection")] == 0 {
		t.Error("reading has not stopped")
	}
}

// quiet waits until nothing is answered any more but the good client: what never
// reads has filled its sockets. From then on it must cost nothing.
func (r *rig) quiet(t *testing.T) {
	t.Helper()
	load := func(m metrics) (n float64) {
		for k, v := range m {
			if strings.HasPrefix(k, "stream_kafka_requests_total") && !strings.Contains(k, "good") {
				n += v
			}
		}
		return n
	}
	before := load(r.scrape(t))
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	// A moment without answers may lie between two that are made.
	for began, still := time.Now(), 0; still < 3; {
		<-tick.C
		now := load(r.scrape(t))
		if now-before < 250 { // the good client makes up to 125
			still++
			before = now
			continue
		}
		still = 0
		if before = now; time.Since(began) > patience {
			t.Error("clients that read nothing are answered on and on")
			return
		}
	}
	r.unharmed(t, "100 clients do not read")
}

// unharmed measures a good client's p99: it must be below twice its base, or 5 ms
// above it, which two cores that others use too make of a millisecond now and
// then. A second process that nobody attacks, measured at the same time, says what
// the machine allows.
func (r *rig) unharmed(t *testing.T, what string) {
	t.Helper()
	twin := start(t)
	var mine, other []time.Duration
	var wg sync.WaitGroup
	wg.Go(func() { other = twin.good(t, 300, nil) })
	mine = r.good(t, 300, nil)
	wg.Wait()
	got, calm := quantile(mine), quantile(other)
	most := max(2*r.p99, r.p99+5*time.Millisecond, 2*calm)
	t.Logf("while %s: p99 %v, %v before, %v beside it", what, got, r.p99, calm)
	if got > most {
		t.Errorf("while %s a good client's p99 is %v, more than %v", what, got, most)
	}
}

// repeat gives b again and again, a piece of it at a time.
func repeat(b []byte) io.Reader {
	b = bytes.Repeat(b, max(1, 64<<10/len(b)))
	return &repeater{b: b}
}

type repeater struct {
	b  []byte
	at int
}

func (r *repeater) Read(p []byte) (int, error) {
	n := copy(p, r.b[r.at:])
	r.at = (r.at + n) % len(r.b)
	return n, nil
}

func TestRow08SlowReader(t *testing.T) {
	r := start(t, "--write-timeout", "2s")
	c := r.dial(t)
	c.create(t, "big", 1)
	for range 50 {
		c.produced(t, "fill", 9, []int16{0}, part{"big", 0, one(900 << 10)})
	}
	ask[*kmsg.FetchResponse](t, c, fetch(12, "big", 0, 0, 50<<20, 0))
	_ = c.Close()
	testkit.Poll(t, patience, "idle", func() error {
		if n := r.scrape(t)["stream_connections"]; n != 0 {
			return fmt.Errorf("%v connections", n)
		}
		return nil
	})
	r.settleBase(t)
	from := len(r.Log())
	r.under(t, func() {
		// 32 KiB/s is less than one step of a write within this timeout.
		slow := r.dial(t)
		_ = slow.Conn.(*net.TCPConn).SetReadBuffer(4 << 10)
		if err := slow.send(fetch(12, "big", 0, 0, 50<<20, 0)); err != nil {
			t.Fatal(err)
		}
		// And one that takes more than a step within it, which must not be cut.
		steady := r.dial(t)
		if err := steady.send(fetch(12, "big", 0, 0, 8<<20, 0)); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		var got int
		var err error
		wg.Go(func() {
			tick := time.NewTicker(250 * time.Millisecond)
			defer tick.Stop()
			_ = steady.SetReadDeadline(time.Now().Add(patience))
			var head [4]byte
			if _, err = io.ReadFull(steady, head[:]); err != nil {
				return
			}
			for size := int(binary.BigEndian.Uint32(head[:])); got < size && err == nil; {
				<-tick.C
				var n int64
				n, err = io.CopyN(io.Discard, steady, int64(min(400<<10, size-got)))
				got += int(n)
			}
		})
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		began := time.Now()
		for r.scrape(t)[closedFor("write.timeout")] == 0 {
			if time.Since(began) > patience {
				t.Fatal("the slow reader was not cut")
			}
			<-tick.C
			_, _ = io.CopyN(io.Discard, slow, 32<<10)
		}
		wg.Wait()
		if err != nil || got < 3<<20 {
			t.Errorf("a steady reader was cut after %d bytes: %v", got, err)
		}
		_ = slow.Close()
		_ = steady.Close()
	})
	if ls := r.lines(t, from); len(ls) != 1 || ls[0].Reason != "write.timeout" {
		t.Errorf("log lines: %+v", ls)
	}
}

// A peer that vanishes without FIN is found by the kernel: the server's sockets
// run a keepalive timer. (That it fires cannot be seen without cutting a wire.)
func TestRow08VanishedPeer(t *testing.T) {
	r := start(t)
	c := r.dial(t)
	ask[*kmsg.MetadataResponse](t, c, at(9, kmsg.NewPtrMetadataRequest()))
	server, local := c.RemoteAddr().(*net.TCPAddr), c.LocalAddr().(*net.TCPAddr)
	testkit.Poll(t, patience, "a keepalive timer", func() error {
		table, err := os.ReadFile("/proc/net/tcp")
		if err != nil {
			return err
		}
		for row := range strings.Lines(string(table)) {
			f := strings.Fields(row)
			if len(f) > 5 && strings.HasSuffix(f[1], port(server)) && strings.HasSuffix(f[2], port(local)) {
				if strings.HasPrefix(f[5], "02:") {
					return nil
				}
				return fmt.Errorf("timer %s", f[5])
			}
		}
		return fmt.Errorf("the connection is not listed")
	})
	// A long poll of a client that has gone is freed at once.
	wait := r.dial(t)
	before := r.scrape(t)["go_goroutines"]
	if err := wait.send(fetch(12, "good", 0, 1<<40, 1<<20, time.Hour)); err != nil {
		t.Fatal(err)
	}
	_ = wait.Conn.(*net.TCPConn).SetLinger(0)
	_ = wait.Close()
	testkit.Poll(t, patience, "the waiter is freed", func() error {
		if n := r.scrape(t)["go_goroutines"]; n > before {
			return fmt.Errorf("%v goroutines, %v before", n, before)
		}
		return nil
	})
	_ = c.Close()
}

func port(a *net.TCPAddr) string {
	return ":" + strings.ToUpper(hex.EncodeToString([]byte{byte(a.Port >> 8), byte(a.Port)}))
}
