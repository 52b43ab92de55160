package partition

import (
	"encoding/binary"
	"hash/crc32"
	"os"
	"reflect"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/pubsub/memory"
	"github.com/hanzoai/stream/serde"
	"github.com/hanzoai/stream/types"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		println(err.Error())
		code = 1
	}
	os.Exit(code)
}

const (
	testLog     = "kafka-t-0"
	testSubject = "kafka.t.0"
)

// world is one memory server with the partition t-0 made.
type world struct {
	t      testing.TB
	server *memory.Server
	id     types.TopicID
	config Config
}

func newWorld(t testing.TB, c memory.Config) *world {
	t.Helper()
	w := &world{t: t, server: memory.NewServer(c), id: types.NewTopicID(), config: Config{
		MaxMessageBytes: 1048588, MaxAheadMillis: 3600000, MaxBehindMillis: 1<<63 - 1, RetentionMillis: -1, RetentionBytes: -1,
	}}
	g := w.gateway(memory.Faults{})
	if err := g.host.Create(t.Context(), CreateSpec{ID: w.id, Log: pubsub.LogConfig{Name: testLog, Subject: testSubject, Replicas: c.MaxReplicas}}); err != nil {
		t.Fatal(err)
	}
	g.kill()
	return w
}

// gateway is one host with its connection and the partition open.
type gateway struct {
	w      *world
	client *memory.Client
	host   *Host
	p      *Partition
	dead   bool
	hands  bool // what is produced is handed over
}

func (w *world) gateway(f memory.Faults) *gateway {
	w.t.Helper()
	c := w.server.Client(f)
	tab, err := c.Table(w.t.Context(), pubsub.TableConfig{Name: "kafka-partitions"})
	if err != nil {
		w.t.Fatal(err)
	}
	g := &gateway{w: w, client: c, host: NewHost(Env{Store: c, Records: tab, Gateway: "g"})}
	g.p = g.host.Open(OpenSpec{Topic: "t", ID: w.id, Log: c.Log(testLog, testSubject), Config: w.config})
	w.t.Cleanup(g.kill)
	return g
}

func (g *gateway) kill() {
	if !g.dead {
		g.dead = true
		g.host.Stop()
		g.client.Close()
	}
}

// produce submits one request and waits.
func (g *gateway) produce(r AppendRequest) AppendResult {
	ch := make(chan AppendResult, 1)
	if g.hands {
		g.hand()
	}
	g.p.Submit(r, func(a AppendResult) { ch <- a })
	return <-ch
}

func (g *gateway) mustProduce(b []byte) types.Offset {
	g.w.t.Helper()
	a := g.produce(AppendRequest{Records: b})
	if a.Err != nil {
		g.w.t.Fatalf("produce: %v (%s)", a.Err, a.Message)
	}
	return a.BaseOffset
}

// read returns the batches from offset on, checked to be consecutive bytes of
// whole batches.
func (g *gateway) read(offset types.Offset) []serde.Batch {
	g.w.t.Helper()
	r, err := g.p.Read(g.w.t.Context(), ReadRequest{Offset: offset, MaxBytes: 1 << 20, Whole: true})
	if err != nil {
		g.w.t.Fatalf("read at %d: %v", offset, err)
	}
	return split(g.w.t, r)
}

func split(t testing.TB, r ReadResult) []serde.Batch {
	t.Helper()
	var bs []serde.Batch
	n := 0
	for _, data := range r.Batches {
		for len(data) > 0 {
			b, rest, err := serde.ParseBatch(data)
			if err != nil {
				t.Fatal(err)
			}
			if !b.ChecksumOK() {
				t.Fatalf("batch at %d: wrong checksum", b.BaseOffset())
			}
			bs = append(bs, b)
			n += len(b)
			data = rest
		}
	}
	if n != r.Bytes {
		t.Fatalf("Bytes is %d, there are %d", r.Bytes, n)
	}
	return bs
}

// batchSpec makes record batches as a client would.
type batchSpec struct {
	pid     int64 // 0 means none
	epoch   int16
	seq     int32
	times   []int64 // one record each
	values  [][]byte
	nilKeys []int
	attrs   int16
	maxTime *int64
	body    func([]byte) []byte // compresses
}

func (s batchSpec) bytes() []byte {
	base := s.times[0]
	var body []byte
	largest := int64(-1)
	for i, ts := range s.times {
		largest = max(largest, ts)
		var r []byte
		r = append(r, 0)
		r = binary.AppendVarint(r, ts-base)
		r = binary.AppendVarint(r, int64(i))
		null := false
		for _, k := range s.nilKeys {
			null = null || k == i
		}
		if null {
			r = binary.AppendVarint(r, -1)
		} else {
			r = binary.AppendVarint(r, 1)
			r = append(r, 'k')
		}
		v := []byte("v")
		if i < len(s.values) {
			v = s.values[i]
		}
		r = binary.AppendVarint(r, int64(len(v)))
		r = append(r, v...)
		r = binary.AppendVarint(r, 0)
		body = binary.AppendVarint(body, int64(len(r)))
		body = append(body, r...)
	}
	if s.body != nil {
		body = s.body(body)
	}
	if s.maxTime != nil {
		largest = *s.maxTime
	}
	b := make([]byte, serde.BatchHeaderSize, serde.BatchHeaderSize+len(body))
	binary.BigEndian.PutUint64(b, 77) // clients may send anything
	binary.BigEndian.PutUint32(b[8:], uint32(len(body)+serde.BatchHeaderSize-12))
	binary.BigEndian.PutUint32(b[12:], 0xffffffff)
	b[16] = 2
	binary.BigEndian.PutUint16(b[21:], uint16(s.attrs))
	binary.BigEndian.PutUint32(b[23:], uint32(len(s.times)-1))
	binary.BigEndian.PutUint64(b[27:], uint64(base))
	binary.BigEndian.PutUint64(b[35:], uint64(largest))
	pid, epoch, seq := s.pid, s.epoch, s.seq
	if pid == 0 {
		pid, epoch, seq = -1, -1, -1
	}
	binary.BigEndian.PutUint64(b[43:], uint64(pid))
	binary.BigEndian.PutUint16(b[51:], uint16(epoch))
	binary.BigEndian.PutUint32(b[53:], uint32(seq))
	binary.BigEndian.PutUint32(b[57:], uint32(len(s.times)))
	b = append(b, body...)
	return seal(b)
}

// seal redoes the checksum.
func seal(b []byte) []byte {
	binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], crc32.MakeTable(crc32.Castagnoli)))
	return b
}

// batch has n records of now.
func batch(n int) []byte { return idempotent(0, 0, 0, n) }

func idempotent(pid int64, epoch int16, seq int32, n int) []byte {
	now := time.Now().UnixMilli()
	times := make([]int64, n)
	for i := range times {
		times[i] = now
	}
	return batchSpec{pid: pid, epoch: epoch, seq: seq, times: times}.bytes()
}

func offsets(bs []serde.Batch) (r []int64) {
	for _, b := range bs {
		r = append(r, b.BaseOffset())
	}
	return r
}

func message(seq pubsub.Seq, h pubsub.Header, size int) pubsub.Message {
	return pubsub.Message{Seq: seq, Time: time.Unix(1700000000, 0), Header: h, Size: size}
}

func equalMeta(a, b meta) bool { return reflect.DeepEqual(a, b) }
