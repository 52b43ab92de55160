package compact

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/hanzoai/stream/compress"
	"github.com/hanzoai/stream/serde"
	"github.com/hanzoai/stream/types"
)

// TestFilter: one pass over short logs, rule by rule.
func TestFilter(t *testing.T) {
	t.Parallel()
	const now, retention = 1_000_000, 1000
	aborted := func(pid int64, o types.Offset) bool { return pid == 9 && o < 10 }
	for name, c := range map[string]struct {
		log     [][]byte
		env     Env
		want    string // records
		ranges  string // of batches
		stats   Stats  // In, Out and bytes are not compared
		horizon int64
	}{
		"the last value of each key": {
			log:  [][]byte{data{base: 0, records: []string{"a=1", "b=1", "a=2"}}.bytes(t), data{base: 3, records: []string{"b=2", "c=1"}}.bytes(t)},
			want: "2:a=2 3:b=2 4:c=1", ranges: "0-2 3-4", stats: Stats{Superseded: 2}},
		"a batch without anything left": {
			log:  [][]byte{data{base: 0, records: []string{"a=1"}}.bytes(t), data{base: 1, records: []string{"a=2"}}.bytes(t)},
			want: "1:a=2", ranges: "1-1", stats: Stats{Superseded: 1}},
		"an empty value is a value": {
			log:  [][]byte{data{base: 0, records: []string{"a="}}.bytes(t)},
			want: "0:a=", ranges: "0-0"},
		"an empty key is a key": {
			log:  [][]byte{withEmptyKey(0), withEmptyKey(1)},
			want: "1:=x", ranges: "1-1", stats: Stats{Superseded: 1}},
		"records without key go": {
			log:  [][]byte{data{base: 0, records: []string{"=x", "a=1", "=y"}}.bytes(t)},
			want: "1:a=1", ranges: "0-2", stats: Stats{Keyless: 2}},
		"a tombstone gets a horizon": {
			log:  [][]byte{data{base: 0, records: []string{"a=1", "b=1"}, time: 5}.bytes(t), data{base: 2, records: []string{"a"}, time: 6}.bytes(t)},
			want: "1:b=1 2:a", ranges: "0-1 2-2", stats: Stats{Superseded: 1}, horizon: now + retention},
		"an older tombstone goes at once": {
			log:  [][]byte{data{base: 0, records: []string{"a", "a=1"}}.bytes(t)},
			want: "1:a=1", ranges: "0-1", stats: Stats{Superseded: 1}},
		"aborted records go and are no last value": {
			log: [][]byte{data{base: 0, records: []string{"a=1"}}.bytes(t), data{base: 1, records: []string{"a=2", "b=1"}, pid: 9, attrs: transactional}.bytes(t), marker(3, 1, 9, false)},
			env: Env{Aborted: aborted}, want: "0:a=1 3:\x00\x00\x00\x00=\x00\x00\x00\x00\x00\x01", ranges: "0-0 3-3", stats: Stats{Aborted: 2}},
		"committed records stay with their marker": {
			log: [][]byte{data{base: 11, records: []string{"a=2"}, pid: 9, attrs: transactional}.bytes(t), marker(12, 1, 9, true)},
			env: Env{Aborted: aborted}, want: "11:a=2 12:\x00\x00\x00\x01=\x00\x00\x00\x00\x00\x01", ranges: "11-11 12-12"},
		"a marker whose transaction went in this pass stays as it is": {
			log:  [][]byte{data{base: 11, records: []string{"a=2"}, pid: 9, attrs: transactional}.bytes(t), marker(12, 1, 9, true), data{base: 13, records: []string{"a=3"}}.bytes(t)},
			want: "12:\x00\x00\x00\x01=\x00\x00\x00\x00\x00\x01 13:a=3", ranges: "12-12 13-13", stats: Stats{Superseded: 1}},
		"a marker whose transaction is gone gets a horizon": {
			log:  [][]byte{marker(12, 1, 9, true)},
			want: "12:\x00\x00\x00\x01=\x00\x00\x00\x00\x00\x01", ranges: "12-12", horizon: now + retention},
		"another producer's records do not keep a marker": {
			log:  [][]byte{data{base: 11, records: []string{"a=2"}, pid: 8, attrs: transactional}.bytes(t), marker(12, 1, 9, true)},
			want: "11:a=2 12:\x00\x00\x00\x01=\x00\x00\x00\x00\x00\x01", ranges: "11-11 12-12", horizon: now + retention},
		"the last batch of a live producer": {
			log: [][]byte{data{base: 0, records: []string{"a=1", "a=2"}, pid: 5, seq: 3}.bytes(t), data{base: 2, records: []string{"a=3"}}.bytes(t)},
			env: Env{LastOf: lastOf(map[int64]types.Offset{5: 0})}, want: "2:a=3", ranges: "0-1 2-2", stats: Stats{Superseded: 2}},
		"an aborted last batch of a live producer": {
			log: [][]byte{data{base: 0, records: []string{"a=1", "a=2"}, pid: 9, attrs: transactional}.bytes(t)},
			env: Env{LastOf: lastOf(map[int64]types.Offset{9: 0}), Aborted: aborted}, ranges: "0-1", stats: Stats{Aborted: 2}},
		"an earlier batch of a live producer": {
			log: [][]byte{data{base: 0, records: []string{"a=1", "a=2"}, pid: 5}.bytes(t), data{base: 2, records: []string{"a=3"}, pid: 5, seq: 2}.bytes(t)},
			env: Env{LastOf: lastOf(map[int64]types.Offset{5: 2})}, want: "2:a=3", ranges: "2-2", stats: Stats{Superseded: 2}},
		"the last batch of the pass": {
			log: [][]byte{data{base: 0, records: []string{"a=1"}}.bytes(t), data{base: 1, records: []string{"=x"}}.bytes(t)},
			env: Env{End: 2}, want: "0:a=1", ranges: "0-0 1-1", stats: Stats{Keyless: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, codec := range []compress.Codec{compress.None, compress.Gzip, compress.Snappy, compress.LZ4, compress.Zstd} {
				log := make([][]byte, len(c.log))
				for i, b := range c.log {
					log[i] = recoded(t, b, codec)
				}
				e := c.env
				e.Now, e.DeleteRetention = now, retention
				out, s, horizon := pass(t, NewKeys(1<<16), &e, log)
				if got := brief(records(t, join(out))); got != c.want {
					t.Errorf("%v: records %q, want %q", codec, got, c.want)
				}
				var ranges []string
				for _, b := range out {
					b := serde.Batch(b)
					ranges = append(ranges, fmt.Sprintf("%d-%d", b.BaseOffset(), b.LastOffset()))
					if b.Count() > 0 && !b.Control() && b.Codec() != int8(codec) {
						t.Errorf("codec %d", b.Codec())
					}
				}
				if got := strings.Join(ranges, " "); got != c.ranges {
					t.Errorf("%v: ranges %s, want %s", codec, got, c.ranges)
				}
				if s.In-s.Out != s.Superseded+s.Tombstones+s.Aborted+s.Keyless+s.Markers {
					t.Errorf("%v: sums of %+v", codec, s)
				}
				if int(s.BytesIn) != len(join(log)) || int(s.BytesOut) != len(join(out)) {
					t.Errorf("%v: bytes of %+v", codec, s)
				}
				s.In, s.Out, s.BytesIn, s.BytesOut = 0, 0, 0, 0
				if s != c.stats {
					t.Errorf("%v: %+v, want %+v", codec, s, c.stats)
				}
				if horizon != c.horizon {
					t.Errorf("%v: horizon %d, want %d", codec, horizon, c.horizon)
				}
			}
		})
	}
}

