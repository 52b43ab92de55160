package cli

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/hanzoai/stream/test/e2e/broker"
	"github.com/hanzoai/stream/test/e2e/tools"
	"github.com/hanzoai/stream/test/testkit"
)

// TestC23CompactedTopic: Kafka's own consumer, librdkafka and franz-go read a topic
// of which nearly everything was compacted away, and that ends with a transaction of
// which nothing is left but its marker, to its end: their position is the end
// offset. Records were compressed with every codec.
func TestC23CompactedTopic(t *testing.T) {
	t.Parallel()
	for _, kind := range broker.Kinds([]string{broker.Embedded}) {
		if kind == broker.Kafka { // compacts nothing of its newest segment
			continue
		}
		t.Run(kind, func(t *testing.T) {
			b := broker.StartWith(t, kind, broker.Options{Properties: []string{"log.cleaner.backoff.ms=1000"}})
			const topic = "cli.compacted"
			cl, err := kgo.NewClient(kgo.SeedBrokers(b.Addr))
			if err != nil {
				t.Fatal(err)
			}
			defer cl.Close()
			adm := kadm.NewClient(cl)
			policy := "compact"
			if _, err := adm.CreateTopic(t.Context(), 1, 1, map[string]*string{"cleanup.policy": &policy}, topic); err != nil {
				t.Fatal(err)
			}
			var want []string
			next := 0
			codecs := map[string]kgo.CompressionCodec{"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression()}
			for _, name := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
				overwrite(t, b, topic, codecs[name], "", func(round int) []*kgo.Record {
					var rs []*kgo.Record
					for i := range 50 { // the same keys in every batch, and one that stays
						rs = append(rs, kgo.KeySliceRecord([]byte(fmt.Sprint("key-", i)), []byte(fmt.Sprint(name, "-", round))))
					}
					rs = append(rs, kgo.KeySliceRecord([]byte(fmt.Sprint(name, "-", round)), []byte(fmt.Sprint(name, "-", round))))
					want = append(want, fmt.Sprint(name, "-", round))
					next += len(rs)
					return rs
				})
			}
			// Overwritten by what comes after it, but for the marker.
			overwrite(t, b, topic, kgo.NoCompression(), "cli.compacted", func(int) []*kgo.Record {
				next += 2
				return []*kgo.Record{kgo.KeySliceRecord([]byte("key-0"), []byte("transaction"))}
			})
			overwrite(t, b, topic, kgo.NoCompression(), "", func(int) []*kgo.Record {
				var rs []*kgo.Record
				for i := range 50 {
					rs = append(rs, kgo.KeySliceRecord([]byte(fmt.Sprint("key-", i)), []byte(fmt.Sprint("last-", i))))
				}
				next += len(rs)
				return rs
			})
			for i := range 50 {
				want = append(want, fmt.Sprint("last-", i))
			}
			// The newest message is a marker: records before it, aborted ones.
			abort(t, b, topic)
			next += 2

			// The end of a transaction is answered before its markers are written.
			testkit.Poll(t, 20*time.Second, "the last marker", func() error {
				ends, err := adm.ListEndOffsets(t.Context(), topic)
				if end, _ := ends.Lookup(topic, 0); err == nil && end.Offset != int64(next) {
					err = fmt.Errorf("the end is %d, want %d", end.Offset, next)
				}
				return err
			})
			compactTo(t, b, topic, next-1)

			t.Run("kafka", func(t *testing.T) {
				out := tool(t, b, "kafka-console-consumer", "--topic", topic, "--group", "cli.compacted", "--from-beginning", "--timeout-ms", "4000",
					"--command-property", "isolation.level=read_committed", "--command-property", "auto.offset.reset=earliest").Must(t).Stdout
				equal(t, "records", lines(out), want)
				at, err := adm.FetchOffsets(t.Context(), "cli.compacted")
				if err != nil {
					t.Fatal(err)
				}
				if o, _ := at.Lookup(topic, 0); o.At != int64(next) {
					t.Errorf("position %d, the end is %d", o.At, next)
				}
			})
			t.Run("librdkafka", func(t *testing.T) {
				res := tools.Kcat(t, "-C", "-b", b.Addr, "-t", topic, "-o", "beginning", "-e", "-f", "%s\n", "-X", "isolation.level=read_committed").Must(t)
				equal(t, "records", lines(res.Stdout), want)
				if !strings.Contains(res.Stderr, fmt.Sprintf("at offset %d", next)) {
					t.Errorf("position: %s, the end is %d", res.Stderr, next)
				}
			})
			t.Run("franz-go", func(t *testing.T) {
				cl, err := kgo.NewClient(kgo.SeedBrokers(b.Addr), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(),
					kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}))
				if err != nil {
					t.Fatal(err)
				}
				defer cl.Close()
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				var got []string
				for position := int64(0); position < int64(next); {
					fs := cl.PollFetches(ctx)
					if err := fs.Err(); err != nil {
						t.Fatalf("at %d of %d: %v", position, next, err)
					}
					fs.EachRecord(func(r *kgo.Record) {
						if position = r.Offset + 1; !r.Attrs.IsControl() {
							got = append(got, string(r.Value))
						}
					})
				}
				equal(t, "records", got, want)
			})
		})
	}
}

// overwrite sends batches: ten, or with the name of a transaction one that commits.
func overwrite(t *testing.T, b *broker.Broker, topic string, codec kgo.CompressionCodec, transaction string, batch func(round int) []*kgo.Record) {
	t.Helper()
	opts := []kgo.Opt{kgo.SeedBrokers(b.Addr), kgo.DefaultProduceTopic(topic), kgo.ProducerBatchCompression(codec), kgo.ProducerLinger(50 * time.Millisecond)}
	rounds := 10
	if transaction != "" {
		opts, rounds = append(opts, kgo.TransactionalID(transaction)), 1
	}
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if transaction != "" {
		if err := cl.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
	}
	for i := range rounds {
		if err := cl.ProduceSync(t.Context(), batch(i)...).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	if transaction != "" {
		if err := cl.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
			t.Fatal(err)
		}
	}
}

// abort leaves a record that was aborted and its marker.
func abort(t *testing.T, b *broker.Broker, topic string) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.Addr), kgo.DefaultProduceTopic(topic), kgo.TransactionalID("cli.compacted.aborted"))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if err := cl.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := cl.ProduceSync(t.Context(), kgo.KeySliceRecord([]byte("key-1"), []byte("aborted"))).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if err := cl.EndTransaction(t.Context(), kgo.TryAbort); err != nil {
		t.Fatal(err)
	}
}

// compactTo has stream compact a topic up to an offset, with its own command.
func compactTo(t *testing.T, b *broker.Broker, topic string, offset int) {
	t.Helper()
	out := tools.Run{Path: testkit.Binary(t), Args: []string{"topic", "compact", topic, "--wait", "-b", b.Addr, "--admin", b.Admin, "-o", "json"}}.Must(t).Stdout
	if want := fmt.Sprintf(`"compacted_to": %d,`, offset); !strings.Contains(out, want) {
		t.Errorf("compacted: %s, want %s", out, want)
	}
}
