package contract

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/hanzoai/stream/pubsub"
)

func mustSet(t *testing.T, tb pubsub.Table, key, data string, expect pubsub.Rev) pubsub.Rev {
	t.Helper()
	rev, err := tb.Set(timeout(t), pubsub.Write{Key: key, Data: []byte(data), Expect: expect})
	if err != nil {
		t.Fatalf("Set %s at %d: %v", key, expect, err)
	}
	return rev
}

func mustDelete(t *testing.T, tb pubsub.Table, key string, expect pubsub.Rev) pubsub.Rev {
	t.Helper()
	rev, err := tb.Set(timeout(t), pubsub.Write{Key: key, Expect: expect, Delete: true})
	if err != nil {
		t.Fatalf("delete %s at %d: %v", key, expect, err)
	}
	return rev
}

func tableOpenTwice(t *testing.T, s pubsub.Store) {
	ctx := timeout(t)
	name := unique("table")
	a, err := s.Table(ctx, pubsub.TableConfig{Name: name, Replicas: 1})
	noErr(t, "Table", err)
	rev := mustSet(t, a, "k", "v", 0)
	b, err := s.Table(ctx, pubsub.TableConfig{Name: name, Replicas: 1})
	noErr(t, "Table again", err)
	v, err := b.Get(ctx, "k")
	if err != nil || v.Rev != rev || string(v.Data) != "v" {
		t.Errorf("Get through the second handle: %+v, %v", v, err)
	}
}

func tableValue(t *testing.T, s pubsub.Store) {
	ctx := timeout(t)
	tb := newTable(t, s)
	v, err := tb.Get(ctx, "k")
	wantErr(t, "Get of a key never written", err, pubsub.ErrNotFound)
	if v.Rev != 0 || v.Deleted {
		t.Errorf("a key never written: %+v", v)
	}
	h := pubsub.Header{"A": {"1", "2"}, "a": {"x y"}, pubsub.WriteIDHeader: {"w1"}}
	data := bytes.Repeat([]byte{0, 1, 254, '"'}, 100)
	rev, err := tb.Set(ctx, pubsub.Write{Key: "k", Data: data, Header: h})
	noErr(t, "Set", err)
	want := slices.Clone(data)
	clear(data)
	h["B"] = nil
	v, err = tb.Get(ctx, "k")
	noErr(t, "Get", err)
	if v.Key != "k" || v.Rev != rev || v.Deleted || v.Time.IsZero() || !bytes.Equal(v.Data, want) ||
		!sameHeader(v.Header, pubsub.Header{"A": {"1", "2"}, "a": {"x y"}, pubsub.WriteIDHeader: {"w1"}}) {
		t.Errorf("Get: %+v", v)
	}
	rev2 := mustSet(t, tb, "k", "", rev)
	if rev2 <= rev {
		t.Errorf("revision went from %d to %d", rev, rev2)
	}
	v, err = tb.Get(ctx, "k")
	if err != nil || len(v.Data) != 0 || v.Rev != rev2 || len(v.Header) != 0 {
		t.Errorf("Get of an empty value: %+v, %v", v, err)
	}
	rev3 := mustSet(t, tb, "other", "x", 0)
	if rev3 <= rev2 {
		t.Errorf("another key's revision is %d, not above %d", rev3, rev2)
	}
}

func tableConflict(t *testing.T, s pubsub.Store) {
	ctx := timeout(t)
	tb := newTable(t, s)
	_, err := tb.Set(ctx, pubsub.Write{Key: "k", Data: []byte("x"), Expect: 5})
	wantErr(t, "Set of a new key with an expectation", err, pubsub.ErrConflict)
	_, err = tb.Set(ctx, pubsub.Write{Key: "k", Expect: 5, Delete: true})
	wantErr(t, "delete of a new key with an expectation", err, pubsub.ErrConflict)
	first := mustSet(t, tb, "k", "1", 0)
	mustSet(t, tb, "unrelated", "u", 0)
	second := mustSet(t, tb, "k", "2", first) // another key's write is no conflict
	for _, expect := range []pubsub.Rev{0, first, second + 1} {
		_, err := tb.Set(ctx, pubsub.Write{Key: "k", Data: []byte("x"), Expect: expect})
		wantErr(t, fmt.Sprintf("Set at %d", expect), err, pubsub.ErrConflict)
		_, err = tb.Set(ctx, pubsub.Write{Key: "k", Expect: expect, Delete: true})
		wantErr(t, fmt.Sprintf("delete at %d", expect), err, pubsub.ErrConflict)
	}
	v, err := tb.Get(ctx, "k")
	if err != nil || v.Rev != second || string(v.Data) != "2" {
		t.Errorf("after conflicts: %+v, %v", v, err)
	}
}