func withEmptyKey(base int64) []byte {
	return serde.PlainBatch(base, 1, []byte{}, []byte("x"), nil)
}

// recoded is a data batch with another codec.
func recoded(t testing.TB, p []byte, c compress.Codec) []byte {
	b := serde.Batch(p)
	if b.Control() {
		return p
	}
	encoded, err := compress.Encode(nil, c, b.Records())
	if err != nil {
		t.Fatal(err)
	}
	return b.WithRecords(int8(c), encoded)
}

// TestTombstonesThatAreNotCovered: where the memory for keys ends within a batch, the
// tombstones behind that have deleted nothing yet, so their time has not begun.
func TestTombstonesThatAreNotCovered(t *testing.T) {
	t.Parallel()
	values, tombstones := data{base: 0, records: []string{"a=1", "b=1"}}.bytes(t), data{base: 2, records: []string{"a", "b"}}.bytes(t)
	e := Env{Now: 1000, DeleteRetention: 500, Upto: 3}
	k := NewKeys(1 << 12)
	for _, b := range [][]byte{values, data{base: 2, records: []string{"a"}}.bytes(t)} {
		if _, err := Index(k, &e, b); err != nil {
			t.Fatal(err)
		}
	}
	left, _, horizon, err := Filter(k, &e, values)
	if got := brief(records(t, left)); err != nil || horizon != 0 || got != "1:b=1" {
		t.Fatalf("%q, horizon %d, %v", got, horizon, err)
	}
	same, _, horizon, err := Filter(k, &e, tombstones)
	if err != nil || horizon != 0 || !bytes.Equal(same, tombstones) {
		t.Fatalf("% x, horizon %d, %v", same, horizon, err)
	}
	e.Now = 2000
	out, s, horizon := pass(t, k, &e, [][]byte{left, same})
	if got := brief(records(t, join(out))); got != "2:a 3:b" || horizon != 2500 || s.Tombstones > 0 {
		t.Fatalf("%q, horizon %d, %+v", got, horizon, s)
	}
	e.Now = 2500
	if out, s, _ = pass(t, k, &e, out); len(out) > 0 || s.Tombstones != 2 {
		t.Fatalf("%d batches, %+v", len(out), s)
	}
}

