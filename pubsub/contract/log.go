package contract

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hanzoai/stream/pubsub"
)

func number(seq pubsub.Seq) []byte { return strconv.AppendUint(nil, uint64(seq), 10) }

func logLife(t *testing.T, s pubsub.Store) {
	ctx := timeout(t)
	name := unique("log")
	c := pubsub.LogConfig{Name: name, Subject: "ct." + name, Replicas: 1, Metadata: map[string]string{"a": "1", "b": "x=y/ü"}}
	create(t, s, c)
	noErr(t, "CreateLog again", s.CreateLog(ctx, c))
	mustAppend(t, s.Log(name, c.Subject), 0, pubsub.Entry{Data: []byte("x")})
	noErr(t, "CreateLog of a log with messages", s.CreateLog(ctx, c))

	other := c
	other.Metadata = map[string]string{"a": "2"}
	wantErr(t, "CreateLog with other metadata", s.CreateLog(ctx, other), pubsub.ErrExists)
	other = c
	other.Metadata = nil
	wantErr(t, "CreateLog without metadata", s.CreateLog(ctx, other), pubsub.ErrExists)
	other = c
	other.Subject += ".other"
	wantErr(t, "CreateLog with another subject", s.CreateLog(ctx, other), pubsub.ErrExists)
	other = c
	other.Name += "=r7"
	wantErr(t, "CreateLog on a subject that is taken", s.CreateLog(ctx, other), pubsub.ErrExists)

	i, err := s.FindLog(ctx, name)
	noErr(t, "FindLog", err)
	checkInfo(t, i, c)
	if i.Bounds.Last != 1 || i.Bounds.Messages != 1 {
		t.Errorf("FindLog bounds: %+v", i.Bounds)
	}
	_, err = s.FindLog(ctx, other.Name)
	wantErr(t, "FindLog of a refused log", err, pubsub.ErrNotFound)

	noErr(t, "DeleteLog", s.DeleteLog(ctx, name))
	wantErr(t, "DeleteLog again", s.DeleteLog(ctx, name), pubsub.ErrNotFound)
	_, err = s.FindLog(ctx, name)
	wantErr(t, "FindLog after DeleteLog", err, pubsub.ErrNotFound)
}

func checkInfo(t *testing.T, i pubsub.LogInfo, c pubsub.LogConfig) {
	t.Helper()
	if i.Name != c.Name || i.Subject != c.Subject || i.Replicas != c.Replicas || i.Memory != c.Memory {
		t.Errorf("info is %+v, want %+v", i.LogConfig, c)
	}
	if len(i.Metadata)+len(c.Metadata) > 0 && !maps.Equal(i.Metadata, c.Metadata) {
		t.Errorf("metadata is %v, want exactly %v", i.Metadata, c.Metadata)
	}
}

func logAbsent(t *testing.T, s pubsub.Store) {
	ctx := timeout(t)
	name := unique("absent")
	l := s.Log(name, "ct."+name)
	if l.Name() != name {
		t.Errorf("Name is %q", l.Name())
	}
	_, err := l.Append(ctx, 0, pubsub.Entry{Data: []byte("x")})
	wantErr(t, "Append", err, pubsub.ErrNotFound)
	_, err = l.Read(ctx, 1, pubsub.Limit{})
	wantErr(t, "Read", err, pubsub.ErrNotFound)
	_, err = l.Get(ctx, 1)
	wantErr(t, "Get", err, pubsub.ErrNotFound)
	_, err = l.Bounds(ctx)
	wantErr(t, "Bounds", err, pubsub.ErrNotFound)
	err = l.Headers(ctx, 1, 10, func(pubsub.Message) error { t.Error("a message of no log"); return nil })
	wantErr(t, "Headers", err, pubsub.ErrNotFound)
	wantErr(t, "Trim", l.Trim(ctx, 1), pubsub.ErrNotFound)
	_, err = s.FindLog(ctx, name)
	wantErr(t, "FindLog", err, pubsub.ErrNotFound)
	wantErr(t, "DeleteLog", s.DeleteLog(ctx, name), pubsub.ErrNotFound)
}

