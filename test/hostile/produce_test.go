//go:build hostile

package hostile

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// refuses sends one part in each of the versions and wants this code, counted,
// without a log line, on a connection that stays.
func (r *rig) refuses(t *testing.T, c *client, what string, code int16, name string, p part, versions ...int16) {
	t.Helper()
	if versions == nil {
		versions = []int16{3, 8, 9, 12}
	}
	r.counted(t, what, answered("Produce", name), float64(len(versions)), 0, func() {
		for _, v := range versions {
			c.produced(t, what, v, []int16{code}, p)
		}
	})
}

func good(b batch) batch {
	b.records = []record{{[]byte("k"), content(50)}, {[]byte("l"), content(50)}}
	return b
}

func TestRow13Batches(t *testing.T) {
	r := start(t)
	c := r.dial(t)
	r.under(t, func() {
		whole := good(batch{}).bytes()
		r.refuses(t, c, "wrong CRC", 2, "CORRUPT_MESSAGE", part{"good", 0, good(batch{badCRC: true}).bytes()})
		for what, b := range map[string][]byte{
			"length past the field": good(batch{length: ptr(int32(1 << 20))}).bytes(), "length 2^31-1": good(batch{length: ptr(int32(1<<31 - 1))}).bytes(),
			"length -1": good(batch{length: ptr(int32(-1))}).bytes(), "length 0": good(batch{length: ptr(int32(0))}).bytes(),
			"length too small": good(batch{length: ptr(int32(48))}).bytes(),
			"two batches":      append(whole[:len(whole):len(whole)], whole...), "a whole one and a short one": append(whole[:len(whole):len(whole)], whole[:30]...),
			"cut": whole[:len(whole)-1], "one byte": whole[:1], "no bytes": {},
		} {
			r.refuses(t, c, what, 87, "INVALID_RECORD", part{"good", 0, b})
		}
	})
	_ = c.Close()
}

func TestRow14Magic(t *testing.T) {
	r := start(t)
	c := r.dial(t)
	r.under(t, func() {
		for _, m := range []int8{0, 1, 3, -1, 127} {
			r.refuses(t, c, fmt.Sprint("magic ", m), 87, "INVALID_RECORD", part{"good", 0, good(batch{magic: &m}).bytes()})
		}
		for v := range int16(3) {
			r.refuses(t, c, "old version", 35, "UNSUPPORTED_VERSION", part{"good", 0, good(batch{}).bytes()}, v)
		}
	})
	_ = c.Close()
}

func TestRow15Counts(t *testing.T) {
	r := start(t)
	c := r.dial(t)
	r.under(t, func() {
		for what, b := range map[string]batch{
			"count above delta": {count: ptr(int32(3)), delta: ptr(int32(1))}, "delta above count": {delta: ptr(int32(5))}, "delta -1": {delta: ptr(int32(-1))},
			"count 0": {count: ptr(int32(0)), delta: ptr(int32(-1))}, "count -1": {count: ptr(int32(-1)), delta: ptr(int32(-2))},
			"count 2^31-1, delta 0": {count: ptr(int32(1<<31 - 1)), delta: ptr(int32(0))},
			"count -2^31":           {count: ptr(int32(-1 << 31)), delta: ptr(int32(1<<31 - 1))},
			"producer id -5":        {pid: -5},
		} {
			r.refuses(t, c, what, 87, "INVALID_RECORD", part{"good", 0, good(b).bytes()})
		}
	})
	_ = c.Close()
}