func tableDelete(t *testing.T, s pubsub.Store) {
	ctx := timeout(t)
	tb := newTable(t, s)
	rev := mustSet(t, tb, "k", "1", 0)
	del, err := tb.Set(ctx, pubsub.Write{Key: "k", Expect: rev, Delete: true, Header: pubsub.Header{"Why": {"test"}}})
	noErr(t, "delete", err)
	if del <= rev {
		t.Errorf("marker's revision is %d, not above %d", del, rev)
	}
	v, err := tb.Get(ctx, "k")
	wantErr(t, "Get of a deleted key", err, pubsub.ErrNotFound)
	if v.Rev != del || !v.Deleted || len(v.Data) != 0 || v.Time.IsZero() || !sameHeader(v.Header, pubsub.Header{"Why": {"test"}}) {
		t.Errorf("delete marker: %+v", v)
	}
	// A key once written is never again as one never written.
	_, err = tb.Set(ctx, pubsub.Write{Key: "k", Data: []byte("x")})
	wantErr(t, "Set at 0 over a marker", err, pubsub.ErrConflict)
	again := mustSet(t, tb, "k", "2", del)
	v, err = tb.Get(ctx, "k")
	if err != nil || v.Rev != again || v.Deleted || string(v.Data) != "2" || len(v.Header) != 0 {
		t.Errorf("Get after writing over the marker: %+v, %v", v, err)
	}
	// A marker over nothing and a marker over a marker are writes like others.
	m1 := mustDelete(t, tb, "n", 0)
	m2 := mustDelete(t, tb, "n", m1)
	if m2 <= m1 {
		t.Errorf("second marker's revision is %d, not above %d", m2, m1)
	}
}

func tableKeys(t *testing.T, s pubsub.Store) {
	ctx := timeout(t)
	tb := newTable(t, s)
	keys := []string{"a", "A", "a.b", "a.b.0", "a=2Eb.0", "=", "=.=.0", "a_b-c", "=hff", "x=2A.0", "x=3E", pubsub.Token("ü/ >*.") + ".7"}
	revs := map[string]pubsub.Rev{}
	for _, k := range keys {
		revs[k] = mustSet(t, tb, k, "of "+k, 0)
	}
	for _, k := range keys {
		v, err := tb.Get(ctx, k)
		if err != nil || v.Key != k || v.Rev != revs[k] || string(v.Data) != "of "+k {
			t.Errorf("Get %s: %+v, %v", k, v, err)
		}
	}
}

// tableRace: compare-and-set loses no increment, neither does Put.
func tableRace(t *testing.T, s pubsub.Store) {
	const writers, each = 4, 15
	ctx := timeout(t)
	tb := newTable(t, s)
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for i := 0; i < each; {
				v, err := tb.Get(ctx, "n")
				if err != nil && !errors.Is(err, pubsub.ErrNotFound) {
					t.Errorf("Get: %v", err)
					return
				}
				n, _ := strconv.Atoi(string(v.Data))
				_, err = pubsub.Put(ctx, tb, pubsub.Write{Key: "n", Data: []byte(strconv.Itoa(n + 1)), Expect: v.Rev})
				switch {
				case err == nil:
					i++
				case !errors.Is(err, pubsub.ErrConflict):
					t.Errorf("Put: %v", err)
					return
				}
			}
		})
	}
	wg.Wait()
	v, err := tb.Get(ctx, "n")
	if want := strconv.Itoa(writers * each); err != nil || string(v.Data) != want {
		t.Errorf("counted to %s, want %s (%v)", v.Data, want, err)
	}
}

