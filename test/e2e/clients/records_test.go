package clients

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// autoOffsetReset is librdkafka's code for an offset without a policy.
const autoOffsetReset = -140

// others is w with the other library as producer.
func (w world) others() world {
	w.cl, w.lib = w.other, franzLibrary
	return w
}

// reader is w's library as a reader.
func (w world) reader() reader { return reader{w.cl, w.lib} }

// codec produces three partitions of records with keys, headers and timestamps
// in one codec and reads them back.
func codec(name string) func(context.Context, *testing.T, world) {
	return func(ctx context.Context, t *testing.T, w world) {
		base := time.Now().Add(-time.Hour).Truncate(time.Millisecond)
		var rs []record
		for i := range 300 {
			r := record{
				Partition: int32(i % 3),
				Key:       fmt.Appendf(nil, "key %d", i),
				Value:     fmt.Appendf(nil, "%d %s", i, strings.Repeat("value ", 1+i%50)),
				Headers:   []header{{"number", fmt.Append(nil, i)}, {"twice", []byte("1")}, {"twice", []byte("2")}},
				Time:      base.Add(time.Duration(i) * time.Second),
			}
			if w.lib.limits.noRecordHeaders {
				r.Headers[0].Value = []byte("all")
			}
			if w.lib.limits.headerMap {
				r = r.headerMap()
			}
			rs = append(rs, r)
		}
		w.produce(ctx, t, sending{codec: name}, rs)
		for p := range int32(3) {
			for _, cl := range w.readers() {
				w.read(ctx, t, cl, start{}, partition(rs, p))
			}
		}
		w.storedAs(ctx, t, name)
		// and the client reads what another one compressed
		other := w.others()
		more := slices.Clone(rs[:60])
		other.produce(ctx, t, sending{codec: name}, more)
		for p := range int32(3) {
			want := partition(more, p)
			other.read(ctx, t, w.reader(), start{offset: want[0].Offset}, want)
		}
	}
}