// Row 16: bombs are stored as they are, or refused where records must be read
// (a compacted topic), and never fill the memory, then and when looked up by
// time. Compaction, which decodes them in the background, belongs to compaction.
func TestRow16Bombs(t *testing.T) {
	r := startAside(t)
	c := r.dial(t)
	c.create(t, "bombs", 1)
	c.create(t, "stamped", 1, "message.timestamp.type", "LogAppendTime")
	c.create(t, "keys", 1, "cleanup.policy", "compact")
	type bomb struct {
		codec int16
		body  []byte
	}
	bombs := map[string]bomb{
		"gzip 1 MiB": {1, gzipBomb(1 << 20)}, "gzip 512 MiB": {1, gzipBomb(512 << 20)},
		"snappy 1 MiB": {2, snappyBomb(1<<20, 1<<20)}, "snappy 16 MiB": {2, snappyBomb(16<<20, 16<<20)},
		"snappy that announces 4 GiB": {2, snappyBomb(1<<10, 1<<32-1)}, "xerial 16 MiB": {2, xerialBomb(16 << 20)},
		"lz4 4 MiB": {3, lz4Bomb(1)}, "lz4 200 MiB": {3, lz4Bomb(50)},
		"zstd 1 MiB": {4, zstdBomb(8, 0x58)}, "zstd 4 GiB": {4, zstdBomb(32768, 0x58)}, "zstd with a window of 2 GiB": {4, zstdBomb(8, 0xa8)},
		"garbage": {1, content(500)}, "garbage lz4": {3, content(500)}, "garbage zstd": {4, content(500)},
	}
	r.under(t, func() {
		stop := r.peak()
		now := time.Now().UnixMilli()
		for what, b := range bombs {
			now++
			send := batch{attrs: b.codec, body: b.body, count: ptr(int32(1000)), baseTime: now}.bytes()
			c.produced(t, what, 9, []int16{0, 0}, part{"bombs", 0, send}, part{"stamped", 0, send})
			r.counted(t, what, answered("Produce", "INVALID_RECORD"), 1, 0, func() {
				c.produced(t, what+" where keys are required", 9, []int16{87}, part{"keys", 0, send})
			})
			// A time inside the batch: its records are looked at.
			look := at(7, kmsg.NewPtrListOffsetsRequest())
			look.ReplicaID = -1
			for _, topic := range []string{"bombs", "stamped"} {
				rt := kmsg.NewListOffsetsRequestTopic()
				rt.Topic = topic
				for _, ts := range []int64{now, time.Now().UnixMilli(), -3} {
					rp := kmsg.NewListOffsetsRequestTopicPartition()
					rp.Timestamp, rp.CurrentLeaderEpoch = ts, -1
					rt.Partitions = []kmsg.ListOffsetsRequestTopicPartition{rp}
					look.Topics = []kmsg.ListOffsetsRequestTopic{rt}
					ask[*kmsg.ListOffsetsResponse](t, c, look) // any code; alive
				}
			}
		}
		for codec := int16(5); codec < 8; codec++ {
			r.refuses(t, c, "codec", 76, "UNSUPPORTED_COMPRESSION_TYPE", part{"bombs", 0, batch{attrs: codec, body: content(100)}.bytes()})
		}
		// Old readers are not given what they do not know.
		if code := ask[*kmsg.FetchResponse](t, c, fetch(4, "bombs", 0, 0, 50<<20, 0)).Topics[0].Partitions[0].ErrorCode; code != 0 && code != 76 {
			t.Errorf("fetch v4: %d", code)
		}
		if most := stop(); most > r.resident+growth {
			t.Errorf("resident %.0f MiB at most, %.0f before", most/(1<<20), r.resident/(1<<20))
		}
	})
	_ = c.Close()
}

func TestRow17Sizes(t *testing.T) {
	r := start(t)
	c := r.dial(t)
	c.create(t, "huge", 1, "max.message.bytes", "8000000")
	r.under(t, func() {
		const limit = 1048588
		over := limit - len(one(1000)) + 1000 // lengths of lengths are the same from 64 KiB on
		for len(one(over)) < limit {
			over++
		}
		for len(one(over)) > limit {
			over--
		}
		c.produced(t, "the limit", 9, []int16{0}, part{"good", 0, one(over)})
		r.refuses(t, c, "a byte more", 10, "MESSAGE_TOO_LARGE", part{"good", 0, one(over + 1)})
		r.refuses(t, c, "over max_payload", 10, "MESSAGE_TOO_LARGE", part{"huge", 0, one(9 << 20)})
		c.produced(t, "below max_payload", 9, []int16{0}, part{"huge", 0, one(7 << 20)})
	})
	_ = c.Close()
}