// TestFilterKeepsFields: what a batch written anew has of the one before.
func TestFilterKeepsFields(t *testing.T) {
	t.Parallel()
	for _, attrs := range []int16{0, transactional, logAppendTime, transactional | logAppendTime} {
		d := data{base: 1 << 33, records: []string{"a=1", "b=1", "c", "a=2", "d=1"}, time: 5000, pid: 77, epoch: 3, seq: math.MaxInt32 - 1, attrs: attrs, codec: compress.LZ4}
		old := serde.Batch(d.bytes(t))
		if attrs&logAppendTime != 0 {
			old.SetTimes(123456, true)
		}
		e := Env{Now: 99_000, DeleteRetention: 500}
		k := NewKeys(1 << 12)
		if _, err := Index(k, &e, old); err != nil {
			t.Fatal(err)
		}
		k.Add([]byte("d"), types.Offset(old.LastOffset()+5)) // so that the last record goes
		e.Upto = k.Upto()
		out, s, horizon, err := Filter(k, &e, old)
		if err != nil {
			t.Fatal(err)
		}
		b := batches(t, out)[0]
		if b.BaseOffset() != old.BaseOffset() || b.LastOffset() != old.LastOffset() || b.LeaderEpoch() != 7 || b.ProducerID() != 77 || b.ProducerEpoch() != 3 ||
			b.BaseSequence() != old.BaseSequence() || b.Attributes() != old.Attributes()|0x40 || b.Count() != 3 || s.Out != 3 {
			t.Errorf("%#x: % x, was % x", attrs, b[:serde.BatchHeaderSize], old[:serde.BatchHeaderSize])
		}
		if h, ok := b.DeleteHorizon(); !ok || h != 99_500 || horizon != h {
			t.Errorf("horizon %d, %v, %d", h, ok, horizon)
		}
		all := records(t, old)
		if got, want := records(t, b), []one{all[1], all[2], all[3]}; fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%#x: %v, want %v", attrs, got, want)
		}
		if want := int64(5003); attrs&logAppendTime == 0 && b.MaxTimestamp() != want {
			t.Errorf("max timestamp %d, want %d", b.MaxTimestamp(), want)
		}
		// Again before the horizon: not a byte changes; at the horizon the
		// tombstone goes.
		e.Restart()
		e.Now = 99_499
		if again, _, h, err := Filter(k, &e, b); err != nil || !bytes.Equal(again, b) || &again[0] != &b[0] || h != 99_500 {
			t.Errorf("%#x: again before the horizon: % x, %d, %v", attrs, again, h, err)
		}
		e.Now = 99_500
		last, s, h, err := Filter(k, &e, b)
		if err != nil || s.Tombstones != 1 || h != 0 {
			t.Fatalf("%#x: %+v, %d, %v", attrs, s, h, err)
		}
		if got, want := records(t, last), []one{all[1], all[3]}; fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%#x: %v, want %v", attrs, got, want)
		}
		// A batch without records says who wrote it.
		for _, key := range []string{"a", "b", "c"} {
			k.Add([]byte(key), types.Offset(old.LastOffset()+5))
		}
		e.LastOf = lastOf(map[int64]types.Offset{77: types.Offset(old.BaseOffset())})
		none, s, h, err := Filter(k, &e, last)
		if err != nil || s.Out != 0 || h != 0 || len(none) != serde.BatchHeaderSize {
			t.Fatalf("%+v, %d, %v, % x", s, h, err, none)
		}
		b = batches(t, none)[0]
		if b.BaseOffset() != old.BaseOffset() || b.LastOffset() != old.LastOffset() || b.LeaderEpoch() != 7 || b.ProducerID() != 77 || b.ProducerEpoch() != 3 ||
			b.BaseSequence() != old.BaseSequence() || b.Attributes() != attrs || b.Count() != 0 || b.BaseTimestamp() != -1 || b.MaxTimestamp() != serde.Batch(last).MaxTimestamp() {
			t.Errorf("% x", b)
		}
		if again, _, _, err := Filter(k, &e, none); err != nil || &again[0] != &none[0] {
			t.Errorf("an empty batch again: % x, %v", again, err)
		}
		e.LastOf = nil
		if gone, _, _, err := Filter(k, &e, none); err != nil || gone != nil {
			t.Errorf("an empty batch of nobody: % x, %v", gone, err)
		}
	}
}