// stored reads n records with all that is known about them.
func (w world) stored(ctx context.Context, t *testing.T, n int) []*kgo.Record {
	t.Helper()
	cl, err := w.other.(franz).new(kgo.ConsumeTopics(w.topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	var out []*kgo.Record
	for len(out) < n {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("read: %v", err)
		}
		out = append(out, fetches.Records()...)
	}
	return out
}

// storedAs checks that batches came through in their codec. Clients leave a
// batch as it is where compression gains nothing, as with a first small one.
func (w world) storedAs(ctx context.Context, t *testing.T, codec string) {
	t.Helper()
	want := slices.Index([]string{"none", "gzip", "snappy", "lz4", "zstd"}, codec)
	compressed := 0
	for _, r := range w.stored(ctx, t, 300) {
		switch got := int(r.Attrs.CompressionType()); got {
		case want:
			compressed++
		case 0:
		default:
			t.Fatalf("partition %d offset %d: codec %d, want %d (%s)", r.Partition, r.Offset, got, want, codec)
		}
	}
	if compressed < 150 {
		t.Errorf("%d of 300 records are stored as %s", compressed, codec)
	}
}

// idempotent produces with a producer id: every record once, in order.
func idempotent(ctx context.Context, t *testing.T, w world) {
	for round := range 2 {
		rs := batch(300, 3, fmt.Sprint("round ", round))
		for i := range rs {
			rs[i].Time = rs[i].Time.Truncate(time.Millisecond)
		}
		w.produce(ctx, t, sending{codec: "none", idempotent: true}, rs)
		for p := range int32(3) {
			want := partition(rs, p)
			w.read(ctx, t, w.reader(), start{offset: want[0].Offset}, want)
		}
	}
	got := w.stored(ctx, t, 600)
	if len(got) != 600 {
		t.Errorf("%d records are stored, want 600", len(got))
	}
	for _, r := range got {
		if r.ProducerID < 0 || r.ProducerEpoch < 0 {
			t.Fatalf("partition %d offset %d: producer id %d, epoch %d", r.Partition, r.Offset, r.ProducerID, r.ProducerEpoch)
		}
	}
}

// nulls tells null from empty in keys, values and header values.
func nulls(ctx context.Context, t *testing.T, w world) {
	now := time.Now().Truncate(time.Millisecond)
	full, empty, null := []byte("x"), []byte{}, []byte(nil)
	values := [][]byte{full, empty, null}
	headers := []header{{"full", full}, {"empty", empty}, {"null", null}, {"", full}}
	if w.lib.limits.noEmpty {
		values, headers = [][]byte{full, null}, []header{{"full", full}}
	}
	if w.lib.limits.noHeaderNulls {
		headers = slices.DeleteFunc(headers, func(h header) bool { return h.Value == nil })
	}
	var rs []record
	for _, k := range values {
		for _, v := range values {
			if k == nil && v == nil && w.lib.limits.noTombstone {
				continue
			}
			r := record{Key: k, Value: v, Time: now}
			rs = append(rs, r)
			if !w.lib.limits.noRecordHeaders {
				r.Headers = headers
				if w.lib.limits.headerMap {
					r = r.headerMap()
				}
				rs = append(rs, r)
			}
		}
	}
	w.produce(ctx, t, sending{codec: "none"}, rs)
	for _, cl := range w.readers() {
		want := slices.Clone(rs)
		if cl.limits.emptyReadsNull {
			for i := range want {
				want[i] = want[i].emptyAsNull()
			}
		}
		w.read(ctx, t, cl, start{}, want)
	}
}

// large moves records of 900 kB, one per batch and compressed together.
func large(ctx context.Context, t *testing.T, w world) {
	var all []record
	for _, codec := range []string{"none", "zstd"} {
		var rs []record
		for i := range 3 {
			value := fmt.Appendf(nil, "%d:", i)
			for len(value) < 900_000 {
				value = fmt.Appendf(value, " %d", len(value)*7919)
			}
			rs = append(rs, record{Key: fmt.Append(nil, i), Value: value[:900_000], Time: time.Now().Truncate(time.Millisecond)})
		}
		w.produce(ctx, t, sending{codec: codec}, rs)
		all = append(all, rs...)
	}
	for _, cl := range w.readers() {
		w.read(ctx, t, cl, start{}, all)
	}
}

// seek reads from an offset and from a time.
func seek(ctx context.Context, t *testing.T, w world) {
	base := time.Now().Add(-time.Hour).Truncate(time.Millisecond)
	var rs []record
	for i := range 500 {
		rs = append(rs, record{Key: []byte("k"), Value: fmt.Append(nil, i), Time: base.Add(time.Duration(i) * time.Second)})
	}
	// timestamps that franz-go can set, in batches of 100
	with := w.others()
	for batch := range slices.Chunk(rs, 100) {
		with.produce(ctx, t, sending{codec: "lz4"}, batch)
	}
	with.read(ctx, t, w.reader(), start{offset: 0}, rs[:10])
	with.read(ctx, t, w.reader(), start{offset: 137}, rs[137:])                       // inside a batch
	with.read(ctx, t, w.reader(), start{offset: 499}, rs[499:])                       // the last one
	with.read(ctx, t, w.reader(), start{time: base.Add(250 * time.Second)}, rs[250:]) // exactly
	with.read(ctx, t, w.reader(), start{time: base.Add(-time.Minute)}, rs[:10])       // before all
	// between two records: the later one
	with.read(ctx, t, w.reader(), start{time: base.Add(299*time.Second + time.Millisecond)}, rs[300:310])
}

// reset reads at an offset that is not there, under each policy.
func reset(ctx context.Context, t *testing.T, w world) {
	var rs []record
	for i := range 10 {
		rs = append(rs, record{Key: []byte("k"), Value: fmt.Append(nil, i), Time: time.Now().Truncate(time.Millisecond)})
	}
	with := w.others()
	with.produce(ctx, t, sending{codec: "none"}, rs)
	policies := w.lib.limits.resets
	if policies == nil {
		policies = []string{"none", "earliest", "latest"}
	}
	for _, policy := range policies {
		at := start{offset: 1000, reset: policy}
		switch policy {
		case "none":
			soon, cancel := context.WithTimeout(ctx, 20*time.Second)
			got, err := w.cl.read(soon, w.topic, 0, at, 1)
			cancel()
			if c := code(err); c != int(kerr.OffsetOutOfRange.Code) && c != autoOffsetReset {
				t.Errorf("none: %d records, code %d, %v, want OFFSET_OUT_OF_RANGE", len(got), c, err)
			}
		case "earliest":
			with.read(ctx, t, w.reader(), at, rs)
		case "latest":
			// it sees records that come after its reset, whenever that is
			done := make(chan struct{})
			var got []record
			var err error
			go func() {
				defer close(done)
				got, err = w.cl.read(ctx, w.topic, 0, at, 1)
			}()
			for every := time.NewTicker(200 * time.Millisecond); ; {
				with.produce(ctx, t, sending{codec: "none"}, []record{{Value: []byte("later"), Time: time.Now()}})
				select {
				case <-every.C:
					continue
				case <-done:
				}
				every.Stop()
				break
			}
			if err != nil || len(got) == 0 || got[0].Offset < int64(len(rs)) || string(got[0].Value) != "later" {
				t.Errorf("latest: got %v, %v, want a record after offset %d", got, err, len(rs))
			}
		}
	}
}

// tooLarge produces a record that the topic does not allow.
func tooLarge(ctx context.Context, t *testing.T, w world) {
	most := "10000"
	w.create(ctx, t, 1, map[string]*string{"max.message.bytes": &most})
	value := make([]byte, 50_000)
	for i := range value {
		value[i] = byte('a' + i*7919%26)
	}
	err := w.cl.produce(ctx, w.topic, sending{codec: "none"}, []record{{Key: []byte("k"), Value: value, Time: time.Now()}})
	if code(err) != int(kerr.MessageTooLarge.Code) {
		t.Errorf("a record of 50 kB where 10 kB are the most: %v, want MESSAGE_TOO_LARGE", err)
	}
	rs := []record{{Key: []byte("k"), Value: value[:5000], Time: time.Now().Truncate(time.Millisecond)}}
	w.produce(ctx, t, sending{codec: "none"}, rs)
	w.read(ctx, t, w.reader(), start{}, rs)
}