func TestRow18ControlAndTransactional(t *testing.T) {
	r := start(t)
	c := r.dial(t)
	r.under(t, func() {
		r.refuses(t, c, "control", 87, "INVALID_RECORD", part{"good", 0, good(batch{attrs: 0x20}).bytes()})
		r.refuses(t, c, "control and transactional", 87, "INVALID_RECORD", part{"good", 0, good(batch{attrs: 0x30, pid: 1}).bytes()})
		r.refuses(t, c, "transactional", 53, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", part{"good", 0, good(batch{attrs: 0x10, pid: 1}).bytes()})
	})
	_ = c.Close()
}

func TestRow19AcksAndKeys(t *testing.T) {
	r := start(t)
	c := r.dial(t)
	c.create(t, "keys", 1, "cleanup.policy", "compact")
	r.under(t, func() {
		for _, acks := range []int16{2, -2, 32767, -32768} {
			r.counted(t, "acks", answered("Produce", "INVALID_REQUIRED_ACKS"), 1, 0, func() {
				if got := codes(ask[*kmsg.ProduceResponse](t, c, produce(9, acks, part{"good", 0, one(10)}))); got[0] != 21 {
					t.Errorf("acks %d: %v", acks, got)
				}
			})
		}
		for _, timeout := range []int32{-1, 0, -1 << 31, 1<<31 - 1} {
			req := produce(9, -1, part{"good", 0, one(10)})
			req.TimeoutMillis = timeout
			if got := codes(ask[*kmsg.ProduceResponse](t, c, req)); got[0] != 0 && got[0] != 7 {
				t.Errorf("timeout %d: %v", timeout, got)
			}
		}
		null := batch{records: []record{{nil, content(10)}}}.bytes()
		r.refuses(t, c, "null key", 87, "INVALID_RECORD", part{"keys", 0, null})
		// acks 0 has no answer: a refusal ends the connection.
		d := r.dial(t)
		if err := d.send(produce(9, 0, part{"keys", 0, null})); err != nil {
			t.Error(err)
		}
		d.closed(t, "acks 0, refused")
		_ = d.Close()
	})
	_ = c.Close()
}

func TestRow20Partitions(t *testing.T) {
	r := start(t)
	c := r.dial(t)
	c.create(t, "p2", 2)
	r.under(t, func() {
		for _, n := range []int32{-1, 2, 1<<31 - 1, -1 << 31} {
			r.refuses(t, c, "partition", 3, "UNKNOWN_TOPIC_OR_PARTITION", part{"p2", n, one(10)})
			if code := ask[*kmsg.FetchResponse](t, c, fetch(12, "p2", n, 0, 1000, 0)).Topics[0].Partitions[0].ErrorCode; code != 3 {
				t.Errorf("fetch of partition %d: %d", n, code)
			}
			look := at(7, kmsg.NewPtrListOffsetsRequest())
			look.ReplicaID = -1
			look.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: "p2", Partitions: []kmsg.ListOffsetsRequestTopicPartition{{Partition: n, CurrentLeaderEpoch: -1, Timestamp: -1}}}}
			if code := ask[*kmsg.ListOffsetsResponse](t, c, look).Topics[0].Partitions[0].ErrorCode; code != 3 {
				t.Errorf("offsets of partition %d: %d", n, code)
			}
			if code := commit(t, c, 8, "g", "p2", n, 5, "", "", -1); code != 3 {
				t.Errorf("commit of partition %d: %d", n, code)
			}
			if offset, code := committed(t, c, "g", "p2", n); offset != -1 || code != 0 {
				t.Errorf("offset of partition %d: %d, error %d", n, offset, code)
			}
		}
		// Named twice: answered once, the last batch counts.
		last := one(40)
		c.produced(t, "twice", 9, []int16{0}, part{"p2", 0, one(10)}, part{"p2", 0, last})
		f := ask[*kmsg.FetchResponse](t, c, fetch(12, "p2", 0, 0, 1<<20, 0)).Topics[0].Partitions[0]
		if f.HighWatermark != 1 || len(f.RecordBatches) != len(last) {
			t.Errorf("twice: end %d, %d bytes", f.HighWatermark, len(f.RecordBatches))
		}
	})
	_ = c.Close()
}

// names that no topic may have.
var names = []string{
	"a.>", "*", ".", "..", "", strings.Repeat("a", 250), strings.Repeat("a", 32_000), "a b", "a\r\nPUB x 1\r\ny", "$JS.API.STREAM.DELETE.kafka-good-0", "$KV.kafka-topics.good",
	"ü", "a/b", "a\x00b", "\xff", "a=20", "<script>", "KV_kafka-topics>", "a,b",
}

// Row 22, and what is close to it: no name reaches what the server keeps itself.
func TestRow22OwnStorage(t *testing.T) {
	r := start(t, "--auto-create-topics-enable=false")
	c := r.dial(t)
	r.under(t, func() {
		for _, n := range []string{"__consumer_offsets", "__transaction_state", "__share_group_state"} {
			r.refuses(t, c, n, 17, "INVALID_TOPIC_EXCEPTION", part{n, 0, one(10)})
		}
		for _, n := range []string{"kafka-topics", "kafka-good-0", "KV_kafka-topics", "kafka-consumer-offsets", "kafka.good.0", "kafka-gateways"} {
			r.refuses(t, c, n, 3, "UNKNOWN_TOPIC_OR_PARTITION", part{n, 0, one(10)})
			// As a topic of its own it is one like any other.
			c.create(t, n, 1)
			c.produced(t, n, 9, []int16{0}, part{n, 0, one(10)})
		}
	})
	_ = c.Close()
	r.goroutines += 6 * 3 // of the topics
}