func logEmpty(t *testing.T, s pubsub.Store) {
	ctx := timeout(t)
	l := newLog(t, s)
	b, err := l.Bounds(ctx)
	noErr(t, "Bounds", err)
	if b.First != 1 || b.Last != 0 || b.Messages != 0 || !b.LastTime.IsZero() {
		t.Errorf("bounds of an empty log: %+v", b)
	}
	for _, from := range []pubsub.Seq{0, 1, 2} {
		ms, err := l.Read(ctx, from, pubsub.Limit{})
		if err != nil || len(ms) != 0 {
			t.Errorf("Read from %d: %d messages, %v", from, len(ms), err)
		}
	}
	_, err = l.Get(ctx, 1)
	wantErr(t, "Get", err, pubsub.ErrNotFound)
	noErr(t, "Headers", l.Headers(ctx, 1, 5, func(pubsub.Message) error { return errors.New("a message in an empty log") }))
	noErr(t, "Trim", l.Trim(ctx, 5))
	mustAppend(t, l, 0, pubsub.Entry{Data: []byte("first")})
}

func logList(t *testing.T, s pubsub.Store) {
	ctx := timeout(t)
	root := unique("list")
	want := map[string]pubsub.LogConfig{}
	for _, tail := range []string{"a.0", "a.1", "b.0", "c=2E.0"} {
		name := root + "-" + strings.ReplaceAll(tail, ".", "-")
		c := pubsub.LogConfig{Name: name, Subject: root + "." + tail, Replicas: 1, Metadata: map[string]string{"of": tail}}
		want[name] = c
		create(t, s, c)
	}
	mustAppend(t, s.Log(root+"-a-1", root+".a.1"), 0, pubsub.Entry{Data: []byte("x")})
	for filter, n := range map[string]int{root + ".>": 4, root + ".*.0": 3, root + ".a.*": 2, root + ".a.1": 1, root + ".nobody.*": 0} {
		logs, missing, err := s.Logs(ctx, filter)
		noErr(t, "Logs "+filter, err)
		if len(logs) != n || len(missing) != 0 {
			t.Errorf("Logs %s: %d logs, missing %v; want %d", filter, len(logs), missing, n)
		}
		for _, i := range logs {
			checkInfo(t, i, want[i.Name])
			if i.Name == root+"-a-1" && i.Bounds.Last != 1 {
				t.Errorf("Logs %s: bounds of %s are %+v", filter, i.Name, i.Bounds)
			}
		}
	}
}

// logIncarnations: a stale gateway's request for an ended log must not hit the
// one that has its subject now.
func logIncarnations(t *testing.T, s pubsub.Store) {
	ctx := timeout(t)
	name := unique("log")
	subject := "ct." + name
	create(t, s, pubsub.LogConfig{Name: name, Subject: subject})
	old := s.Log(name, subject)
	fill(t, old, 3)
	noErr(t, "DeleteLog", s.DeleteLog(ctx, name))
	again := name + "=r9"
	create(t, s, pubsub.LogConfig{Name: again, Subject: subject})
	l := s.Log(again, subject)

	for _, prev := range []pubsub.Seq{0, 3} {
		_, err := old.Append(ctx, prev, pubsub.Entry{Data: []byte("late")})
		wantErr(t, fmt.Sprintf("Append after %d to the ended log", prev), err, pubsub.ErrNotFound)
	}
	_, err := old.Read(ctx, 1, pubsub.Limit{})
	wantErr(t, "Read of the ended log", err, pubsub.ErrNotFound)
	_, err = old.Bounds(ctx)
	wantErr(t, "Bounds of the ended log", err, pubsub.ErrNotFound)
	wantErr(t, "Trim of the ended log", old.Trim(ctx, 1), pubsub.ErrNotFound)
	b, err := l.Bounds(ctx)
	noErr(t, "Bounds", err)
	if b.Last != 0 {
		t.Errorf("the new log is not empty: %+v", b)
	}
	mustAppend(t, l, 0, pubsub.Entry{Data: []byte("new")})
}

// userHeader drops nothing: what was sent must be what comes back.
func sameHeader(a, b pubsub.Header) bool {
	if len(a) == 0 && len(b) == 0 {
		return true
	}
	return maps.EqualFunc(a, b, func(x, y []string) bool { return slices.Equal(x, y) })
}

