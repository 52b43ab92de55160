package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/hanzoai/stream/logging"
)

// produceFlags are what was typed.
type produceFlags struct {
	file, key, separator, null, compression, acks string
	headers                                       []string
	partition                                     int32
	json                                          bool
}

var codecs = map[string]kgo.CompressionCodec{"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression()}

func produceCommand(o *options) *cobra.Command {
	var f produceFlags
	cmd := &cobra.Command{
		Use:   "produce TOPIC",
		Short: "Store records in a topic: one a line, from stdin or a file",
		Long: "Each line is the value of a record, without its line end. With --key-separator the key comes\n" +
			"first; with --json a line is a record as `stream consume -o json` writes it, of which topic,\n" +
			"partition and offset are ignored:\n\n" +
			"  {\"key\":\"k\",\"value\":\"v\",\"headers\":[{\"key\":\"h\",\"value\":\"x\"}],\"timestamp\":\"2026-11-30T08:15:00Z\"}\n\n" +
			"Bytes that are no text stand under key_base64 and value_base64; null is null. Whether a topic\n" +
			"that does not exist is created is up to the server. A record that is too large is left out;\n" +
			"any other failure ends it. Exit code 0 means that every line is stored.",
		Example: "  echo hello | stream produce greetings\n" +
			"  stream produce orders --file orders.txt --key-separator : --compression zstd\n" +
			"  stream consume orders -e -o json | stream produce copy --json",
		Args:              names("topic", 1),
		ValidArgsFunction: o.completeTopics(1),
	}
	o.bind(cmd, true, func(cmd *cobra.Command, args []string) (action, error) {
		p, err := f.producer(cmd, o)
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context, c *conn, cmd *cobra.Command, args []string) error {
			return p.run(ctx, c, cmd, args[0])
		}, nil
	})
	fs := cmd.Flags()
	fs.StringVarP(&f.file, "file", "f", "", "read this `file` instead of stdin")
	fs.StringVarP(&f.key, "key", "k", "", "`key` of every record")
	fs.StringVar(&f.separator, "key-separator", "", `what ends the key in a line, for example : or \t`)
	fs.StringArrayVarP(&f.headers, "header", "H", nil, "`name=value` of a header of every record, may be repeated")
	fs.StringVar(&f.null, "null-value", "", "a value or key that is this `text` is null")
	fs.Int32VarP(&f.partition, "partition", "p", -1, "partition; -1: chosen by the key, as Kafka's own clients do")
	fs.StringVar(&f.compression, "compression", "none", "none, gzip, snappy, lz4 or zstd")
	fs.StringVar(&f.acks, "acks", "all", "all, 1 or 0: who has to have a record before it counts; with 0 nobody is asked")
	fs.BoolVar(&f.json, "json", false, "each line is a record in JSON")
	complete(cmd, "compression", "none", "gzip", "snappy", "lz4", "zstd")
	complete(cmd, "acks", "all", "1", "0")
	return cmd
}

// producer is what a produce command does.
type producer struct {
	o     *options
	f     produceFlags
	parse func(line []byte) (*kgo.Record, error)
	opts  []kgo.Opt

	mu      sync.Mutex
	read    int64 // records handed to the client
	stored  int64
	failed  int64
	first   []string    // the first failures, in words
	fatal   bool        // one was not about size
	stalled *time.Timer // ends it when nothing is acknowledged
}

