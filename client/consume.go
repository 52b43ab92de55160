package client

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/hanzoai/stream/logging"
)

func consumeCommand(o *options) *cobra.Command {
	var group, from, template, null, output string
	var only []int32
	var count int64
	var untilEnd bool
	cmd := &cobra.Command{
		Use:   "consume TOPIC...",
		Short: "Print records of topics",
		Long: "Prints records and waits for more, until Ctrl-C, --count or --until-end. With --group the\n" +
			"group's committed offsets say where to begin, and --from only where there are none; what was\n" +
			"printed is committed. A template of --format may hold\n\n" + formatHelp + "\n\n" +
			"With -o json a line is a record, and binary keys and values stand under key_base64 and\n" +
			"value_base64; `stream produce --json` reads it.",
		Example: "  stream consume greetings --until-end\n" +
			"  stream consume orders --group readers --count 10\n" +
			"  stream consume orders --from 90m --format '%p:%o %k=%v\\n'",
		Args:              names("topic", 0),
		ValidArgsFunction: o.completeTopics(0),
	}
	o.bind(cmd, false, func(cmd *cobra.Command, args []string) (action, error) {
		x := &consumer{o: o, group: group, only: only, topics: unique(args), count: count, untilEnd: untilEnd, json: output == "json"}
		changed := cmd.Flags().Changed
		var err error
		if x.from, err = parseFlag(cmd, "from", from, position{kind: earliest}); err != nil {
			return nil, err
		}
		if x.format, err = parseFormat(template, null); err != nil {
			return nil, usage(cmd, "--format: %w", err)
		}
		switch {
		case output != "text" && output != "json":
			return nil, usage(cmd, "-o %q: text or json is wanted", logging.Printable(output))
		case x.json && (changed("format") || changed("null-value")):
			return nil, usage(cmd, "--format and --null-value are for -o text")
		case changed("count") && count < 1:
			return nil, usage(cmd, "--count %d: at least 1 is wanted", count)
		case len(only) > 0 && group != "":
			return nil, usage(cmd, "--partition: a group assigns partitions itself")
		case len(only) > 0 && len(x.topics) > 1:
			return nil, usage(cmd, "--partition goes with one topic")
		case changed("group") && group == "":
			return nil, usage(cmd, "--group is empty")
		}
		return x.run, nil
	})
	fs := cmd.Flags()
	fs.StringVarP(&group, "group", "g", "", "read as a member of this `group` and commit what was printed")
	fs.StringVar(&from, "from", "", "`position` to begin at, default earliest: "+positionHelp)
	fs.Int32SliceVarP(&only, "partition", "p", nil, "only these partitions of the topic")
	fs.Int64VarP(&count, "count", "n", 0, "end after so many records")
	fs.BoolVarP(&untilEnd, "until-end", "e", false, "end after the last record that is there now")
	fs.StringVarP(&template, "format", "f", `%v\n`, "`template` of a record")
	fs.StringVar(&null, "null-value", "", "`text` for a key or value that is null")
	fs.StringVarP(&output, "output", "o", "text", "text or json")
	complete(cmd, "output", "text", "json")
	complete(cmd, "from", "earliest", "latest")
	_ = cmd.RegisterFlagCompletionFunc("group", o.completeGroups(0))
	return cmd
}

// partitionID is a partition of a topic.
type partitionID struct {
	topic     string
	partition int32
}

// consumer is what a consume command does.
type consumer struct {
	o              *options
	group          string
	topics         []string
	only           []int32
	from           position
	count          int64
	untilEnd, json bool
	format         format

	printed int64
	starts  map[partitionID]place // when it began

	mu       sync.Mutex
	joined   bool                  // a group has assigned partitions, or none
	assigned map[partitionID]bool  // what is read
	next     map[partitionID]int64 // offset after what was read, as far as it is known
}

