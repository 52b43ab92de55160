package protocol

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestConfigValidate(t *testing.T) {
	t.Parallel()
	if err := DefaultConfig().Validate(); err != nil {
		t.Errorf("defaults: %v", err)
	}
	err := Config{}.Validate()
	if err == nil {
		t.Fatal("an empty config is valid")
	}
	for _, key := range []string{"socket.request.max.bytes", "max.request.elements", "max.connections", "frame.timeout", "write.timeout", "connections.max.idle.ms", "max.inflight.per.connection", "fetch.max.bytes", "fetch.max.wait"} {
		if !strings.Contains(err.Error(), key) {
			t.Errorf("%s is not reported: %v", key, err)
		}
	}
}

func TestConnectionLimits(t *testing.T) {
	t.Parallel()
	for reason, set := range map[string]func(*Config){
		"max.connections":              func(c *Config) { c.MaxConnections = 3 },
		"max.connections.per.ip":       func(c *Config) { c.MaxConnectionsPerIP = 3 },
		"max.connection.creation.rate": func(c *Config) { c.MaxConnectionRate = 3 },
	} {
		s := startServer(t, newWorld(), set)
		var ps []*peer
		for range 3 {
			p := s.dial(t)
			ask[*kmsg.MetadataResponse](p, 1, kmsg.NewPtrMetadataRequest())
			ps = append(ps, p)
		}
		s.dial(t).closed(reason)
		if n := s.value(t, "stream_connections_rejected_total", reason); n != 1 {
			t.Errorf("%s: %v rejected", reason, n)
		}
		ask[*kmsg.MetadataResponse](ps[0], 1, kmsg.NewPtrMetadataRequest())
		if reason == "max.connection.creation.rate" {
			continue
		}
		_ = ps[1].Close()
		eventually(t, "a place is free", func() bool { return s.value(t, "stream_connections") == 2 })
		ask[*kmsg.MetadataResponse](s.dial(t), 1, kmsg.NewPtrMetadataRequest())
	}
}

// TestRow03SlowFrames: a frame that dribbles is cut at the deadline; others
// are not affected, nor is a large one that arrives steadily.
func TestRow03SlowFrames(t *testing.T) {
	t.Parallel()
	s := startServer(t, newWorld(), func(c *Config) {
		c.FrameTimeout, c.FrameMinRate = 200*time.Millisecond, 10_000
	})
	slow := s.dial(t)
	stop := make(chan struct{})
	dribbled := make(chan struct{})
	go func() { // 1000 bytes per second
		defer close(dribbled)
		_, _ = slow.Write([]byte{0, 0, 0x80, 0})
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				if _, err := slow.Write(make([]byte, 10)); err != nil {
					return
				}
			}
		}
	}()
	half := s.dial(t)
	half.write([]byte{0, 0})
	good := s.dial(t)
	ask[*kmsg.MetadataResponse](good, 1, kmsg.NewPtrMetadataRequest())
	slow.closed("slow frame")
	half.closed("half a length")
	close(stop)
	<-dribbled
	if n := s.value(t, "stream_connections_closed_total", "frame.timeout"); n != 2 {
		t.Errorf("%v closed for it", n)
	}
	ask[*kmsg.MetadataResponse](good, 1, kmsg.NewPtrMetadataRequest())
}

func TestIdle(t *testing.T) {
	t.Parallel()
	w := newWorld()
	s := startServer(t, w, func(c *Config) { c.IdleTimeout = 150 * time.Millisecond })
	silent, waiting := s.dial(t), s.dial(t)
	fetch := recordsOf(w, "t0", 0, 0)
	fetch.MaxWaitMillis = 600
	waiting.send(12, fetch)
	silent.closed("idle")
	began := time.Now()
	waiting.recv() // a waiting fetch is not idle
	if time.Since(began) > 5*time.Second {
		t.Error("late")
	}
	waiting.closed("idle after its answer")
	if n := s.value(t, "stream_connections_closed_total", "connections.max.idle.ms"); n != 2 {
		t.Errorf("%v closed for it", n)
	}
}

// TestRow07ClientThatNeverReads: its connection ends, what it held is
// free, and it was not read from without end.
func TestRow07ClientThatNeverReads(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.log("t0", 0).append(batch(1, 12<<20))
	s := startServer(t, w, func(c *Config) { c.WriteTimeout = 200 * time.Millisecond })
	p := s.dial(t)
	fetch := recordsOf(w, "t0", 0, 0)
	fetch.SetVersion(12)
	var b []byte
	for i := range int32(10_000) {
		b = append(b, formatter.AppendRequest(nil, fetch, i)...)
	}
	go func() { _, _ = p.Write(b) }()
	eventually(t, "an answer is being written", func() bool { return s.handler.answers.held.Load() > 0 })
	if n := s.budget.held(); n > 64<<10 {
		t.Errorf("%d bytes of requests were read ahead", n)
	}
	eventually(t, "closed by the write timeout", func() bool {
		return s.value(t, "stream_connections_closed_total", "write.timeout") == 1 && s.handler.answers.held.Load() == 0
	})
}

