package partition

import (
	"errors"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/compress"
	"github.com/hanzoai/stream/pubsub/memory"
	"github.com/hanzoai/stream/types"
)

func gzipped(t *testing.T) func([]byte) []byte {
	return func(b []byte) []byte {
		z, err := compress.Encode(nil, 1, b)
		if err != nil {
			t.Fatal(err)
		}
		return z
	}
}

func TestC11LogAppendTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Config{})
		w.config.LogAppendTime = true
		g := w.gateway(memory.Faults{})
		now := time.Now().UnixMilli()
		times := make([]int64, 10)
		for i := range times {
			times[i] = now + int64(i)
		}
		time.Sleep(3 * time.Second)
		b := batchSpec{pid: 9, times: times}.bytes()
		again := append([]byte(nil), b...)
		a := g.produce(AppendRequest{Records: b})
		if a.Err != nil || a.AppendTime != now+3000 {
			t.Fatalf("%+v, want append time %d", a, now+3000)
		}
		bs := g.read(0) // checks the checksum
		if !bs[0].LogAppendTime() || bs[0].MaxTimestamp() != now+3000 {
			t.Errorf("stored: bit %v, max %d", bs[0].LogAppendTime(), bs[0].MaxTimestamp())
		}
		// An answer that repeats the time repeats the stored one.
		time.Sleep(time.Second)
		if d := g.produce(AppendRequest{Records: again}); d.Err != nil || d.AppendTime != now+3000 || d.BaseOffset != 0 {
			t.Errorf("duplicate: %+v", d)
		}
		// Lookup by time sees the append time.
		r, err := g.p.Lookup(t.Context(), LookupRequest{Timestamp: now + 100})
		if err != nil || r.Offset != 0 || r.Timestamp != now+3000 {
			t.Errorf("lookup: %+v, %v", r, err)
		}
	})
}

// What the header says of the largest timestamp is not believed: not stored, not
// looked up. Retention by that time belongs to retention.
func TestC12MaxTimestampThatLies(t *testing.T) {
	for _, zip := range []bool{false, true} {
		for _, lie := range []int64{-1, -1000} {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, memory.Config{})
				g := w.gateway(memory.Faults{})
				base := time.Now().UnixMilli()
				s := batchSpec{}
				for i := range int64(10) {
					s.times = append(s.times, base+i)
				}
				header := lie
				if lie == -1000 {
					header = base - 1000
				}
				s.maxTime = &header
				if zip {
					s.attrs, s.body = 1, gzipped(t)
				}
				g.mustProduce(s.bytes())
				if got := g.read(0)[0].MaxTimestamp(); got != base+9 {
					t.Errorf("zip %v, header %d: stored max %d, want %d", zip, header, got, base+9)
				}
				for _, x := range []struct {
					at     int64
					offset types.Offset
					time   int64
				}{{base + 5, 5, base + 5}, {MaxTimestamp, 9, base + 9}, {base + 10, -1, -1}} {
					r, err := g.p.Lookup(t.Context(), LookupRequest{Timestamp: x.at})
					if err != nil || r.Offset != x.offset || r.Timestamp != x.time {
						t.Errorf("zip %v, lookup %d: %+v, %v", zip, x.at, r, err)
					}
				}
			})
		}
	}
}

// A client may claim more than its records hold: it costs a lookup a look at
// the records, and is not believed.
func TestC12LookupDoesNotBelieveALargeMax(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Config{})
		g := w.gateway(memory.Faults{})
		now := time.Now().UnixMilli()
		lie := now + 500
		g.mustProduce(batchSpec{times: []int64{now, now + 1}, maxTime: &lie}.bytes())
		g.mustProduce(batchSpec{times: []int64{now + 300}}.bytes())
		g.mustProduce(batchSpec{times: []int64{now + 2}}.bytes())
		for _, x := range []struct {
			at     int64
			offset types.Offset
		}{{now + 2, 2}, {now + 301, -1}, {MaxTimestamp, 2}, {now + 1, 1}} {
			if r, err := g.p.Lookup(t.Context(), LookupRequest{Timestamp: x.at}); err != nil || r.Offset != x.offset {
				t.Errorf("lookup %d: %+v, %v, want %d", x.at-now, r, err, x.offset)
			}
		}
	})
}

func TestC13RecordsThatMayNotBeStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Config{})
		g := w.gateway(memory.Faults{})
		w.config.Compacted = true
		now := time.Now().UnixMilli()
		three := []int64{now, now, now}
		edit := func(at int, v ...byte) []byte {
			b := batch(3)
			copy(b[at:], v)
			return seal(b)
		}
		wrong := batch(3)
		wrong[17] ^= 1
		compacted, plain := w.config, w.config
		plain.Compacted = false
		old := plain
		old.MaxBehindMillis = 1000
		tooLate := batchSpec{times: []int64{now, now + 3600001, now}}
		tooOld := batchSpec{times: []int64{now, now - 1001, now}}
		for _, x := range []struct {
			name   string
			config Config
			r      AppendRequest
			err    error
			index  int32
		}{
			{"null key in a compacted topic", compacted, AppendRequest{Records: batchSpec{times: three, nilKeys: []int{2}}.bytes()}, kerr.InvalidRecord, 2},
			{"null key, gzip", compacted, AppendRequest{Records: batchSpec{times: three, nilKeys: []int{2}, attrs: 1, body: gzipped(t)}.bytes()}, kerr.InvalidRecord, 2},
			{"null key elsewhere", plain, AppendRequest{Records: batchSpec{times: three, nilKeys: []int{2}}.bytes()}, nil, -1},
			{"record count 0", plain, AppendRequest{Records: edit(57, 0, 0, 0, 0)}, kerr.InvalidRecord, -1},
			{"negative count", plain, AppendRequest{Records: edit(57, 0xff, 0xff, 0xff, 0xff)}, kerr.InvalidRecord, -1},
			{"count and delta differ", plain, AppendRequest{Records: edit(57, 0, 0, 0, 4)}, kerr.InvalidRecord, -1},
			{"no records at all", plain, AppendRequest{}, kerr.InvalidRecord, -1},
			{"two batches", plain, AppendRequest{Records: append(batch(1), batch(1)...)}, kerr.InvalidRecord, -1},
			{"cut short", plain, AppendRequest{Records: batch(1)[:65]}, kerr.InvalidRecord, -1},
			{"magic 1", plain, AppendRequest{Records: edit(16, 1)}, kerr.InvalidRecord, -1},
			{"control bit", plain, AppendRequest{Records: batchSpec{times: three, attrs: 0x20}.bytes()}, kerr.InvalidRecord, -1},
			{"producer id without sequence", plain, AppendRequest{Records: batchSpec{pid: 5, seq: -1, times: three}.bytes()}, kerr.InvalidRecord, -1},
			{"producer id without epoch", plain, AppendRequest{Records: batchSpec{pid: 5, epoch: -1, times: three}.bytes()}, kerr.InvalidRecord, -1},
			{"wrong checksum", plain, AppendRequest{Records: wrong}, kerr.CorruptMessage, -1},
			{"codec 5", plain, AppendRequest{Records: batchSpec{times: three, attrs: 5}.bytes()}, kerr.UnsupportedCompressionType, -1},
			{"zstd before v7", plain, AppendRequest{Records: batchSpec{times: three, attrs: 4}.bytes(), NoZstd: true}, kerr.UnsupportedCompressionType, -1},
			{"transactional without an id", plain, AppendRequest{Records: batchSpec{pid: 5, times: three, attrs: 0x10}.bytes()}, kerr.TransactionalIDAuthorizationFailed, -1},
			{"transactional", plain, AppendRequest{Records: batchSpec{pid: 5, times: three, attrs: 0x10}.bytes(), Transactional: true}, kerr.InvalidTxnState, -1},
			{"too far ahead", plain, AppendRequest{Records: tooLate.bytes()}, kerr.InvalidTimestamp, 1},
			{"too old", old, AppendRequest{Records: tooOld.bytes()}, kerr.InvalidTimestamp, 1},
			{"old where that is allowed", plain, AppendRequest{Records: tooOld.bytes()}, nil, -1},
		} {
			g.p.Configure(x.config)
			before := len(w.server.Messages(testLog))
			a := g.produce(x.r)
			if !errors.Is(a.Err, x.err) {
				t.Errorf("%s: %v (%s), want %v", x.name, a.Err, a.Message, x.err)
			}
			if stored := len(w.server.Messages(testLog)) > before; stored != (x.err == nil) {
				t.Errorf("%s: stored %v", x.name, stored)
			}
			if x.err != nil && (a.BaseOffset != -1 || a.LogStart != -1 || a.AppendTime != -1 || a.Message == "") {
				t.Errorf("%s: %+v", x.name, a)
			}
			switch {
			case x.index < 0 && len(a.Records) > 0:
				t.Errorf("%s: blames %v", x.name, a.Records)
			case x.index >= 0 && (len(a.Records) != 1 || a.Records[0].Index != x.index):
				t.Errorf("%s: blames %v, want record %d", x.name, a.Records, x.index)
			}
		}
	})
}