func (f produceFlags) producer(cmd *cobra.Command, o *options) (*producer, error) {
	codec, ok := codecs[f.compression]
	changed := cmd.Flags().Changed
	headers, err := headerFlags(cmd, f.headers)
	switch {
	case err != nil:
		return nil, err
	case !ok:
		return nil, usage(cmd, "--compression %q: none, gzip, snappy, lz4 or zstd is wanted", logging.Printable(f.compression))
	case f.json && (changed("key") || changed("key-separator") || changed("header") || changed("null-value")):
		return nil, usage(cmd, "--json says keys, headers and nulls itself")
	case changed("key") && changed("key-separator"):
		return nil, usage(cmd, "--key and --key-separator exclude each other")
	case f.partition < -1:
		return nil, usage(cmd, "--partition %d: 0 or more is wanted", f.partition)
	}
	p := &producer{o: o, f: f}
	p.opts = []kgo.Opt{
		kgo.AllowAutoTopicCreation(),
		kgo.ProducerBatchCompression(codec),
		kgo.MaxBufferedBytes(64 << 20),
	}
	if f.partition >= 0 {
		p.opts = append(p.opts, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	}
	switch f.acks {
	case "all", "-1":
	case "1":
		p.opts = append(p.opts, kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite())
	case "0":
		p.opts = append(p.opts, kgo.RequiredAcks(kgo.NoAck()), kgo.DisableIdempotentWrite())
	default:
		return nil, usage(cmd, "--acks %q: all, 1 or 0 is wanted", logging.Printable(f.acks))
	}
	if f.json {
		p.parse = parseJSON
		return p, nil
	}
	p.parse, err = lineParser(cmd, f, headers)
	return p, err
}

func (p *producer) run(ctx context.Context, c *conn, cmd *cobra.Command, topic string) error {
	in, size := cmd.InOrStdin(), int64(0)
	if p.f.file != "" {
		file, err := os.Open(p.f.file)
		if err != nil {
			return failed("", "%w", err)
		}
		defer file.Close()
		if st, err := file.Stat(); err == nil && st.Mode().IsRegular() {
			size = st.Size()
		}
		in = file
	} else if terminal(in) && terminal(cmd.ErrOrStderr()) {
		fmt.Fprintln(cmd.ErrOrStderr(), "a record is a line; Ctrl-D ends")
	}
	cl, err := c.client(append(p.opts, kgo.ProducerBatchMaxBytes(p.maxBatch(ctx, c, topic)))...)
	if err != nil {
		return failed("", "%w", err)
	}
	defer cl.Close()
	// The client works on after Ctrl-C: what was read is to be stored.
	sctx, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	p.stalled = time.AfterFunc(p.o.timeout, func() { stop(context.DeadlineExceeded) })
	p.stalled.Stop()
	defer p.stalled.Stop()

	bar := newProgress(cmd)
	inputErr := p.feed(ctx, sctx, cl, topic, readLines(in), bar, size)
	_ = cl.Flush(sctx) // what is missing is counted below
	bar.clear()
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.report(c, cmd, topic, ctx, sctx, inputErr)
}

// maxBatch is how large a batch of the topic may be. A topic that is not there
// yet, or does not say, gets what franz-go starts with.
func (p *producer) maxBatch(ctx context.Context, c *conn, topic string) int32 {
	const unknown = 1_000_012
	ctx, cancel := context.WithTimeout(ctx, p.o.timeout)
	defer cancel()
	rs, err := c.adm.DescribeTopicConfigs(ctx, topic)
	if err != nil {
		return unknown
	}
	rc, err := rs.On(topic, nil)
	if err != nil {
		return unknown
	}
	for _, cf := range rc.Configs {
		if cf.Key == "max.message.bytes" {
			if n, err := strconv.ParseInt(cf.MaybeValue(), 10, 32); err == nil {
				return int32(min(max(n, 512), 64<<20)) // what the client takes
			}
		}
	}
	return unknown
}

// feed hands lines to the client until they end, ctx does, or something fails.
func (p *producer) feed(ctx, sctx context.Context, cl *kgo.Client, topic string, lines <-chan inputLine, bar *progress, size int64) error {
	for {
		var l inputLine
		var ok bool
		select {
		case l, ok = <-lines:
		case <-ctx.Done():
			return ctx.Err()
		case <-sctx.Done():
			return nil
		}
		if !ok {
			return nil
		}
		if l.err != nil {
			return fmt.Errorf("line %d: %w", l.number, l.err)
		}
		r, err := p.parse(l.text)
		if err != nil {
			return fmt.Errorf("line %d: %w", l.number, err)
		}
		r.Topic, r.Partition = topic, max(p.f.partition, 0)
		p.mu.Lock()
		if p.fatal {
			p.mu.Unlock()
			return nil
		}
		if p.read == p.stored+p.failed {
			p.stalled.Reset(p.o.timeout)
		}
		p.read++
		n := p.stored
		p.mu.Unlock()
		cl.Produce(sctx, r, func(_ *kgo.Record, err error) { p.done(l.number, err) })
		if size > 0 {
			bar.show("%d records stored, %d %% of the file read", n, l.end*100/size)
		} else {
			bar.show("%d records stored", n)
		}
	}
}

// done counts what became of a record.
func (p *producer) done(line int64, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case err == nil:
		p.stored++
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return // nobody knows
	default:
		p.failed++
		p.fatal = p.fatal || !errors.Is(err, kerr.MessageTooLarge)
		if len(p.first) < 5 {
			p.first = append(p.first, fmt.Sprintf("line %d: %s", line, refusal(err, "")))
		}
	}
	if p.read == p.stored+p.failed {
		p.stalled.Stop()
	} else {
		p.stalled.Reset(p.o.timeout)
	}
}

// report says what was stored. p.mu is held.
func (p *producer) report(c *conn, cmd *cobra.Command, topic string, ctx, sctx context.Context, inputErr error) error {
	unknown := p.read - p.stored - p.failed
	verb := "stored"
	if p.f.acks == "0" {
		verb = "sent"
	}
	out := struct {
		Topic   string   `json:"topic"`
		Read    int64    `json:"read"`
		Stored  int64    `json:"stored"`
		Failed  int64    `json:"failed"`
		Unknown int64    `json:"unknown"` // not acknowledged: stored or not
		Errors  []string `json:"errors,omitempty"`
	}{topic, p.read, p.stored, p.failed, unknown, p.first}
	if err := p.o.print(cmd, out, func(w io.Writer) {
		fmt.Fprintf(w, "%s %s in %s\n", verb, plural(p.stored, "record"), logging.Printable(topic))
	}); err != nil && !closedPipe(err) {
		return err
	}
	for _, e := range p.first {
		fmt.Fprintf(cmd.ErrOrStderr(), "stream: %s\n", e)
	}
	count := fmt.Sprintf("%s %d of %s", verb, p.stored, plural(p.read, "record"))
	if unknown > 0 {
		count += fmt.Sprintf(", %d without an answer: stored or not", unknown)
	}
	if p.failed > 0 {
		count += fmt.Sprintf(", %d failed", p.failed)
	}
	interactive := p.f.file == "" && terminal(cmd.InOrStdin())
	switch {
	case unknown > 0 && sctx.Err() != nil:
		return &Error{Code: Unreachable, Err: fmt.Errorf("%s: no answer for %v", count, p.o.timeout), Hint: c.hint(nil)}
	case p.failed > 0 || unknown > 0:
		return failed("", "%s", count)
	case errors.Is(inputErr, context.Canceled) && ctx.Err() != nil:
		if interactive {
			return nil // it is how a person ends
		}
		return failed("", "interrupted; %s read until then", count)
	case inputErr != nil:
		return failed("", "%w; %s read until then", inputErr, count)
	}
	return nil
}