func (x *consumer) run(ctx context.Context, c *conn, cmd *cobra.Command, _ []string) error {
	x.starts, x.next, x.assigned = map[partitionID]place{}, map[partitionID]int64{}, map[partitionID]bool{}
	var opts []kgo.Opt
	if err := x.o.within(func(ctx context.Context, c *conn, _ *cobra.Command, _ []string) (err error) {
		opts, err = x.begin(ctx, c)
		return err
	})(ctx, c, cmd, nil); err != nil {
		return err
	}
	out := &outage{w: cmd.ErrOrStderr()}
	cl, err := c.client(append(opts, kgo.KeepControlRecords(), kgo.WithHooks(out))...)
	if err != nil {
		return failed("", "%w", err)
	}
	defer cl.Close() // leaves the group
	err = x.loop(ctx, c, cl, cmd)
	out.over()
	if x.group != "" {
		cctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), x.o.timeout)
		defer cancel()
		if cerr := cl.CommitMarkedOffsets(cctx); cerr != nil && (err == nil || closedPipe(err)) {
			err = failed("the records printed will be read again", "commit: %s", refusal(cerr, ""))
		}
	}
	return err
}

// begin finds where to begin and what the client has to be like.
func (x *consumer) begin(ctx context.Context, c *conn) ([]kgo.Opt, error) {
	places, err := c.resolve(ctx, x.from, x.topics...)
	if err != nil {
		return nil, err
	}
	if places, err = pick(places, x.topics[0], x.only); err != nil {
		return nil, err
	}
	direct := map[string]map[int32]kgo.Offset{}
	for _, p := range places {
		if p.err != nil {
			return nil, failed("stream topic list shows the topics", "%s", p.bad())
		}
		id := partitionID{p.topic, p.partition}
		x.starts[id] = p
		if x.group == "" {
			x.assigned[id], x.next[id], x.joined = true, p.at, true
			if direct[p.topic] == nil {
				direct[p.topic] = map[int32]kgo.Offset{}
			}
			direct[p.topic][p.partition] = kgo.NewOffset().At(p.at)
		}
	}
	if x.group == "" {
		return []kgo.Opt{kgo.ConsumePartitions(direct)}, nil
	}
	return []kgo.Opt{
		kgo.ConsumerGroup(x.group),
		kgo.ConsumeTopics(x.topics...),
		kgo.ConsumeResetOffset(x.from.offset()),
		kgo.AutoCommitMarks(),
		// As Java's consumers offer, so that they can be in the same group.
		kgo.Balancers(kgo.RangeBalancer(), kgo.CooperativeStickyBalancer()),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, m map[string][]int32) { x.assign(m, true) }),
		kgo.OnPartitionsRevoked(func(ctx context.Context, cl *kgo.Client, m map[string][]int32) {
			_ = cl.CommitMarkedOffsets(ctx) // else the next member reads them again, no more
			x.assign(m, false)
		}),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, m map[string][]int32) { x.assign(m, false) }),
	}, nil
}

func (x *consumer) assign(m map[string][]int32, ours bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.joined = x.joined || ours
	for t, ps := range m {
		for _, p := range ps {
			if ours {
				x.assigned[partitionID{t, p}] = true
			} else {
				delete(x.assigned, partitionID{t, p})
				delete(x.next, partitionID{t, p}) // another member reads on
			}
		}
	}
}

// idle is how long nothing comes until one looks whether it is the end.
const idle = 300 * time.Millisecond

// growth is how often one looks for new partitions.
const growth = 2 * time.Second

// grow reads partitions too that have been added since, from their beginning. A
// group does so by itself. Where nobody answers it is tried again later.
func (x *consumer) grow(ctx context.Context, c *conn, cl *kgo.Client) {
	ctx, cancel := context.WithTimeout(ctx, growth)
	defer cancel()
	topics, err := c.adm.ListTopics(ctx, x.topics...)
	if err != nil {
		return
	}
	more := map[string]map[int32]kgo.Offset{}
	x.mu.Lock()
	defer x.mu.Unlock()
	topics.EachPartition(func(p kadm.PartitionDetail) {
		id := partitionID{p.Topic, p.Partition}
		if p.Err != nil || x.assigned[id] {
			return
		}
		x.assigned[id] = true
		if more[p.Topic] == nil {
			more[p.Topic] = map[int32]kgo.Offset{}
		}
		more[p.Topic][p.Partition] = kgo.NewOffset().AtStart()
	})
	if len(more) > 0 {
		cl.AddConsumePartitions(more)
	}
}