// TestMarkers: markers go when their transaction is gone and their horizon has
// passed, and not before.
func TestMarkers(t *testing.T) {
	t.Parallel()
	for _, commit := range []bool{true, false} {
		log := [][]byte{data{base: 0, records: []string{"a=1"}, pid: 9, attrs: transactional}.bytes(t), marker(1, 50, 9, commit), data{base: 2, records: []string{"a=2"}}.bytes(t)}
		e := Env{DeleteRetention: 100, Aborted: func(int64, types.Offset) bool { return !commit }}
		k := NewKeys(1 << 12)
		for i, c := range []struct {
			now, horizon int64
			batches      int
		}{
			{1000, 0, 2},    // data goes, the marker stays untouched
			{2000, 2100, 2}, // gets a horizon
			{2099, 2100, 2},
			{2100, 0, 1},
			{2101, 0, 1},
		} {
			e.Now = c.now
			out, _, horizon := pass(t, k, &e, log)
			if len(out) != c.batches || horizon != c.horizon {
				t.Errorf("commit %v, pass %d: %d batches, horizon %d", commit, i, len(out), horizon)
			}
			if len(out) == 2 {
				if kind, _, err := serde.ParseControl(out[0]); err != nil || (kind == serde.ControlCommit) != commit || serde.Batch(out[0]).MaxTimestamp() != 50 {
					t.Errorf("marker: %v, %v", kind, err)
				}
				if r := records(t, out[0]); r[0].time != 50 {
					t.Errorf("marker's time: %+v", r)
				}
			}
			log = out
		}
		// A live producer whose last batch is a marker: it stays, empty.
		m := marker(1, 50, 9, commit)
		e = Env{Now: 1000, LastOf: lastOf(map[int64]types.Offset{9: 1})}
		out, _, _ := pass(t, k, &e, [][]byte{m})
		out, s, _ := pass(t, k, &e, out)
		if len(out) != 1 || s.Markers != 1 || !serde.Batch(out[0]).Control() || serde.Batch(out[0]).Count() != 0 {
			t.Errorf("%v, %+v", out, s)
		}
		e.LastOf = nil
		if out, _, _ = pass(t, k, &e, out); len(out) != 0 {
			t.Errorf("%v", out)
		}
	}
	// Kinds that nobody knows stay.
	b := serde.ControlBatch(1, 50, 9, 0, 77, 1)
	e := Env{Now: 1000}
	for range 3 {
		if out, _, h, err := Filter(NewKeys(0), &e, b); err != nil || !bytes.Equal(out, b) || h != 0 {
			t.Errorf("% x, %d, %v", out, h, err)
		}
	}
}

