package contract

import (
	"fmt"
	"slices"
	"testing"

	"github.com/hanzoai/stream/pubsub"
)

// tableRead: a table read by revision shows each key's last value in order, with
// holes where values were overwritten.
func tableRead(t *testing.T, s pubsub.Store) {
	ctx := timeout(t)
	tb := newTable(t, s)
	b, err := tb.Bounds(ctx)
	noErr(t, "Bounds of an empty table", err)
	if b.First != 1 || b.Last != 0 || b.Messages != 0 {
		t.Errorf("bounds of an empty table: %+v", b)
	}
	for _, from := range []pubsub.Rev{0, 1, 7} {
		if vs, err := tb.Read(ctx, from, pubsub.Limit{}); err != nil || len(vs) != 0 {
			t.Errorf("Read of an empty table from %d: %d values, %v", from, len(vs), err)
		}
	}

	a1 := mustSet(t, tb, "a", "a1", 0)     // 1, overwritten
	b1 := mustSet(t, tb, "b.x.0", "b1", 0) // 2
	a2 := mustSet(t, tb, "a", "a2", a1)    // 3, overwritten
	c1 := mustSet(t, tb, "c", "c1", 0)     // 4, overwritten
	a3, err := tb.Set(ctx, pubsub.Write{Key: "a", Data: []byte("a3"), Expect: a2, Header: pubsub.Header{"H": {"1", "2"}}})
	noErr(t, "Set", err)               // 5
	mustSet(t, tb, "empty=2E", "", 0)  // 6
	c2 := mustDelete(t, tb, "c", c1)   // 7
	d1 := mustSet(t, tb, "d", "d1", 0) // 8
	if b1 != 2 || a3 != 5 || c2 != 7 || d1 != 8 {
		t.Fatalf("revisions %d, %d, %d, %d", b1, a3, c2, d1)
	}
	all := []pubsub.Value{
		{Key: "b.x.0", Rev: 2, Data: []byte("b1")},
		{Key: "a", Rev: 5, Data: []byte("a3"), Header: pubsub.Header{"H": {"1", "2"}}},
		{Key: "empty=2E", Rev: 6},
		{Key: "c", Rev: 7, Deleted: true},
		{Key: "d", Rev: 8, Data: []byte("d1")},
	}
	for from := pubsub.Rev(0); from <= 10; from++ {
		want := slices.DeleteFunc(slices.Clone(all), func(v pubsub.Value) bool { return v.Rev < from })
		got, err := tb.Read(ctx, from, pubsub.Limit{})
		sameValues(t, fmt.Sprintf("Read from %d", from), got, want)
		noErr(t, "Read", err)
	}
	b, err = tb.Bounds(ctx)
	noErr(t, "Bounds", err)
	if b.First != 2 || b.Last != 8 || b.Messages != 5 || b.Bytes == 0 || b.LastTime.IsZero() || b.Replicas < 1 || b.InSync < 1 {
		t.Errorf("bounds: %+v", b)
	}
}

func sameValues(t *testing.T, what string, got, want []pubsub.Value) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d values, want %d: %+v", what, len(got), len(want), got)
	}
	for i, v := range got {
		w := want[i]
		if v.Key != w.Key || v.Rev != w.Rev || v.Deleted != w.Deleted || string(v.Data) != string(w.Data) || !sameHeader(v.Header, w.Header) || v.Time.IsZero() {
			t.Errorf("%s: value %d is %+v, want %+v", what, i, v, w)
		}
	}
}

// tableReadLimits: a reader that goes on from the last revision sees all, whatever
// the limits and however large the holes.
func tableReadLimits(t *testing.T, s pubsub.Store) {
	ctx := timeout(t)
	tb := newTable(t, s)
	var hot pubsub.Rev
	want := []string{}
	for i := range 40 {
		for range i % 7 {
			hot = mustSet(t, tb, "hot", "h", hot)
		}
		key := fmt.Sprintf("k%d", i)
		mustSet(t, tb, key, fmt.Sprintf("%0*d", 10+i*100, i), 0)
		want = append(want, key)
	}
	hot = mustSet(t, tb, "hot", "last", hot)
	want = append(want, "hot")
	for _, limit := range []pubsub.Limit{{MaxMessages: 1}, {MaxMessages: 7}, {MaxBytes: 1}, {MaxBytes: 5000}, {MaxBytes: 5000, MaxMessages: 3}, {}} {
		var keys []string
		for next := pubsub.Rev(1); next <= hot; {
			vs, err := tb.Read(ctx, next, limit)
			noErr(t, "Read", err)
			if len(vs) == 0 || limit.MaxMessages > 0 && len(vs) > limit.MaxMessages || limit.MaxBytes == 1 && len(vs) > 1 {
				t.Fatalf("Read from %d within %+v: %d values", next, limit, len(vs))
			}
			for _, v := range vs {
				if v.Rev < next {
					t.Fatalf("revision %d where %d or more was asked for", v.Rev, next)
				}
				keys, next = append(keys, v.Key), v.Rev+1
			}
		}
		if !slices.Equal(keys, want) {
			t.Errorf("within %+v: %v", limit, keys)
		}
	}
}

// watchAfter: what is known already is not delivered again.
func watchAfter(t *testing.T, s pubsub.Store) {
	tb := newTable(t, s)
	a := mustSet(t, tb, "a", "1", 0)
	b := mustSet(t, tb, "b", "1", 0)
	c := mustSet(t, tb, "c", "1", 0)
	for after, n := range map[pubsub.Rev]int{0: 3, a: 2, b: 1, c: 0} {
		if vs, synced := collect(t, tb, pubsub.WatchOptions{After: after}, 0); len(vs) != n || synced != 1 || n > 0 && vs[0].Rev != after+1 {
			t.Errorf("scan after %d: %d values, Synced %d times, %+v", after, len(vs), synced, vs)
		}
	}
	w := startWatch(t, tb, pubsub.WatchOptions{After: b, HeadersOnly: true})
	end := startWatch(t, tb, pubsub.WatchOptions{After: c})
	receive(t, "Synced", w.synced)
	receive(t, "Synced at the end", end.synced)
	d := mustDelete(t, tb, "a", a)
	for _, want := range []pubsub.Rev{c, d} {
		if v := receive(t, "a value", w.values); v.Rev != want || v.Data != nil {
			t.Errorf("watch after %d: %+v, want revision %d", b, v, want)
		}
	}
	if v := receive(t, "a change", end.values); v.Rev != d || !v.Deleted {
		t.Errorf("watch after %d: %+v, want revision %d", c, v, d)
	}
}
