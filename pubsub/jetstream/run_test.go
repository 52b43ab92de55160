package jetstream_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/pubsub/embedded"
	"github.com/hanzoai/stream/pubsub/jetstream"
	"github.com/hanzoai/stream/test/testkit"
)

// body is the data of a large message, different for each.
func body(seq pubsub.Seq, size int) []byte {
	return bytes.Repeat([]byte{byte(seq), byte(seq >> 8), 7}, size/3+1)[:size]
}

// reader reads a log from one read to the next and checks what it gets.
type reader struct {
	t    *testing.T
	l    pubsub.Log
	next pubsub.Seq
	size int
}

// read reads once and returns how many messages there were. Their memory is
// given back, so that the next ones lie in the same.
func (r *reader) read(limit pubsub.Limit) int {
	r.t.Helper()
	ms, err := r.l.Read(r.t.Context(), r.next, limit)
	if err != nil {
		r.t.Fatalf("read from %d: %v", r.next, err)
	}
	for _, m := range ms {
		if m.Seq != r.next || !bytes.Equal(m.Data, body(m.Seq, r.size)) || m.Size != r.size || m.Header.Get("S") != fmt.Sprint(m.Seq) ||
			len(m.Header) != 1 || time.Since(m.Time) > time.Minute || m.Time.Location() != time.UTC {
			r.t.Fatalf("read sequence %d of %d bytes at %v with %v, want %d", m.Seq, len(m.Data), m.Time, m.Header, r.next)
		}
		r.next++
		if m.Release != nil {
			m.Release()
		}
	}
	return len(ms)
}

