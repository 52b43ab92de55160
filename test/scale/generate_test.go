package scale

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/broker/partition"
	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/pubsub/jetstream"
	"github.com/hanzoai/stream/types"
)

// target is a partition that exists and is empty.
type target struct {
	topic string
	id    types.TopicID
	n     int32
}

func (g target) stream() string  { return fmt.Sprintf("kafka-%s-%d", g.topic, g.n) }
func (g target) subject() string { return fmt.Sprintf("kafka.%s.%d", g.topic, g.n) }

// generator fills partitions as a gateway would: its own appends, with its own
// headers, snapshots and index.
type generator struct {
	store   *jetstream.Store
	records *records
	host    *partition.Host
	pipe    *pipeline
	open    map[target]*partition.Partition
}

// records is the table of partition records, which refuses snapshots when told
// to.
type records struct {
	pubsub.Table
	frozen atomic.Bool
}

// Set implements pubsub.Table.
func (r *records) Set(ctx context.Context, w pubsub.Write) (pubsub.Rev, error) {
	if r.frozen.Load() && strings.Contains(w.Key, ".s.") {
		return 0, pubsub.ErrUnavailable
	}
	return r.Table.Set(ctx, w)
}

// loseSnapshot deletes what the record of a partition names as its snapshot.
func (r *records) loseSnapshot(t *testing.T, of target) {
	t.Helper()
	v, err := r.Get(t.Context(), fmt.Sprintf("%s.%d", of.id, of.n))
	if err != nil {
		t.Fatal(err)
	}
	var record struct{ Snapshot struct{ Chunks []string } }
	if err := json.Unmarshal(v.Data, &record); err != nil || len(record.Snapshot.Chunks) == 0 {
		t.Fatalf("record %s names no snapshot: %v", v.Data, err)
	}
	for _, k := range record.Snapshot.Chunks {
		old, err := r.Get(t.Context(), k)
		if err == nil {
			_, err = pubsub.Put(t.Context(), r.Table, pubsub.Write{Key: k, Expect: old.Rev, Delete: true})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func newGenerator(t *testing.T, url string) *generator {
	t.Helper()
	store, err := jetstream.Connect(t.Context(), jetstream.Config{URL: url, Name: "scale"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	table, err := store.Table(t.Context(), pubsub.TableConfig{Name: "kafka-partitions", Replicas: 1})
	if err != nil {
		t.Fatal(err)
	}
	g := &generator{store: store, records: &records{Table: table}, pipe: newPipeline(t, url), open: map[target]*partition.Partition{}}
	g.host = partition.NewHost(partition.Env{Store: store, Records: g.records, Gateway: "scale", Subjects: "kafka.>"})
	done := make(chan error, 1)
	go func() { done <- g.host.Run(context.Background()) }()
	t.Cleanup(func() {
		g.host.Stop()
		if err := <-done; err != nil {
			t.Errorf("generator: %v", err)
		}
	})
	return g
}

// close ends it without a snapshot, as a kill would, but with all stored.
func (g *generator) close(t *testing.T) {
	t.Helper()
	if err := g.pipe.flushAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	g.host.Stop()
	g.store.Close()
	g.pipe.nc.Close()
}

// drain writes the snapshots that are due at a shutdown.
func (g *generator) drain(t *testing.T) {
	t.Helper()
	if err := g.pipe.flushAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := g.host.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// series is what one idempotent producer sends to one partition: message i has
// perMessage records, record r has timestamp first + r.
type series struct {
	producer int64
	first    time.Time
	batch    []byte
	records  int // sent so far
}

// perMessage is the number of records in a message.
const perMessage = 3

const (
	atBaseTime, atMaxTime, atProducer, atEpoch, atSequence, atCount = 27, 35, 43, 51, 53, 57

	valueBytes = 100
)

func newSeries(producer int64, first time.Time) *series {
	var body []byte
	for i := range perMessage {
		r := kmsg.Record{TimestampDelta64: int64(i), OffsetDelta: int32(i), Key: fmt.Appendf(nil, "key-%d", i), Value: make([]byte, valueBytes)}
		r.Length = int32(len(r.AppendTo(nil)) - 1) // a length of 0 takes a byte
		body = r.AppendTo(body)
	}
	b := make([]byte, 61, 61+len(body))
	binary.BigEndian.PutUint32(b[8:], uint32(49+len(body)))
	b[16] = 2
	binary.BigEndian.PutUint32(b[23:], perMessage-1)
	binary.BigEndian.PutUint64(b[atProducer:], uint64(producer))
	binary.BigEndian.PutUint32(b[atCount:], perMessage)
	return &series{producer: producer, first: first, batch: append(b, body...)}
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// next is the next batch, in the memory of the last one.
func (s *series) next() []byte {
	b, at := s.batch, s.first.UnixMilli()+int64(s.records)
	binary.BigEndian.PutUint64(b[atBaseTime:], uint64(at))
	binary.BigEndian.PutUint64(b[atMaxTime:], uint64(at+perMessage-1))
	binary.BigEndian.PutUint32(b[atSequence:], uint32(s.records))
	binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], castagnoli))
	s.records += perMessage
	return b
}

// fill appends messages to a partition, one batch each.
func (g *generator) fill(ctx context.Context, p *partition.Partition, s *series, messages int) error {
	done := make(chan partition.AppendResult, 1)
	for range messages {
		want := s.records
		p.Submit(partition.AppendRequest{Records: s.next()}, func(r partition.AppendResult) { done <- r })
		select {
		case r := <-done:
			if r.Err != nil {
				return fmt.Errorf("%s: append at %d: %w %s", p, want, r.Err, r.Message)
			}
			if int(r.BaseOffset) != want {
				return fmt.Errorf("%s: stored at offset %d instead of %d", p, r.BaseOffset, want)
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// partition opens one.
func (g *generator) partition(ctx context.Context, to target) (*partition.Partition, error) {
	p := g.open[to]
	if p == nil {
		log := g.store.Log(to.stream(), to.subject())
		b, err := log.Bounds(ctx)
		if err != nil {
			return nil, err
		}
		log = g.pipe.log(log, to.subject(), b.Last)
		p = g.host.Open(partition.OpenSpec{Topic: to.topic, ID: to.id, Partition: to.n, Log: log,
			Config: partition.Config{MaxMessageBytes: 1 << 20, MaxAheadMillis: time.Hour.Milliseconds(), MaxBehindMillis: 1 << 60}})
		g.open[to] = p
	}
	return p, nil
}

// fillAll fills many, some at a time.
func (g *generator) fillAll(t *testing.T, to []target, ss []*series, messages int) {
	t.Helper()
	begin := time.Now()
	next := make(chan int)
	var workers sync.WaitGroup
	var mu sync.Mutex
	var failed error
	for range min(4, len(to)) {
		workers.Go(func() {
			for i := range next {
				mu.Lock()
				p, err := g.partition(t.Context(), to[i])
				mu.Unlock()
				if err == nil {
					err = g.fill(t.Context(), p, ss[i], messages)
				}
				if err != nil {
					mu.Lock()
					failed = err
					mu.Unlock()
				}
			}
		})
	}
	for i := range to {
		next <- i
	}
	close(next)
	workers.Wait()
	if failed != nil {
		t.Fatal(failed)
	}
	if err := g.pipe.flushAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	took := time.Since(begin)
	n := messages * len(to)
	t.Logf("generated %d messages with %d records in %v: %.0f messages/s", n, n*perMessage, took.Round(time.Millisecond), float64(n)/took.Seconds())
}