// sized is a batch of exactly n bytes.
func sized(n int) []byte {
	empty := len(batchSpec{times: []int64{time.Now().UnixMilli()}, values: [][]byte{{}}}.bytes())
	for pad := max(n-empty-8, 0); ; pad++ {
		if b := (batchSpec{times: []int64{time.Now().UnixMilli()}, values: [][]byte{make([]byte, pad)}}).bytes(); len(b) == n {
			return b
		}
	}
}

func TestC14ExactlyAtTheLimit(t *testing.T) {
	for _, payload := range []int{1 << 20, 8 << 20} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, memory.Config{MaxPayload: payload})
			g := w.gateway(memory.Faults{})
			limit := min(w.config.MaxMessageBytes, payload-StorageRoom)
			if a := g.produce(AppendRequest{Records: sized(limit + 1)}); !errors.Is(a.Err, kerr.MessageTooLarge) {
				t.Errorf("%d bytes: %v", limit+1, a.Err)
			}
			if n := len(w.server.Messages(testLog)); n != 0 {
				t.Fatalf("%d messages stored", n)
			}
			g.mustProduce(sized(limit))
			// Many at once, of all sizes: none may become too large by company.
			done := make(chan AppendResult, 64)
			r := rand.New(rand.NewPCG(1, 1))
			for range 32 {
				g.p.Submit(AppendRequest{Records: sized(100 + r.IntN(limit-99))}, func(a AppendResult) { done <- a })
			}
			for range 32 {
				if a := <-done; a.Err != nil {
					t.Fatal(a.Err)
				}
			}
			if end, err := g.p.Lookup(t.Context(), LookupRequest{Timestamp: Latest}); err != nil || end.Offset != 33 {
				t.Errorf("end %+v, %v", end, err)
			}
		})
	}
}

func TestGroupCommitLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Config{})
		first, once := make(chan struct{}), sync.Once{}
		g := w.gateway(memory.Faults{Append: func(op memory.Op) (f memory.WriteFault) {
			if op.Seq == 0 {
				once.Do(func() { close(first) })
				f.Before = time.Second
			}
			return f
		}})
		const n = 1000
		done := make(chan AppendResult, n)
		submit := func(pid int64, seq int32) {
			g.p.Submit(AppendRequest{Records: idempotent(pid, math.MaxInt16, seq, 1)}, func(a AppendResult) { done <- a })
		}
		submit(math.MaxInt64, math.MaxInt32)
		<-first
		for i := range n - 1 {
			submit(math.MaxInt64-1-int64(i%7), addSequence(math.MaxInt32-2, int32(i/7))) // wraps, too
		}
		got := map[types.Offset]bool{}
		for i := range n {
			a := <-done
			if a.Err != nil && i < 20 {
				t.Fatal(a.Err, a.Message)
			}
			got[a.BaseOffset] = true
		}
		ms := w.server.Messages(testLog)
		if len(ms) > 8 {
			t.Errorf("%d batches in %d messages", n, len(ms))
		}
		for _, m := range ms {
			if c := len(m.Header[headerBatch]); c > maxBatches || headerSize(m.Header) > maxHeaderBytes {
				t.Errorf("message %d: %d batches, %d bytes of headers", m.Seq, c, headerSize(m.Header))
			}
		}
		if bs := w.gateway(memory.Faults{}).read(0); len(bs) < 900 {
			t.Errorf("%d batches read", len(bs))
		}
	})
}

// Every refusal leaves the log end where it was and every field -1.
func TestDuplicateWithinOneGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Config{})
		first, once := make(chan struct{}), sync.Once{}
		g := w.gateway(memory.Faults{Append: func(op memory.Op) (f memory.WriteFault) {
			if op.Seq == 0 {
				once.Do(func() { close(first) })
				f.After = time.Second
			}
			return f
		}})
		done := make(chan AppendResult, 4)
		submit := func(pid int64, seq int32) {
			g.p.Submit(AppendRequest{Records: idempotent(pid, 0, seq, 2)}, func(a AppendResult) { done <- a })
		}
		submit(1, 0)
		<-first
		submit(2, 0)
		submit(2, 0) // its retry overtook the answer
		submit(2, 2)
		for i, want := range []types.Offset{0, 2, 2, 4} {
			if a := <-done; a.Err != nil || a.BaseOffset != want {
				t.Errorf("answer %d: %+v, want base %d", i, a, want)
			}
		}
		if n := len(w.server.Messages(testLog)); n != 2 {
			t.Errorf("%d messages", n)
		}
	})
}

func TestHeaderRoundTrip(t *testing.T) {
	id := types.NewTopicID().String()
	m := meta{
		seq: 42, id: "abc.1", prev: "~41.1700000000000000000", base: 100, last: 102 + math.MaxInt32 - 1, maxTime: 1700000000123, appendTime: 1700000000200,
		entries: []entry{
			{length: 61, count: 3, first: -1, epoch: -1, pid: -1, maxTime: -1, appendTime: 1700000000200},
			{length: math.MaxInt32 - 61, count: math.MaxInt32 - 1, first: math.MaxInt32, epoch: math.MaxInt16, pid: math.MaxInt64,
				maxTime: 1700000000123, appendTime: 1700000000200, flags: flagLogAppendTime | flagTransactional | flagControl, txn: 7, marker: 1, coordinator: 3},
		},
	}
	m.size = math.MaxInt32
	e := encodeHeader(id, &m)
	msg := message(42, e, m.size)
	got, err := decodeHeader(id, &msg)
	if err != nil {
		t.Fatal(err)
	}
	got.headers = m.headers
	if !equalMeta(got, m) {
		t.Errorf("got  %+v\nwant %+v", got, m)
	}
	for name, edit := range map[string]func(string) string{
		"another topic": func(s string) string { return s[:10] + "A" + s[11:] },
	} {
		x := e.Get(headerLog)
		msg.Header = map[string][]string{headerLog: {edit(x)}, headerBatch: e[headerBatch]}
		if d, err := decodeHeader(id, &msg); err != nil || !d.plain {
			t.Errorf("%s: %+v, %v", name, d, err)
		}
	}
	msg = message(43, e, m.size)
	if d, err := decodeHeader(id, &msg); err != nil || !d.plain {
		t.Errorf("copied to another sequence: %+v, %v: want a plain message", d, err)
	}
}