func tableTooLarge(t *testing.T, s pubsub.Store) {
	ctx := timeout(t)
	tb := newTable(t, s)
	_, err := tb.Set(ctx, pubsub.Write{Key: "k", Data: make([]byte, s.Info().MaxPayload+1)})
	wantErr(t, "Set of max payload + 1", err, pubsub.ErrTooLarge)
	if !s.Connected() {
		t.Fatal("a value too large broke the connection")
	}
	mustSet(t, tb, "k", "small", 0)
}

func tableCancelled(t *testing.T, s pubsub.Store) {
	tb := newTable(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := tb.Set(ctx, pubsub.Write{Key: "k", Data: []byte("x")})
	wantErr(t, "Set with an ended context", err, context.Canceled)
	if errors.Is(err, pubsub.ErrOutcomeUnknown) {
		t.Errorf("nothing was sent, yet: %v", err)
	}
	mustSet(t, tb, "k", "y", 0)
}

func putAll(t *testing.T, s pubsub.Store) {
	ctx := timeout(t)
	tb := newTable(t, s)
	const n = 150
	taken := mustSet(t, tb, "k7", "taken", 0)
	ws := make([]pubsub.Write, n)
	for i := range ws {
		ws[i] = pubsub.Write{Key: fmt.Sprintf("k%d", i), Data: []byte(strconv.Itoa(i))}
	}
	for i, r := range pubsub.PutAll(ctx, tb, ws) {
		if i == 7 {
			wantErr(t, "the write that conflicts", r.Err, pubsub.ErrConflict)
			continue
		}
		v, err := tb.Get(ctx, ws[i].Key)
		if r.Err != nil || err != nil || v.Rev != r.Rev || string(v.Data) != strconv.Itoa(i) {
			t.Errorf("write %d: %+v, then %+v, %v", i, r, v, err)
		}
	}
	if v, err := tb.Get(ctx, "k7"); err != nil || v.Rev != taken {
		t.Errorf("k7: %+v, %v", v, err)
	}
}

// collect runs a Scan and returns what it delivered.
func collect(t *testing.T, tb pubsub.Table, o pubsub.WatchOptions, until pubsub.Rev) (vs []pubsub.Value, synced int) {
	t.Helper()
	o.Synced = func() { synced++ }
	noErr(t, "Scan", tb.Scan(timeout(t), o, until, func(v pubsub.Value) error {
		if synced > 0 && until == 0 {
			t.Error("a value after Synced")
		}
		vs = append(vs, v)
		return nil
	}))
	return vs, synced
}

// lags reports whether a table may be read from a replica that does not know yet
// of the last write.
func lags(s pubsub.Store) bool { return s.Info().MaxReplicas > 1 }

func scan(t *testing.T, s pubsub.Store) {
	tb := newTable(t, s)
	if vs, synced := collect(t, tb, pubsub.WatchOptions{}, 0); len(vs) != 0 || synced != 1 {
		t.Errorf("scan of an empty table: %d values, Synced called %d times", len(vs), synced)
	}
	old := mustSet(t, tb, "g", "old", 0)
	mustSet(t, tb, "g.t.0", "g.t.0", 0)
	mustSet(t, tb, "g.t.1", "g.t.1", 0)
	mustSet(t, tb, "h.t.0", "h.t.0", 0)
	dead := mustSet(t, tb, "h", "dead", 0)
	mustSet(t, tb, "g", "g", old)
	mustDelete(t, tb, "h", dead)
	for _, c := range []struct {
		patterns []string
		keys     []string
	}{
		{nil, []string{"g.t.0", "g.t.1", "h.t.0", "g", "h"}},
		{[]string{">"}, []string{"g.t.0", "g.t.1", "h.t.0", "g", "h"}},
		{[]string{"g"}, []string{"g"}},
		{[]string{"g.>"}, []string{"g.t.0", "g.t.1"}},
		{[]string{"g", "g.>"}, []string{"g.t.0", "g.t.1", "g"}},
		{[]string{"*"}, []string{"g", "h"}},
		{[]string{"*.*.0"}, []string{"g.t.0", "h.t.0"}},
		{[]string{"nobody.>"}, nil},
		{[]string{"h.t.0", "h"}, []string{"h.t.0", "h"}},
	} {
		for _, headersOnly := range []bool{false, true} {
			vs, synced := collect(t, tb, pubsub.WatchOptions{Patterns: c.patterns, HeadersOnly: headersOnly}, 0)
			if lags(s) {
				vs = slices.DeleteFunc(vs, func(v pubsub.Value) bool { return v.Rev == old || v.Rev == dead })
			}
			var keys []string
			var last pubsub.Rev
			for _, v := range vs {
				keys = append(keys, v.Key)
				if v.Rev <= last {
					t.Errorf("scan %v: %s at revision %d after %d", c.patterns, v.Key, v.Rev, last)
				}
				last = v.Rev
				if v.Deleted != (v.Key == "h") || v.Time.IsZero() {
					t.Errorf("scan %v: %+v", c.patterns, v)
				}
				if want := v.Key; !headersOnly && !v.Deleted && string(v.Data) != want || headersOnly && v.Data != nil {
					t.Errorf("scan %v (headers only: %v): %s is %q", c.patterns, headersOnly, v.Key, v.Data)
				}
			}
			if !slices.Equal(keys, c.keys) || synced != 1 {
				t.Errorf("scan %v: keys %v, want %v; Synced called %d times", c.patterns, keys, c.keys, synced)
			}
		}
	}
}

func scanUntil(t *testing.T, s pubsub.Store) {
	ctx := timeout(t)
	tb := newTable(t, s)
	a := mustSet(t, tb, "g.a", "a", 0)
	b := mustSet(t, tb, "g.b", "b", 0)
	mustSet(t, tb, "x", "x", 0)
	vs, _ := collect(t, tb, pubsub.WatchOptions{Patterns: []string{"g.>"}}, b)
	if len(vs) != 2 || vs[1].Rev != b {
		t.Errorf("scan until a present revision: %+v", vs)
	}
	vs, _ = collect(t, tb, pubsub.WatchOptions{Patterns: []string{"g.>"}}, a)
	if len(vs) == 0 || vs[0].Rev != a {
		t.Errorf("scan until the first revision: %+v", vs)
	}
	// It waits for a revision still to come, past other keys' changes.
	synced, got := make(chan struct{}), make(chan []string, 1)
	var once sync.Once
	go func() {
		var keys []string
		err := tb.Scan(ctx, pubsub.WatchOptions{Patterns: []string{"g.>"}, Synced: func() { once.Do(func() { close(synced) }) }}, b+3, func(v pubsub.Value) error {
			keys = append(keys, v.Key)
			return nil
		})
		if err != nil {
			t.Errorf("Scan: %v", err)
		}
		got <- keys
	}()
	receive(t, "Synced", synced)
	mustSet(t, tb, "x2", "x", 0) // b+2: another key
	mustSet(t, tb, "g.c", "c", 0)
	if keys := receive(t, "the scan's end", got); !slices.Equal(keys, []string{"g.a", "g.b", "g.c"}) {
		t.Errorf("scan until a later revision: %v", keys)
	}
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	err := tb.Scan(short, pubsub.WatchOptions{}, 1<<40, func(pubsub.Value) error { return nil })
	if err == nil {
		t.Error("a scan that saw no such revision ended without error")
	}
}

func scanError(t *testing.T, s pubsub.Store) {
	tb := newTable(t, s)
	for i := range 5 {
		mustSet(t, tb, fmt.Sprintf("k%d", i), "v", 0)
	}
	stop := errors.New("stop here")
	n := 0
	err := tb.Scan(timeout(t), pubsub.WatchOptions{}, 0, func(pubsub.Value) error {
		if n++; n == 2 {
			return stop
		}
		return nil
	})
	wantErr(t, "Scan with a failing fn", err, stop)
	if n != 2 {
		t.Errorf("fn was called %d times, want 2", n)
	}
}

// watching runs a Watch until the test's end.
type watching struct {
	values chan pubsub.Value
	synced chan struct{}
	end    context.CancelFunc
	done   chan error
}

func startWatch(t *testing.T, tb pubsub.Table, o pubsub.WatchOptions) *watching {
	t.Helper()
	w := &watching{values: make(chan pubsub.Value, 1000), synced: make(chan struct{}, 10), done: make(chan error, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	w.end = cancel
	o.Synced = func() { w.synced <- struct{}{} }
	go func() {
		w.done <- tb.Watch(ctx, o, func(v pubsub.Value) error { w.values <- v; return nil })
	}()
	t.Cleanup(cancel)
	return w
}

func watchChanges(t *testing.T, s pubsub.Store) {
	tb := newTable(t, s)
	empty := startWatch(t, tb, pubsub.WatchOptions{})
	receive(t, "Synced on an empty table", empty.synced)
	a := mustSet(t, tb, "a", "1", 0)
	b := mustSet(t, tb, "b", "1", 0)
	a2 := mustDelete(t, tb, "a", a)
	w := startWatch(t, tb, pubsub.WatchOptions{})
	receive(t, "Synced", w.synced)
	if n := len(w.values); n != 2 && !(lags(s) && n == 3) {
		t.Errorf("%d values before Synced, want 2", len(w.values))
	}
	b2 := mustSet(t, tb, "b", "2", b)
	a3 := mustSet(t, tb, "a", "3", a2)
	type change struct {
		key     string
		rev     pubsub.Rev
		deleted bool
	}
	want := []change{{"b", b, false}, {"a", a2, true}, {"b", b2, false}, {"a", a3, false}}
	for i, c := range want {
		v := receive(t, fmt.Sprintf("change %d", i), w.values)
		if i == 0 && v.Rev == a && lags(s) {
			v = receive(t, "change 0", w.values)
		}
		if (change{v.Key, v.Rev, v.Deleted}) != c || v.Time.IsZero() {
			t.Errorf("change %d: %+v, want %+v", i, v, c)
		}
	}
	// The other watch may have skipped what was overwritten, but ends the same.
	var last pubsub.Rev
	for last != a3 {
		v := receive(t, "change", empty.values)
		if v.Rev <= last {
			t.Errorf("revision %d after %d", v.Rev, last)
		}
		last = v.Rev
	}
	w.end()
	if err := receive(t, "end of the watch", w.done); err != nil {
		t.Errorf("a watch whose context ended: %v", err)
	}
	if len(w.synced) != 0 {
		t.Error("Synced was called again")
	}
}

func watchPatterns(t *testing.T, s pubsub.Store) {
	tb := newTable(t, s)
	mustSet(t, tb, "id.0", "record", 0)
	mustSet(t, tb, "id.0.s.1", "chunk", 0)
	w := startWatch(t, tb, pubsub.WatchOptions{Patterns: []string{"*.*"}, HeadersOnly: true})
	receive(t, "Synced", w.synced)
	mustSet(t, tb, "id.0.s.2", "chunk", 0)
	mustSet(t, tb, "id.1", "record", 0)
	for _, key := range []string{"id.0", "id.1"} {
		if v := receive(t, key, w.values); v.Key != key || v.Data != nil {
			t.Errorf("got %+v, want %s without data", v, key)
		}
	}
	if len(w.values) != 0 {
		t.Errorf("%d more values", len(w.values))
	}
}

func watchError(t *testing.T, s pubsub.Store) {
	tb := newTable(t, s)
	mustSet(t, tb, "k", "v", 0)
	stop := errors.New("stop here")
	err := tb.Watch(timeout(t), pubsub.WatchOptions{}, func(pubsub.Value) error { return stop })
	wantErr(t, "Watch with a failing fn", err, stop)
}