// TestUpto: what the map does not cover stays, with key or without.
func TestUpto(t *testing.T) {
	t.Parallel()
	b := data{base: 0, records: []string{"a=1", "=x", "a=2", "=y", "a=3"}}.bytes(t)
	k, e := NewKeys(1<<12), Env{}
	if full, err := Index(k, &e, b); full || err != nil || k.Upto() != 5 || k.Len() != 1 {
		t.Fatalf("%v, %v, %d", full, err, k.Upto())
	}
	for upto, want := range []string{"0:a=1 1:=x 2:a=2 3:=y 4:a=3", "1:=x 2:a=2 3:=y 4:a=3", "2:a=2 3:=y 4:a=3", "3:=y 4:a=3", "4:a=3", "4:a=3"} {
		e.Upto = types.Offset(upto)
		out, _, _, err := Filter(k, &e, b)
		if err != nil {
			t.Fatal(err)
		}
		if got := brief(records(t, out)); got != want {
			t.Errorf("up to %d: %s, want %s", upto, got, want)
		}
		if upto == 0 && &out[0] != &b[0] {
			t.Error("the batch was copied")
		}
	}
	e.Upto, e.From = 5, 3
	k.Reset()
	if _, err := Index(k, &e, b); err != nil {
		t.Fatal(err)
	}
	k2, e2 := NewKeys(1<<12), Env{From: 5}
	if _, err := Index(k2, &e2, b); err != nil || k2.Len() != 0 || k2.Upto() != 5 {
		t.Errorf("from behind the batch: %d keys up to %d, %v", k2.Len(), k2.Upto(), err)
	}
}

// TestFull: a map that is full ends a pass, within a batch if need be; several
// passes come to the same end as one.
func TestFull(t *testing.T) {
	t.Parallel()
	var log [][]byte
	base := int64(0)
	for i := range 40 {
		var rs []string
		for j := range 5 {
			rs = append(rs, fmt.Sprintf("%d=%d", (i*7+j*3)%50, i))
		}
		log = append(log, data{base: base, records: rs, codec: compress.Codec(i % 5)}.bytes(t))
		base += 5
	}
	e := Env{}
	want, _, _ := pass(t, NewKeys(1<<16), &e, log)
	for _, budget := range []int{0, 50, 100, 200, 500, 1000} {
		got, passes := log, 0
		e := Env{}
		k := NewKeys(budget)
		for ; e.Upto < types.Offset(base); passes++ {
			before := e.Upto
			got, _, _ = pass(t, k, &e, got)
			if e.Upto <= before {
				t.Fatalf("budget %d: stuck at %d", budget, e.Upto)
			}
			e.From = e.Upto
		}
		if brief(records(t, join(got))) != brief(records(t, join(want))) {
			t.Errorf("budget %d: %s, want %s", budget, brief(records(t, join(got))), brief(records(t, join(want))))
		}
		t.Logf("budget %d: %d passes", budget, passes)
	}
}

