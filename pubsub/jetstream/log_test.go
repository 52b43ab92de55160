package jetstream_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/pubsub/contract"
	"github.com/hanzoai/stream/pubsub/embedded"
	"github.com/hanzoai/stream/pubsub/jetstream"
)

// TestContractSingles runs the suite over the read path for servers of 2.10.
func TestContractSingles(t *testing.T) {
	srv := startEmbedded(t, embedded.Config{SyncAlways: true})
	t.Run("suite", func(t *testing.T) {
		contract.Run(t, func(t *testing.T) pubsub.Store {
			st := connect(t, jetstream.Config{InProcess: srv})
			st.SetBatched(false)
			return st
		})
	})
}

// raw is a NATS client beside the store.
func raw(t *testing.T, srv nats.InProcessConnProvider) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect("", nats.InProcessServer(srv))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// api makes a JetStream call that pubsub has no word for.
func api(t *testing.T, nc *nats.Conn, subject string, req any) {
	t.Helper()
	b, err := json.Marshal(req)
	if err != nil {
		t.Fatal(err)
	}
	m, err := nc.Request("$JS.API."+subject, b, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	var resp struct{ Error any }
	if err := json.Unmarshal(m.Data, &resp); err != nil || resp.Error != nil {
		t.Fatalf("%s: %s", subject, m.Data)
	}
}

func seqs(ms []pubsub.Message) []pubsub.Seq {
	var s []pubsub.Seq
	for _, m := range ms {
		s = append(s, m.Seq)
	}
	return s
}

// TestHoles: messages deleted one by one, also the last, by hand or by a
// compaction.
func TestHoles(t *testing.T) {
	srv := startEmbedded(t, embedded.Config{})
	nc := raw(t, srv)
	for _, batched := range []bool{true, false} {
		t.Run(fmt.Sprintf("batched=%v", batched), func(t *testing.T) {
			st := connect(t, jetstream.Config{InProcess: srv})
			st.SetBatched(batched)
			name, subject := fmt.Sprintf("holes-%v", batched), fmt.Sprintf("holes.%v", batched)
			if err := st.CreateLog(t.Context(), pubsub.LogConfig{Name: name, Subject: subject}); err != nil {
				t.Fatal(err)
			}
			l := st.Log(name, subject)
			for i := range pubsub.Seq(60) {
				if _, err := l.Append(t.Context(), i, pubsub.Entry{Data: fmt.Append(nil, i+1)}); err != nil {
					t.Fatal(err)
				}
			}
			var want []pubsub.Seq
			for i := range pubsub.Seq(60) {
				switch s := i + 1; {
				case s == 1, s == 4, s == 5, s > 20 && s < 55, s == 60:
					api(t, nc, "STREAM.MSG.DELETE."+name, map[string]any{"seq": s, "no_erase": true})
				default:
					want = append(want, s)
				}
			}
			ms, err := l.Read(t.Context(), 1, pubsub.Limit{})
			if err != nil || !slices.Equal(seqs(ms), want) {
				t.Errorf("Read: %v, %v, want %v", seqs(ms), err, want)
			}
			for _, m := range ms {
				if string(m.Data) != fmt.Sprint(m.Seq) {
					t.Errorf("sequence %d holds %q", m.Seq, m.Data)
				}
			}
			if ms, err = l.Read(t.Context(), 21, pubsub.Limit{MaxMessages: 2}); err != nil || !slices.Equal(seqs(ms), []pubsub.Seq{55, 56}) {
				t.Errorf("Read over a hole: %v, %v", seqs(ms), err)
			}
			if ms, err = l.Read(t.Context(), 60, pubsub.Limit{}); err != nil || len(ms) != 0 {
				t.Errorf("Read of the deleted end: %v, %v", seqs(ms), err)
			}
			var got []pubsub.Seq
			if err := l.Headers(t.Context(), 1, 60, func(m pubsub.Message) error { got = append(got, m.Seq); return nil }); err != nil || !slices.Equal(got, want) {
				t.Errorf("Headers: %v, %v, want %v", got, err, want)
			}
			if _, err := l.Get(t.Context(), 60); !errors.Is(err, pubsub.ErrNotFound) {
				t.Errorf("Get of a deleted message: %v", err)
			}
			// The last stored message stays, though it is not at the last sequence.
			if err := l.Trim(t.Context(), 100); err != nil {
				t.Fatal(err)
			}
			if b, err := l.Bounds(t.Context()); err != nil || b.First != 59 || b.Last != 60 || b.Messages != 1 {
				t.Errorf("after Trim: %+v, %v", b, err)
			}
			if seq, err := l.Append(t.Context(), 60, pubsub.Entry{}); err != nil || seq != 61 {
				t.Errorf("Append after all that: %d, %v", seq, err)
			}
		})
	}
}

// TestForeignMessages: plain publishers may store headers that look like the
// server's own words.
func TestForeignMessages(t *testing.T) {
	srv := startEmbedded(t, embedded.Config{})
	nc := raw(t, srv)
	st := connect(t, jetstream.Config{InProcess: srv})
	if err := st.CreateLog(t.Context(), pubsub.LogConfig{Name: "f", Subject: "f.0"}); err != nil {
		t.Fatal(err)
	}
	l := st.Log("f", "f.0")
	news := make(chan pubsub.Message, 10)
	cancel, err := l.Follow(func(m pubsub.Message) { news <- m })
	if err != nil {
		t.Fatal(err)
	}
	defer cancel()
	receive(t, news)
	for _, h := range []nats.Header{
		{"Status": {"404"}, "Description": {"Message Not Found"}},
		{"Status": {"204"}, "Description": {"EOB"}, "Nats-Last-Sequence": {"77"}},
		{"Nats-Sequence": {"99"}, "Nats-Time-Stamp": {"yesterday"}, "Nats-Stream": {"other"}, "Nats-Num-Pending": {"x"}, "Nats-Msg-Size": {"12345"}},
		{"Kafka-Key": {"k"}, "KV-Operation": {"DEL"}},
		{"Status": {"503"}},
	} {
		if m, err := nc.RequestMsg(&nats.Msg{Subject: "f.0", Header: h, Data: []byte("data")}, 5*time.Second); err != nil {
			t.Fatalf("%v: %v, %v", h, m, err)
		}
	}
	if _, err := l.Append(t.Context(), 5, pubsub.Entry{Data: []byte("data")}); err != nil {
		t.Fatal(err)
	}
	for _, batched := range []bool{true, false} {
		st.SetBatched(batched)
		ms, err := l.Read(t.Context(), 1, pubsub.Limit{})
		if err != nil || len(ms) != 6 {
			t.Fatalf("Read (batched %v): %d messages, %v", batched, len(ms), err)
		}
		for i, m := range ms {
			if m.Seq != pubsub.Seq(i+1) || string(m.Data) != "data" || m.Size != 4 || time.Since(m.Time) > time.Minute {
				t.Errorf("Read (batched %v): %+v, want sequence %d", batched, m, i+1)
			}
		}
		if ms[3].Header.Get("Kafka-Key") != "k" {
			t.Errorf("a plain publisher's header is gone: %v", ms[3].Header)
		}
	}
	next := pubsub.Seq(1)
	err = l.Headers(t.Context(), 1, 6, func(m pubsub.Message) error {
		if m.Seq != next || m.Size != 4 {
			t.Errorf("Headers: %+v, want sequence %d", m, next)
		}
		next++
		return nil
	})
	if err != nil || next != 7 {
		t.Errorf("Headers ended before %d: %v", next, err)
	}
	for seq := range pubsub.Seq(6) {
		if m := receive(t, news); m.Seq != seq+1 || m.Size != 4 {
			t.Errorf("news %+v, want sequence %d", m, seq+1)
		}
	}
}

// TestForeignResponder: somebody answers on the subject before the stream does.
func TestForeignResponder(t *testing.T) {
	srv := startEmbedded(t, embedded.Config{})
	nc := raw(t, srv)
	st := connect(t, jetstream.Config{InProcess: srv})
	if err := st.CreateLog(t.Context(), pubsub.LogConfig{Name: "f", Subject: "f.0"}); err != nil {
		t.Fatal(err)
	}
	for _, answer := range []string{"", "+OK", `{"seq":7}`} {
		sub, err := nc.Subscribe("f.0", func(m *nats.Msg) { _ = m.Respond([]byte(answer)) })
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = sub.Unsubscribe() }()
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	l := st.Log("f", "f.0")
	for i := range pubsub.Seq(30) {
		if seq, err := l.Append(t.Context(), i, pubsub.Entry{Data: []byte("x")}); err != nil || seq != i+1 {
			t.Fatalf("Append: %d, %v", seq, err)
		}
	}
}

// TestManyReaders: reads share a byte budget that is smaller than their sum.
func TestManyReaders(t *testing.T) {
	srv := startEmbedded(t, embedded.Config{})
	st := connect(t, jetstream.Config{InProcess: srv, ReadBudget: 1 << 20, ReadConns: 1})
	if err := st.CreateLog(t.Context(), pubsub.LogConfig{Name: "m", Subject: "m.0"}); err != nil {
		t.Fatal(err)
	}
	l := st.Log("m", "m.0")
	const n = 64
	for i := range pubsub.Seq(n) {
		if _, err := l.Append(t.Context(), i, pubsub.Entry{Data: make([]byte, 64<<10)}); err != nil {
			t.Fatal(err)
		}
	}
	var wg sync.WaitGroup
	for r := range 16 {
		wg.Go(func() {
			for from := pubsub.Seq(1); from <= n; {
				ms, err := l.Read(t.Context(), from, pubsub.Limit{MaxBytes: 256 << (r % 12)})
				if err != nil || len(ms) == 0 || ms[0].Seq != from {
					t.Errorf("Read from %d: %d messages, %v", from, len(ms), err)
					return
				}
				from += pubsub.Seq(len(ms))
			}
		})
	}
	wg.Wait()
}

// TestLogSettings: what design and operators rely on.
func TestLogSettings(t *testing.T) {
	srv := startEmbedded(t, embedded.Config{})
	st := connect(t, jetstream.Config{InProcess: srv, Prefix: "k2"})
	if err := st.CreateLog(t.Context(), pubsub.LogConfig{Name: "k2-foo-0", Subject: "k2.foo.0", Metadata: map[string]string{"a": "b"}}); err != nil {
		t.Fatal(err)
	}
	js, err := raw(t, srv).JetStream()
	if err != nil {
		t.Fatal(err)
	}
	si, err := js.StreamInfo("k2-foo-0")
	if err != nil {
		t.Fatal(err)
	}
	c := si.Config
	if !slices.Equal(c.Subjects, []string{"k2.foo.0"}) || c.Storage != nats.FileStorage || c.Replicas != 1 || c.Discard != nats.DiscardOld ||
		c.MaxMsgs != -1 || c.MaxBytes != -1 || c.MaxAge != 0 || c.MaxMsgsPerSubject != -1 || !c.AllowDirect || c.Duplicates != 100*time.Millisecond ||
		c.DenyDelete || c.DenyPurge || c.Sealed || c.Compression != nats.NoCompression || c.Metadata["a"] != "b" ||
		c.RePublish == nil || *c.RePublish != (nats.RePublish{Source: "k2.foo.0", Destination: "k2-news.k2.foo.0", HeadersOnly: true}) {
		t.Errorf("settings: %+v", c)
	}
}