// TestSmallAnswersNobodyReads: a client that pipelines small requests and reads
// nothing is answered into its socket only, which is kept small: the rest of its
// requests is not even read.
func TestSmallAnswersNobodyReads(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the socket's buffer is bounded on Linux only")
	}
	t.Parallel()
	w := newWorld()
	for i := range 40 {
		w.log(fmt.Sprintf("topic-%d", i), 0)
	}
	s := startServer(t, w, nil)
	p := s.dial(t)
	all := kmsg.NewPtrMetadataRequest()
	all.SetVersion(1)
	const sent = 10_000
	b := bytes.Repeat(formatter.AppendRequest(nil, all, 1), sent)
	other := s.dial(t)
	other.send(1, all)
	answer, err := other.frame()
	if err != nil {
		t.Fatal(err)
	}
	size := len(answer)
	go func() { _, _ = p.Write(b) }()
	answered := func() float64 {
		return s.value(t, "stream_kafka_requests_total", "Metadata", "NONE")
	}
	writing := func() int64 {
		s.mu.Lock()
		defer s.mu.Unlock()
		for c := range s.conns {
			if at := c.writeAt.Load(); at != 0 {
				return at
			}
		}
		return 0
	}
	eventually(t, "one write has been stuck for a while", func() bool {
		at := writing()
		return at != 0 && s.tick.Load() != at && at == writing()
	})
	// The client's kernel takes up to some hundred KiB, ours unsentBytes.
	if n := answered(); n < 2 || n*float64(size) > 1<<20 {
		t.Errorf("%v answers of %d bytes were made for a client that reads none", n, size)
	}
}

// TestSlowReaderIsNotCut: a client that takes something within each timeout may
// take as long as it likes.
func TestSlowReaderIsNotCut(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.log("t0", 0).append(batch(1, 12<<20))
	s := startServer(t, w, func(c *Config) { c.WriteTimeout = 1500 * time.Millisecond })
	p := s.dial(t)
	p.send(12, recordsOf(w, "t0", 0, 0))
	began := time.Now()
	got := 0
	buf := make([]byte, 256<<10)
	tick := time.NewTicker(60 * time.Millisecond)
	defer tick.Stop()
	for got < 12<<20 {
		<-tick.C
		n, err := p.Read(buf)
		if err != nil {
			t.Fatalf("after %d bytes and %v: %v", got, time.Since(began), err)
		}
		got += n
	}
	if took := time.Since(began); took < 2*time.Second {
		t.Errorf("took %v, which proves nothing", took)
	}
}

// TestFetchBytesAreShared: while answers that nobody reads hold the shared
// budget, others get one batch each.
func TestFetchBytesAreShared(t *testing.T) {
	t.Parallel()
	w := newWorld()
	l := w.log("t0", 0)
	for range 4 {
		l.append(batch(1, 100_000))
	}
	one := len(batch(1, 100_000))
	s := startServer(t, w, func(c *Config) { c.FetchHeldBytes = int64(3 * one) })
	s.handler.answers.add(int64(3 * one))
	p := s.dial(t)
	r := ask[*kmsg.FetchResponse](p, 12, recordsOf(w, "t0", 0, 0))
	if n := len(r.Topics[0].Partitions[0].RecordBatches); n != one {
		t.Errorf("%d bytes, want one batch of %d", n, one)
	}
	s.handler.answers.add(-int64(3 * one))
	r = ask[*kmsg.FetchResponse](p, 12, recordsOf(w, "t0", 0, 0))
	if n := len(r.Topics[0].Partitions[0].RecordBatches); n != 3*one {
		t.Errorf("%d bytes, want three batches of %d", n, one)
	}
}

// TestRequestBytesBudget: sockets are not read while the budget is used up, and
// are when it is free again.
func TestRequestBytesBudget(t *testing.T) {
	t.Parallel()
	w := newWorld()
	s := startServer(t, w, func(c *Config) {
		c.QueuedMaxRequestBytes = 200_000
		c.MaxRequestBytes = 200_000
		c.FrameTimeout = 300 * time.Millisecond
	})
	var h hold
	if err := s.budget.take(&h, 190_000, nil, nil); err != nil {
		t.Fatal(err)
	}
	s.budget.completed(&h)
	p := s.dial(t)
	p.send(9, produceOf(w, "t0", -1, batch(1, 50_000)))
	eventually(t, "the reader waits", func() bool {
		s.budget.mu.Lock()
		defer s.budget.mu.Unlock()
		return len(s.budget.last) == 1
	})
	// Longer than the frame timeout: our lack of memory is not its slowness.
	tick := time.NewTimer(500 * time.Millisecond)
	<-tick.C
	s.budget.give(&h)
	if _, resp := p.recv(); resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode != 0 {
		t.Errorf("%+v", resp)
	}
}

// TestSilentGiants: 200 clients announce 16 MiB and send nothing more: no memory
// of that size is touched.
func TestSilentGiants(t *testing.T) {
	t.Parallel()
	s := startServer(t, newWorld(), nil)
	for range 200 {
		p := s.dial(t)
		p.write(append(binary.BigEndian.AppendUint32(nil, 16<<20), bytes.Repeat([]byte{0}, 100)...))
	}
	eventually(t, "all are being read", func() bool { return s.value(t, "stream_connections") == 200 })
	if n := s.budget.held(); n > 200*64<<10 {
		t.Errorf("%d bytes held", n)
	}
}

// TestServeEndsWithContext: a context that ends cuts everything.
func TestServeEndsWithContext(t *testing.T) {
	t.Parallel()
	s := New(DefaultConfig(), newWorld(), discard, nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, l) }()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	eventually(t, "served", func() bool { s.mu.Lock(); defer s.mu.Unlock(); return len(s.conns) == 1 })
	cancel()
	if err := <-served; !errors.Is(err, context.Canceled) {
		t.Errorf("serve: %v", err)
	}
	(&peer{t: t, Conn: c}).closed("context ended")
	eventually(t, "all gone", func() bool { s.mu.Lock(); defer s.mu.Unlock(); return len(s.conns) == 0 })
	s.wg.Wait()
	if err := s.Serve(t.Context(), l); err == nil {
		t.Error("a server that was shut down serves again")
	}
}