func appendRoundTrip(t *testing.T, s pubsub.Store) {
	ctx := timeout(t)
	l := newLog(t, s)
	binary := make([]byte, 256)
	for i := range binary {
		binary[i] = byte(i)
	}
	entries := []pubsub.Entry{
		{Data: []byte("plain")},
		{},
		{Header: pubsub.Header{"X": {"1"}}},
		{Data: binary, Header: pubsub.Header{"K-One": {"a b, c=d; \"q\""}, "k-one": {"other case"}, "Many": {"1", "2", "1"}, "Empty": {""}}},
		{Data: []byte("after"), Header: pubsub.Header{"Long": {strings.Repeat("v", 20_000)}}},
	}
	before := time.Now().Add(-time.Hour)
	for i, e := range entries {
		mustAppend(t, l, pubsub.Seq(i), e)
	}
	check := func(how string, m pubsub.Message, data bool) {
		t.Helper()
		e := entries[m.Seq-1]
		if m.Size != len(e.Data) {
			t.Errorf("%s %d: size %d, want %d", how, m.Seq, m.Size, len(e.Data))
		}
		if data && !bytes.Equal(m.Data, e.Data) {
			t.Errorf("%s %d: data %q, want %q", how, m.Seq, m.Data, e.Data)
		}
		if !data && m.Data != nil {
			t.Errorf("%s %d: data came along", how, m.Seq)
		}
		if !sameHeader(m.Header, e.Header) {
			t.Errorf("%s %d: headers %q, want %q", how, m.Seq, m.Header, e.Header)
		}
		if m.Time.Before(before) {
			t.Errorf("%s %d: time %v", how, m.Seq, m.Time)
		}
	}
	ms := readAll(t, l, 1, len(entries))
	var times []time.Time
	for _, m := range ms {
		check("Read", m, true)
		times = append(times, m.Time)
	}
	for i := range entries {
		m, err := l.Get(ctx, pubsub.Seq(i+1))
		noErr(t, "Get", err)
		check("Get", m, true)
		if !m.Time.Equal(times[i]) {
			t.Errorf("Get %d: time %v, Read said %v", m.Seq, m.Time, times[i])
		}
	}
	n := 0
	noErr(t, "Headers", l.Headers(ctx, 1, pubsub.Seq(len(entries)), func(m pubsub.Message) error {
		n++
		check("Headers", m, false)
		if !m.Time.Equal(times[m.Seq-1]) {
			t.Errorf("Headers %d: time %v, Read said %v", m.Seq, m.Time, times[m.Seq-1])
		}
		return nil
	}))
	if n != len(entries) {
		t.Errorf("Headers gave %d messages, want %d", n, len(entries))
	}
}

// readAll reads n messages from one on, over replicas that may lag.
func readAll(t *testing.T, l pubsub.Log, from pubsub.Seq, n int) []pubsub.Message {
	t.Helper()
	var all []pubsub.Message
	for deadline := time.Now().Add(patience); len(all) < n; {
		ms, err := l.Read(timeout(t), from, pubsub.Limit{})
		noErr(t, "Read", err)
		for _, m := range ms {
			if m.Seq != from {
				t.Fatalf("Read gave sequence %d, want %d", m.Seq, from)
			}
			from++
		}
		all = append(all, ms...)
		if time.Now().After(deadline) {
			t.Fatalf("Read gave %d of %d messages in %v", len(all), n, patience)
		}
	}
	return all
}

func appendConflict(t *testing.T, s pubsub.Store) {
	ctx := timeout(t)
	l := newLog(t, s)
	_, err := l.Append(ctx, 1, pubsub.Entry{Data: []byte("x")})
	wantErr(t, "Append after 1 to an empty log", err, pubsub.ErrConflict)
	fill(t, l, 3)
	for _, prev := range []pubsub.Seq{0, 1, 2, 4, 1 << 40} {
		_, err := l.Append(ctx, prev, pubsub.Entry{Data: []byte("x")})
		wantErr(t, fmt.Sprintf("Append after %d to a log of 3", prev), err, pubsub.ErrConflict)
	}
	b, err := l.Bounds(ctx)
	noErr(t, "Bounds", err)
	if b.Last != 3 || b.Messages != 3 {
		t.Errorf("a refused append was stored: %+v", b)
	}
	mustAppend(t, l, 3, pubsub.Entry{Data: []byte("x")})
}