// loop prints until it is told to end.
func (x *consumer) loop(ctx context.Context, c *conn, cl *kgo.Client, cmd *cobra.Command) error {
	out := bufio.NewWriterSize(cmd.OutOrStdout(), 64<<10)
	bar := newProgress(cmd)
	defer bar.clear()
	heard, looked := time.Now(), time.Now()
	for {
		if x.untilEnd && x.done() {
			return nil
		}
		most := 10_000
		if x.count > 0 {
			most = int(min(x.count-x.printed, int64(most)))
		}
		pctx, cancel := ctx, context.CancelFunc(func() {})
		switch {
		case x.untilEnd:
			pctx, cancel = context.WithTimeout(ctx, idle)
		case x.group == "" && len(x.only) == 0:
			if time.Since(looked) > growth {
				x.grow(ctx, c, cl)
				looked = time.Now()
			}
			pctx, cancel = context.WithTimeout(ctx, growth)
		}
		fetches := cl.PollRecords(pctx, most)
		cancel()
		if err := x.print(out, cl, fetches); err != nil {
			return err
		}
		if fetches.NumRecords() > 0 {
			heard = time.Now()
		}
		bar.show("%d records", x.printed)
		switch {
		case x.count > 0 && x.printed >= x.count, ctx.Err() != nil:
			return nil
		}
		if err := x.trouble(cmd, fetches, pctx); err != nil {
			return err
		}
		if x.untilEnd && fetches.NumRecords() == 0 {
			if err := x.look(ctx, c); err == nil {
				heard = time.Now()
			} else if time.Since(heard) > x.o.timeout {
				return err
			}
		}
	}
}

// print writes what came, and lets it be committed when it has been written.
func (x *consumer) print(out *bufio.Writer, cl *kgo.Client, fetches kgo.Fetches) error {
	var b bytes.Buffer
	var records []*kgo.Record
	var err error
	next := map[partitionID]int64{}
	fetches.EachRecord(func(r *kgo.Record) {
		id := partitionID{r.Topic, r.Partition}
		next[id] = r.Offset + 1
		records = append(records, r)
		start, known := x.starts[id]
		if err != nil || r.Attrs.IsControl() || x.untilEnd && known && r.Offset >= start.next {
			return
		}
		b.Reset()
		if x.json {
			jsonLine(&b, r)
		} else {
			for _, f := range x.format {
				f(&b, r)
			}
		}
		if _, err = out.Write(b.Bytes()); err == nil {
			x.printed++
		}
	})
	if err == nil {
		err = out.Flush()
	}
	if err != nil {
		return fmt.Errorf("write: %w", err)
	}
	if x.group != "" {
		cl.MarkCommitRecords(records...)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for id, n := range next {
		if x.assigned[id] {
			x.next[id] = n
		}
	}
	return nil
}

// trouble looks at what a poll has failed with.
func (x *consumer) trouble(cmd *cobra.Command, fetches kgo.Fetches, pctx context.Context) error {
	var fatal error
	fetches.EachError(func(t string, p int32, err error) {
		loss := (*kgo.ErrDataLoss)(nil)
		switch {
		case pctx.Err() != nil && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)):
		case errors.As(err, &loss):
			fmt.Fprintf(cmd.ErrOrStderr(), "stream: %s\n", logging.Printable(err.Error()))
		case fatal == nil && t == "":
			fatal = err
		case fatal == nil:
			fatal = failed("", "partition %s-%d: %s", logging.Printable(t), p, refusal(err, ""))
		}
	})
	return fatal
}

// outage tells once that a server cannot be reached while one waits for it.
type outage struct {
	w    io.Writer
	mu   sync.Mutex
	down bool
	end  bool // nobody waits any more
}

// over is for the end: a connection that is being made then fails too, and that
// says nothing of the server.
func (h *outage) over() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.end = true
}

// OnBrokerConnect implements kgo.HookBrokerConnect.
func (h *outage) OnBrokerConnect(_ kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if down := err != nil; down != h.down && !h.end && !errors.Is(err, context.Canceled) {
		if h.down = down; down {
			fmt.Fprintf(h.w, "stream: no connection, trying again: %v\n", err)
		} else {
			fmt.Fprintln(h.w, "stream: connected again")
		}
	}
}