func fillLarge(t *testing.T, l pubsub.Log, from, to pubsub.Seq, size int) {
	t.Helper()
	for seq := from; seq <= to; seq++ {
		e := pubsub.Entry{Header: pubsub.Header{"S": {fmt.Sprint(seq)}}, Data: body(seq, size)}
		if _, err := l.Append(t.Context(), seq-1, e); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRun: a reader that goes on gets a consumer, and nothing that happens to it
// shows in what is read.
func TestRun(t *testing.T) {
	const size = 500_000
	dir := t.TempDir()
	srv, err := embedded.Start(t.Context(), embedded.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Stop)
	st := connect(t, jetstream.Config{InProcess: srv})
	st.SetRuns(3*size, time.Minute, 0)
	if err := st.CreateLog(t.Context(), pubsub.LogConfig{Name: "r", Subject: "r.0"}); err != nil {
		t.Fatal(err)
	}
	l := st.Log("r", "r.0")
	fillLarge(t, l, 1, 60, size)
	r := &reader{t, l, 1, size}
	one := pubsub.Limit{MaxBytes: 1}
	for range 3 {
		r.read(one)
		if st.Runs() != 0 {
			t.Fatal("a consumer after a few messages")
		}
	}
	for range 5 {
		if n := r.read(one); n != 1 {
			t.Fatalf("a read of one byte brought %d messages", n)
		}
	}
	if st.Runs() != 1 {
		t.Fatalf("%d consumers for one reader", st.Runs())
	}
	if n := r.read(pubsub.Limit{MaxBytes: 2*size + 1}); n != 3 {
		t.Errorf("a read that ends within the third message brought %d", n)
	}
	if n := r.read(pubsub.Limit{MaxBytes: 4 << 20, MaxMessages: 2}); n != 2 {
		t.Errorf("a read of two messages brought %d", n)
	}
	if got := st.Bypassed(); got < 13*size {
		t.Errorf("%d bytes went past nats.go, want all", got)
	}

	// Two readers, one of which goes elsewhere.
	other := &reader{t, l, 1, size}
	for range 6 {
		other.read(one)
		r.read(one)
	}
	if st.Runs() != 2 {
		t.Errorf("%d consumers for two readers", st.Runs())
	}

	// The consumers are removed by others.
	js, err := raw(t, srv).JetStream()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for name := range js.ConsumerNames("r") {
		if err := js.DeleteConsumer("r", name); err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n != 2 {
		t.Errorf("the stream has %d consumers, want 2", n)
	}
	r.read(one)
	r.read(one)

	// A hole in front of a consumer is a hole, not an end.
	for range 3 {
		r.read(one)
	}
	if err := js.DeleteMsg("r", uint64(r.next)); err != nil {
		t.Fatal(err)
	}
	ms, err := l.Read(t.Context(), r.next, one)
	if err != nil || len(ms) != 1 || ms[0].Seq != r.next+1 {
		t.Fatalf("read at a hole: %d messages, %v", len(ms), err)
	}
	r.next += 2

	// The end is no error, and reading goes on after it.
	for r.next <= 60 {
		if r.read(pubsub.Limit{MaxBytes: 3 * size}) == 0 {
			t.Fatalf("nothing at %d of 60", r.next)
		}
	}
	if n := r.read(one); n != 0 {
		t.Fatalf("%d messages after the end", n)
	}
	fillLarge(t, l, 61, 70, size)
	for r.next <= 70 {
		r.read(one)
	}

	// Purged in front of the consumer.
	other.next = 1
	for range 5 {
		other.read(one)
	}
	if err := l.Trim(t.Context(), 65); err != nil {
		t.Fatal(err)
	}
	if ms, err := l.Read(t.Context(), other.next, one); err != nil || len(ms) != 1 || ms[0].Seq != 65 {
		t.Fatalf("read behind a purge: %d messages, %v", len(ms), err)
	}
}

// TestRunIdle: when nobody reads the consumer goes.
func TestRunIdle(t *testing.T) {
	const size = 1000
	srv := startEmbedded(t, embedded.Config{})
	st := connect(t, jetstream.Config{InProcess: srv})
	st.SetRuns(1, time.Minute, 0)
	if err := st.CreateLog(t.Context(), pubsub.LogConfig{Name: "r", Subject: "r.0"}); err != nil {
		t.Fatal(err)
	}
	r := &reader{t, st.Log("r", "r.0"), 1, size}
	fillLarge(t, r.l, 1, 10, size)
	for range 3 {
		r.read(pubsub.Limit{MaxBytes: 1})
	}
	if st.Runs() != 1 {
		t.Fatalf("%d consumers for one reader", st.Runs())
	}
	st.SetRuns(1, time.Millisecond, 0) // from the next read on
	r.read(pubsub.Limit{MaxBytes: 1})
	js, err := raw(t, srv).JetStream()
	if err != nil {
		t.Fatal(err)
	}
	testkit.Poll(t, 10*time.Second, "no consumers", func() error {
		si, err := js.StreamInfo("r")
		if err == nil && (si.State.Consumers > 0 || st.Runs() > 0) {
			err = fmt.Errorf("%d consumers, %d runs", si.State.Consumers, st.Runs())
		}
		return err
	})
}

// TestRunFails: what goes wrong under a consumer is told as without one.
func TestRunFails(t *testing.T) {
	const size = 200_000
	prepare := func(t *testing.T, fresh time.Duration) (*embedded.Server, *jetstream.Store, *reader) {
		srv := startEmbedded(t, embedded.Config{})
		st := connect(t, jetstream.Config{InProcess: srv, ReadTimeout: time.Second, APITimeout: time.Second})
		st.SetRuns(1, time.Minute, fresh)
		if err := st.CreateLog(t.Context(), pubsub.LogConfig{Name: "r", Subject: "r.0"}); err != nil {
			t.Fatal(err)
		}
		r := &reader{t, st.Log("r", "r.0"), 1, size}
		fillLarge(t, r.l, 1, 20, size)
		for range 5 {
			r.read(pubsub.Limit{MaxBytes: 1})
		}
		if st.Runs() != 1 {
			t.Fatalf("%d consumers", st.Runs())
		}
		return srv, st, r
	}
	t.Run("the log is deleted", func(t *testing.T) {
		_, st, r := prepare(t, 0)
		if err := st.DeleteLog(t.Context(), "r"); err != nil {
			t.Fatal(err)
		}
		if _, err := r.l.Read(t.Context(), r.next, pubsub.Limit{}); !errors.Is(err, pubsub.ErrNotFound) {
			t.Errorf("read: %v, want %v", err, pubsub.ErrNotFound)
		}
	})
	t.Run("the server stops", func(t *testing.T) {
		srv, st, r := prepare(t, time.Minute)
		if st.Ahead() == 0 {
			t.Error("nothing is read ahead")
		}
		srv.Stop()
		// Each connection learns of it by itself; until then what was read
		// ahead is good.
		testkit.Poll(t, 10*time.Second, "a read that fails", func() error {
			ms, err := r.l.Read(t.Context(), r.next, pubsub.Limit{MaxBytes: 1})
			r.next += pubsub.Seq(len(ms))
			if !errors.Is(err, pubsub.ErrUnavailable) {
				return fmt.Errorf("%d messages, %v", len(ms), err)
			}
			return nil
		})
	})
	t.Run("the caller gives up", func(t *testing.T) {
		_, st, r := prepare(t, time.Minute)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		ms, err := r.l.Read(ctx, r.next, pubsub.Limit{MaxBytes: 4 << 20})
		if len(ms) == 0 && !errors.Is(err, pubsub.ErrUnavailable) {
			t.Errorf("read: %d messages, %v, want %v", len(ms), err, pubsub.ErrUnavailable)
		}
		for r.next <= 20 {
			r.read(pubsub.Limit{MaxBytes: 1})
		}
		if n := r.read(pubsub.Limit{}); n != 0 || st.Ahead() != 0 || st.Runs() != 0 {
			t.Errorf("after the end: %d messages, %d bytes ahead, %d consumers", n, st.Ahead(), st.Runs())
		}
	})
	t.Run("the reader comes back late", func(t *testing.T) {
		_, st, r := prepare(t, time.Second)
		for st.Ahead() == 0 {
			if r.next > 20 {
				t.Fatal("nothing is read ahead")
			}
			r.read(pubsub.Limit{MaxBytes: 1})
		}
		late := time.Now()
		testkit.Poll(t, 5*time.Second, "some time", func() error {
			if time.Since(late) < 1100*time.Millisecond {
				return errors.New("too early")
			}
			return nil
		})
		if err := st.DeleteLog(t.Context(), "r"); err != nil {
			t.Fatal(err)
		}
		if ms, err := r.l.Read(t.Context(), r.next, pubsub.Limit{}); !errors.Is(err, pubsub.ErrNotFound) {
			t.Errorf("read: %d messages, %v, want %v", len(ms), err, pubsub.ErrNotFound)
		}
		if st.Ahead() != 0 || st.Runs() != 0 {
			t.Errorf("%d bytes ahead, %d consumers", st.Ahead(), st.Runs())
		}
	})
	t.Run("other sizes", func(t *testing.T) {
		_, st, r := prepare(t, time.Minute)
		for _, limit := range []pubsub.Limit{{MaxMessages: 4}, {MaxBytes: 1}, {MaxBytes: 1}, {MaxBytes: 2*size + 1}, {MaxMessages: 2}, {}} {
			r.read(limit)
			if r.next <= 20 && st.Runs() != 1 {
				t.Fatalf("%d consumers at %d", st.Runs(), r.next)
			}
		}
		if r.next != 21 {
			t.Errorf("read up to %d of 20", r.next-1)
		}
	})
	t.Run("closed", func(t *testing.T) {
		_, st, r := prepare(t, time.Minute)
		st.Close()
		if _, err := r.l.Read(t.Context(), r.next, pubsub.Limit{}); !errors.Is(err, pubsub.ErrUnavailable) {
			t.Errorf("read: %v, want %v", err, pubsub.ErrUnavailable)
		}
	})
}