// appendRace: several writers, one message per sequence, each stored once.
func appendRace(t *testing.T, s pubsub.Store) {
	const writers, each = 4, 25
	ctx := timeout(t)
	l := newLog(t, s)
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			var prev pubsub.Seq
			for i := 0; i < each; {
				seq, err := l.Append(ctx, prev, pubsub.Entry{Data: fmt.Appendf(nil, "%d.%d", w, i)})
				switch {
				case err == nil && seq == prev+1:
					prev = seq
					i++
				case errors.Is(err, pubsub.ErrConflict):
					b, err := l.Bounds(ctx)
					if err != nil {
						t.Errorf("Bounds: %v", err)
						return
					}
					prev = b.Last
				default:
					t.Errorf("Append after %d: %d, %v", prev, seq, err)
					return
				}
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	next := map[string]int{}
	for _, m := range readAll(t, l, 1, writers*each) {
		w, i, _ := strings.Cut(string(m.Data), ".")
		if i != strconv.Itoa(next[w]) {
			t.Fatalf("sequence %d holds %s of writer %s, want %d", m.Seq, i, w, next[w])
		}
		next[w]++
	}
	b, err := l.Bounds(ctx)
	noErr(t, "Bounds", err)
	if b.Last != writers*each {
		t.Errorf("log ends at %d, want %d", b.Last, writers*each)
	}
}

// appendKeepsNothing: the entry is the caller's again once Append returned.
func appendKeepsNothing(t *testing.T, s pubsub.Store) {
	l := newLog(t, s)
	data, values := []byte("original"), []string{"original"}
	h := pubsub.Header{"H": values}
	mustAppend(t, l, 0, pubsub.Entry{Header: h, Data: data})
	copy(data, "scribble")
	values[0] = "scribble"
	h["New"] = []string{"x"}
	m := readAll(t, l, 1, 1)[0]
	if string(m.Data) != "original" || !sameHeader(m.Header, pubsub.Header{"H": {"original"}}) {
		t.Errorf("stored: %q %q", m.Data, m.Header)
	}
}

func appendTooLarge(t *testing.T, s pubsub.Store) {
	ctx := timeout(t)
	l := newLog(t, s)
	size := s.Info().MaxPayload
	_, err := l.Append(ctx, 0, pubsub.Entry{Data: make([]byte, size+1)})
	wantErr(t, "Append of max payload + 1", err, pubsub.ErrTooLarge)
	_, err = l.Append(ctx, 0, pubsub.Entry{Header: pubsub.Header{"H": {strings.Repeat("x", 1000)}}, Data: make([]byte, size)})
	wantErr(t, "Append of max payload and headers", err, pubsub.ErrTooLarge)
	_, err = l.Append(ctx, 0, pubsub.Entry{Header: pubsub.Header{"H": {strings.Repeat("x", 70_000)}}, Data: []byte("x")})
	wantErr(t, "Append of 70,000 bytes of headers", err, pubsub.ErrTooLarge)
	if !s.Connected() {
		t.Fatal("a message too large broke the connection")
	}
	largest := make([]byte, size-4096)
	largest[0], largest[len(largest)-1] = 1, 2
	mustAppend(t, l, 0, pubsub.Entry{Header: pubsub.Header{"H": {strings.Repeat("x", 3000)}}, Data: largest})
	if m := readAll(t, l, 1, 1)[0]; !bytes.Equal(m.Data, largest) {
		t.Errorf("the largest message came back with %d bytes", len(m.Data))
	}
}

func appendCancelled(t *testing.T, s pubsub.Store) {
	l := newLog(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := l.Append(ctx, 0, pubsub.Entry{Data: []byte("x")})
	wantErr(t, "Append with an ended context", err, context.Canceled)
	if errors.Is(err, pubsub.ErrOutcomeUnknown) {
		t.Errorf("nothing was sent, yet: %v", err)
	}
	mustAppend(t, l, 0, pubsub.Entry{Data: []byte("y")})
}

func read(t *testing.T, s pubsub.Store) {
	ctx := timeout(t)
	l := newLog(t, s)
	const n = 30
	fill(t, l, n)
	readAll(t, l, 1, n) // every replica asked from here on is likely to know all
	for _, c := range []struct {
		from, first pubsub.Seq
		limit       pubsub.Limit
		n           int
	}{
		{1, 1, pubsub.Limit{}, n},
		{0, 1, pubsub.Limit{}, n},
		{12, 12, pubsub.Limit{MaxMessages: 5}, 5},
		{12, 12, pubsub.Limit{MaxMessages: 1}, 1},
		{n, n, pubsub.Limit{}, 1},
		{n - 1, n - 1, pubsub.Limit{MaxMessages: 100}, 2},
		{5, 5, pubsub.Limit{MaxBytes: 1}, 1},
		{n + 1, 0, pubsub.Limit{}, 0},
		{1 << 40, 0, pubsub.Limit{}, 0},
	} {
		ms, err := l.Read(ctx, c.from, c.limit)
		noErr(t, "Read", err)
		if len(ms) != c.n {
			t.Errorf("Read from %d with %+v: %d messages, want %d", c.from, c.limit, len(ms), c.n)
			continue
		}
		for i, m := range ms {
			if m.Seq != c.first+pubsub.Seq(i) || !bytes.Equal(m.Data, number(m.Seq)) {
				t.Errorf("Read from %d: message %d is %d %q", c.from, i, m.Seq, m.Data)
			}
		}
	}
}

// readLarge: the byte limit is overshot by one message at most, and a first
// message beyond it is returned.
func readLarge(t *testing.T, s pubsub.Store) {
	ctx := timeout(t)
	l := newLog(t, s)
	const n, size, limit = 12, 100_000, 250_000
	for i := range n {
		mustAppend(t, l, pubsub.Seq(i), pubsub.Entry{Data: bytes.Repeat([]byte{byte(i)}, size)})
	}
	var from pubsub.Seq = 1
	for from <= n {
		ms, err := l.Read(ctx, from, pubsub.Limit{MaxBytes: limit})
		noErr(t, "Read", err)
		if len(ms) == 0 {
			t.Fatalf("Read from %d: nothing", from)
		}
		if len(ms) > 3 {
			t.Errorf("Read from %d: %d messages of %d bytes for a limit of %d", from, len(ms), size, limit)
		}
		for _, m := range ms {
			if m.Seq != from || len(m.Data) != size || m.Data[size-1] != byte(from-1) {
				t.Fatalf("message %d: sequence %d, %d bytes", from, m.Seq, len(m.Data))
			}
			from++
		}
	}
	ms, err := l.Read(ctx, 3, pubsub.Limit{MaxBytes: 10})
	noErr(t, "Read", err)
	if len(ms) != 1 {
		t.Errorf("Read with 10 bytes: %d messages, want 1", len(ms))
	}
}

func readWhileAppending(t *testing.T, s pubsub.Store) {
	l := newLog(t, s)
	const n = 200
	var wg sync.WaitGroup
	wg.Go(func() { fill(t, l, n) })
	for range 3 {
		wg.Go(func() {
			for _, m := range readAll(t, l, 1, n) {
				if !bytes.Equal(m.Data, number(m.Seq)) {
					t.Errorf("sequence %d holds %q", m.Seq, m.Data)
				}
			}
		})
	}
	wg.Wait()
}

func get(t *testing.T, s pubsub.Store) {
	ctx := timeout(t)
	l := newLog(t, s)
	fill(t, l, 5)
	for seq := pubsub.Seq(1); seq <= 5; seq++ {
		m, err := l.Get(ctx, seq)
		if err != nil || m.Seq != seq || !bytes.Equal(m.Data, number(seq)) {
			t.Errorf("Get %d: %d %q, %v", seq, m.Seq, m.Data, err)
		}
	}
	_, err := l.Get(ctx, 6)
	wantErr(t, "Get beyond the end", err, pubsub.ErrNotFound)
	noErr(t, "Trim", l.Trim(ctx, 3))
	_, err = l.Get(ctx, 2)
	wantErr(t, "Get of a trimmed message", err, pubsub.ErrNotFound)
	m, err := l.Get(ctx, 3)
	if err != nil || m.Seq != 3 {
		t.Errorf("Get 3: %+v, %v", m, err)
	}
}

func bounds(t *testing.T, s pubsub.Store) {
	ctx := timeout(t)
	l := newLog(t, s)
	fill(t, l, 4)
	b, err := l.Bounds(ctx)
	noErr(t, "Bounds", err)
	m, err := l.Get(ctx, 4)
	noErr(t, "Get", err)
	if b.First != 1 || b.Last != 4 || b.Messages != 4 || b.Bytes == 0 || b.Replicas != 1 || b.InSync != 1 {
		t.Errorf("Bounds: %+v", b)
	}
	if !b.LastTime.Equal(m.Time) {
		t.Errorf("LastTime is %v, the last message's time %v", b.LastTime, m.Time)
	}
}

func headers(t *testing.T, s pubsub.Store) {
	ctx := timeout(t)
	l := newLog(t, s)
	fill(t, l, 20)
	noErr(t, "Trim", l.Trim(ctx, 4))
	for _, c := range []struct{ from, to, first, last pubsub.Seq }{
		{4, 20, 4, 20},
		{1, 20, 4, 20},
		{0, 20, 4, 20},
		{7, 9, 7, 9},
		{7, 7, 7, 7},
		{20, 20, 20, 20},
		{18, 1 << 40, 18, 20},
		{21, 30, 0, 0},
		{9, 8, 0, 0},
		{1, 3, 0, 0},
	} {
		next := c.first
		noErr(t, "Headers", l.Headers(ctx, c.from, c.to, func(m pubsub.Message) error {
			if c.last == 0 || m.Seq != next || m.Seq > c.last || m.Data != nil || m.Size != len(number(m.Seq)) {
				t.Errorf("Headers %d to %d: message %+v", c.from, c.to, m)
			}
			next++
			return nil
		}))
		if c.last > 0 && next != c.last+1 {
			t.Errorf("Headers %d to %d ended before %d", c.from, c.to, next)
		}
	}
	stop := errors.New("stop here")
	n := 0
	err := l.Headers(ctx, 1, 20, func(pubsub.Message) error {
		if n++; n == 3 {
			return stop
		}
		return nil
	})
	wantErr(t, "Headers with a failing fn", err, stop)
	if n != 3 {
		t.Errorf("fn was called %d times, want 3", n)
	}
}

func headersLong(t *testing.T, s pubsub.Store) {
	ctx := timeout(t)
	l := newLog(t, s)
	const n = 1500
	h := pubsub.Header{"Filler": {strings.Repeat("f", 300)}}
	for i := range n {
		h["I"] = []string{strconv.Itoa(i + 1)}
		mustAppend(t, l, pubsub.Seq(i), pubsub.Entry{Header: h, Data: make([]byte, 1000)})
	}
	next := pubsub.Seq(1)
	noErr(t, "Headers", l.Headers(ctx, 1, n, func(m pubsub.Message) error {
		if m.Seq != next || m.Header.Get("I") != strconv.Itoa(int(m.Seq)) || m.Size != 1000 {
			return fmt.Errorf("want message %d, got %d with %q and size %d", next, m.Seq, m.Header.Get("I"), m.Size)
		}
		next++
		return nil
	}))
	if next != n+1 {
		t.Errorf("Headers ended before %d of %d", next, n)
	}
}

func trim(t *testing.T, s pubsub.Store) {
	ctx := timeout(t)
	l := newLog(t, s)
	fill(t, l, 10)
	check := func(what string, first, last pubsub.Seq) {
		t.Helper()
		b, err := l.Bounds(ctx)
		noErr(t, "Bounds", err)
		if b.First != first || b.Last != last || b.Messages != uint64(last-first+1) {
			t.Errorf("%s: bounds %+v, want %d to %d", what, b, first, last)
		}
	}
	for _, to := range []pubsub.Seq{0, 1} {
		noErr(t, "Trim", l.Trim(ctx, to))
		check(fmt.Sprintf("Trim to %d", to), 1, 10)
	}
	noErr(t, "Trim", l.Trim(ctx, 4))
	check("Trim to 4", 4, 10)
	noErr(t, "Trim", l.Trim(ctx, 2))
	check("Trim to 2 after that", 4, 10)
	ms, err := l.Read(ctx, 1, pubsub.Limit{MaxMessages: 2})
	noErr(t, "Read", err)
	if len(ms) != 2 || ms[0].Seq != 4 {
		t.Errorf("Read from 1 after a trim to 4: %+v", ms)
	}
	noErr(t, "Trim", l.Trim(ctx, 10))
	check("Trim to the last", 10, 10)
	for _, to := range []pubsub.Seq{11, 12, 1 << 40} {
		noErr(t, "Trim", l.Trim(ctx, to))
		check(fmt.Sprintf("Trim to %d, beyond the end", to), 10, 10)
	}
	mustAppend(t, l, 10, pubsub.Entry{Data: number(11)})
	check("an append after it", 10, 11)
}