// TestSplit: a batch that grows too large becomes two that cover the same
// offsets.
func TestSplit(t *testing.T) {
	t.Parallel()
	for _, codec := range []compress.Codec{compress.None, compress.Gzip, compress.Zstd} {
		var rs []string
		for i := range 40 {
			rs = append(rs, fmt.Sprintf("key-%d", i))
			if i%13 == 0 {
				rs = append(rs, fmt.Sprintf("key-%d=v", i))
			}
		}
		old := serde.Batch(data{base: 10, records: rs, time: 1000, pid: 3, seq: math.MaxInt32 - 20, codec: codec}.bytes(t))
		k, e := NewKeys(1<<12), Env{Now: 1 << 41, DeleteRetention: 5, MaxBatch: 1}
		if _, err := Index(k, &e, old); err != nil {
			t.Fatal(err)
		}
		e.Upto = k.Upto()
		whole, _, _, err := Filter(k, &Env{Now: e.Now, DeleteRetention: 5, Upto: e.Upto}, old)
		if err != nil || len(batches(t, whole)) != 1 {
			t.Fatal(err)
		}
		out, _, h, err := Filter(k, &e, old)
		if err != nil || h != 1<<41+5 {
			t.Fatal(err, h)
		}
		bs := batches(t, out)
		if len(whole) > len(old) && len(bs) < 2 || codec == compress.None && len(whole) <= len(old) {
			t.Errorf("%v: %d batches of %d bytes, was %d", codec, len(bs), len(out), len(old))
		}
		if fmt.Sprint(records(t, out)) != fmt.Sprint(records(t, whole)) {
			t.Errorf("%v: %v, want %v", codec, records(t, out), records(t, whole))
		}
		next := old.BaseOffset()
		for _, b := range bs {
			if b.BaseOffset() != next {
				t.Errorf("%v: a batch at %d, want %d", codec, b.BaseOffset(), next)
			}
			if want := int32((int64(old.BaseSequence()) + next - old.BaseOffset()) % (1 << 31)); b.BaseSequence() != want {
				t.Errorf("%v: sequence %d at %d, want %d", codec, b.BaseSequence(), next, want)
			}
			latest := int64(0)
			for _, r := range records(t, b) {
				latest = max(latest, r.time)
			}
			if b.MaxTimestamp() != latest {
				t.Errorf("%v: max timestamp %d, want %d", codec, b.MaxTimestamp(), latest)
			}
			next = b.LastOffset() + 1
		}
		if next != old.LastOffset()+1 {
			t.Errorf("%v: ends at %d", codec, next-1)
		}
	}
}

// TestUnreadable: whatever is wrong with a batch, nothing of it is dropped.
func TestUnreadable(t *testing.T) {
	t.Parallel()
	good := func() serde.Batch {
		return data{base: 3, records: []string{"a=1", "a=2"}, time: 9, codec: compress.Gzip}.bytes(t)
	}
	fields := func(count int32, last int64, records []byte) []byte {
		return good().Rewrite(serde.Rewrite{BaseOffset: 3, LastOffset: last, Count: count, Encoded: records})
	}
	gz := func(p []byte) []byte {
		p, err := compress.Encode(nil, compress.Gzip, p)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	two, err := compress.Decode(nil, compress.Gzip, good().Records(), 1000)
	if err != nil {
		t.Fatal(err)
	}
	sum := good()
	sum[len(sum)-1]++
	back, err := serde.MoveRecords(nil, two, 2, 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	bomb := gz(append(two[:len(two):len(two)], make([]byte, 1<<20)...))
	for name, p := range map[string][]byte{
		"nothing": nil, "cut": good()[:80], "two batches": append(good(), good()...), "checksum": sum,
		"range":     fields(2, 2, gz(two)),
		"too many":  fields(3, 4, gz(two)),
		"too few":   fields(1, 4, gz(two)),
		"negative":  fields(-1, 4, gz(two)),
		"not gzip":  fields(2, 4, two),
		"offsets":   fields(2, 4, gz(append(two[len(two)/2:len(two):len(two)], two[:len(two)/2]...))),
		"below":     fields(2, 4, gz(back)),
		"above":     fields(2, 3, gz(two)),
		"bomb":      fields(2, 4, bomb),
		"a control": serde.ControlBatch(1, 2, 3, 4, 0, 0).Rewrite(serde.Rewrite{BaseOffset: 1, LastOffset: 2, Count: 1, Encoded: []byte{1, 2}}),
	} {
		e := Env{Budget: 1 << 16, Upto: 100}
		if _, err := Index(NewKeys(100), &e, p); !errors.Is(err, ErrUnreadable) && name != "a control" {
			t.Errorf("%s: index says %v", name, err)
		}
		if out, _, _, err := Filter(NewKeys(100), &e, p); !errors.Is(err, ErrUnreadable) || out != nil {
			t.Errorf("%s: filter says %v", name, err)
		}
	}
}

// TestRetentionForEver: a retention beyond all time is a horizon at its end.
func TestRetentionForEver(t *testing.T) {
	t.Parallel()
	e := Env{Now: 1 << 41, DeleteRetention: math.MaxInt64, Upto: 10}
	out, _, h, err := Filter(NewKeys(0), &e, data{records: []string{"a", "b=1"}, time: 50}.bytes(t))
	if err != nil || h != math.MaxInt64 {
		t.Fatal(h, err)
	}
	if rs := records(t, out); rs[0].time != 50 || rs[1].time != 51 {
		t.Error(rs)
	}
}
