package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/hanzoai/stream/broker"
	"github.com/hanzoai/stream/broker/group"
	"github.com/hanzoai/stream/broker/partition"
	"github.com/hanzoai/stream/broker/topic"
	"github.com/hanzoai/stream/logging"
	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/types"
)

func repairCommand(environ []string) *cobra.Command {
	var accept bool
	var output string
	cmd := &cobra.Command{
		Use:   "repair [topic-partition]",
		Short: "Show partitions that are stopped, and bring one back",
		Long: "Without an argument lists the partitions that cannot be served, and streams that nothing\n" +
			"explains. With one (orders-0) shows what is stored of it, what is wrong, and what each\n" +
			"remedy would do. Nothing is changed without --accept-loss.\n\n" +
			"It takes the same configuration as serve. Gateways on an external NATS server may run\n" +
			"meanwhile; the folder of an embedded one must be free, or the server listen to NATS\n" +
			"clients (--nats-listen) and be named here with --pubsub-url.",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usageError(fmt.Sprintf("unexpected argument %q", logging.Printable(args[1])), "repair takes one partition at a time")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			if accept && len(args) == 0 {
				return usageError("--accept-loss needs the one partition to repair", "name it as topic-partition, for example orders-0")
			}
			var tp types.TopicPartition
			if len(args) == 1 {
				var err error
				if tp, err = parsePartition(args[0]); err != nil {
					return err
				}
			}
			l, err := loadConfig(cmd, environ)
			if err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			r, err := openRepair(ctx, l, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			defer r.close()
			if len(args) == 0 {
				return r.list(ctx, cmd.OutOrStdout(), output)
			}
			return r.one(ctx, tp, accept, cmd.OutOrStdout(), cmd.ErrOrStderr(), output)
		},
	}
	bindFlags(cmd)
	cmd.Flags().BoolVar(&accept, "accept-loss", false, "bring the partition back with what is left of it")
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	return cmd
}

func checkOutput(o string) error {
	if o != "table" && o != "json" {
		return usageError(fmt.Sprintf("-o %q: table or json is wanted", logging.Printable(o)), "")
	}
	return nil
}

// parsePartition reads topic-N; topics may have dashes of their own.
func parsePartition(s string) (types.TopicPartition, error) {
	i := strings.LastIndexByte(s, '-')
	if i > 0 {
		if n, err := strconv.ParseInt(s[i+1:], 10, 32); err == nil && n >= 0 && topic.CheckName(s[:i]) == nil {
			return types.TopicPartition{Topic: s[:i], Partition: int32(n)}, nil
		}
	}
	return types.TopicPartition{}, usageError(fmt.Sprintf("%q is not topic-partition", logging.Printable(s)), "for example orders-0")
}

// repair is what the command works with.
type repair struct {
	store   pubsub.Store
	alone   bool // the folder is ours: no gateway can run
	topics  *topic.Topics
	records pubsub.Table
	offsets pubsub.Table // nil if there is none
	close   func()
}

// openRepair opens the store as serve does, but makes nothing in it.
func openRepair(ctx context.Context, l *loaded, stderr io.Writer) (_ *repair, err error) {
	if !l.external() && l.Storage == "memory" && !l.isSet("data-dir") {
		return nil, usageError("an embedded store in memory ends with its server: there is nothing to repair", "")
	}
	if !l.external() {
		if _, err := os.Stat(l.DataDir); errors.Is(err, os.ErrNotExist) {
			return nil, &exitError{code: exitStore, err: fmt.Errorf("there is no data folder %s", l.DataDir), hint: "name the server's folder with --data-dir, or its NATS server with --pubsub-url"}
		}
	}
	st, stop, err := openForTools(ctx, l, stderr)
	if err != nil {
		return nil, err
	}
	r := &repair{store: st, alone: !l.external(), close: stop}
	defer func() {
		if err != nil {
			stop()
		}
	}()
	tables := map[string]pubsub.Table{}
	for _, name := range []string{"meta", "topics", "partitions", "consumer-offsets"} {
		full := l.Prefix + "-" + name
		ok, err := st.HasTable(ctx, full)
		if err != nil {
			return nil, &exitError{code: exitStore, err: err}
		}
		if !ok && name == "consumer-offsets" {
			continue
		}
		if !ok {
			return nil, &exitError{code: exitFailed, err: fmt.Errorf("there is no bucket %s", full),
				hint: "restore it from a backup; if nothing was ever stored, check --prefix, --data-dir or --pubsub-url"}
		}
		if tables[name], err = st.Table(ctx, pubsub.TableConfig{Name: full}); err != nil {
			return nil, &exitError{code: exitStore, err: err}
		}
	}
	cluster, err := broker.ClusterID(ctx, tables["meta"])
	if err != nil {
		return nil, brokerError(err)
	}
	r.records, r.offsets = tables["partitions"], tables["consumer-offsets"]
	r.topics = topic.New(l.brokerConfig(l.advertise(l.Port)).Topic, topic.Deps{
		Table: tables["topics"], Store: st, Cluster: cluster, Incarnation: func() string { return "" },
	})
	return r, nil
}

// trouble is one line of the list.
type trouble struct {
	Partition string          `json:"partition"`
	Stream    string          `json:"stream"`
	State     string          `json:"state"` // stopped, lost, unreadable, silent
	Why       string          `json:"why"`
	Stop      *partition.Stop `json:"stop,omitempty"`
}

func (r *repair) list(ctx context.Context, w io.Writer, output string) error {
	in, err := r.topics.Inspect(ctx)
	if err != nil {
		return &exitError{code: exitStore, err: err}
	}
	records, err := partition.ListRecords(ctx, r.records)
	if err != nil {
		return &exitError{code: exitStore, err: err}
	}
	// The topic of a record that cannot be read may be anyone's.
	strays := []string{}
	if len(in.Unreadable) == 0 {
		found, err := partition.Strays(ctx, r.records, func(id types.TopicID) bool { return in.Known[id] })
		if err != nil {
			return &exitError{code: exitStore, err: err}
		}
		strays = append(strays, found...)
	}
	byKey := make(map[string]*partition.Listed, len(records))
	for i := range records {
		byKey[records[i].Key] = &records[i]
	}
	found := []trouble{}
	for _, t := range in.Topics {
		for n := range t.Partitions {
			spec := r.topics.Partition(t, n)
			x := trouble{Partition: fmt.Sprintf("%s-%d", t.Name, n), Stream: spec.LogConfig.Name}
			rec := byKey[partition.RecordKey(t.ID, n)]
			_, there := in.Streams[spec.LogConfig.Name]
			silent := slices.Contains(in.Silent, spec.LogConfig.Name)
			switch {
			case rec == nil && !there && !silent:
				x.State, x.Why = "lost", "stream and partition record are missing"
			case rec == nil:
				x.State, x.Why = "lost", "the partition record is missing"
			case rec.Problem != "":
				x.State, x.Why = "unreadable", rec.Problem
			case !there && !silent:
				x.State, x.Why, x.Stop = "lost", "the stream is missing", rec.Stop
			case rec.Stop != nil:
				x.State, x.Stop = "stopped", rec.Stop
				x.Why = fmt.Sprintf("%s at sequence %d: %s (found by %s, %s)", rec.Stop.Kind, rec.Stop.Sequence, rec.Stop.Why, rec.Stop.Finder, rec.Stop.At.Format(time.RFC3339))
			case silent:
				x.State, x.Why = "silent", "the stream exists and does not answer: look at the NATS cluster"
			default:
				continue
			}
			found = append(found, x)
		}
	}
	unread := make([]trouble, 0, len(in.Unreadable))
	for _, why := range in.Unreadable {
		unread = append(unread, trouble{Partition: "-", State: "unreadable", Why: why})
	}
	slices.SortFunc(unread, func(a, b trouble) int { return strings.Compare(a.Why, b.Why) })
	found = append(found, unread...)
	unexplained := append([]string{}, in.Unexplained...)
	if output == "json" {
		return writeJSON(w, struct {
			Partitions  []trouble `json:"partitions"`
			Unexplained []string  `json:"unexplained_streams"`
			Strays      []string  `json:"unexplained_partition_keys"`
		}{found, unexplained, strays})
	}
	var out strings.Builder
	if len(found) == 0 {
		out.WriteString("no partition is stopped or lost\n")
	} else {
		tw := tabwriter.NewWriter(&out, 0, 4, 2, ' ', 0)
		fmt.Fprintln(tw, "PARTITION\tSTATE\tSTREAM\tWHY")
		for _, x := range found {
			fmt.Fprintf(tw, "%s\t%s\t%s\t%s\n", x.Partition, x.State, x.Stream, oneLine(x.Why))
		}
		_ = tw.Flush() // to a strings.Builder
		out.WriteString("\n`stream repair <partition>` shows one of them and what can be done\n")
	}
	for _, s := range unexplained {
		fmt.Fprintf(&out, "stream %s: no topic explains it; it is left alone (delete it with the nats tool if nobody needs it)\n", s)
	}
	for _, k := range strays {
		fmt.Fprintf(&out, "key %s of %s: no topic explains it; it is left alone\n", k, r.records.Name())
	}
	_, err = io.WriteString(w, out.String())
	return err
}

func (r *repair) one(ctx context.Context, tp types.TopicPartition, accept bool, w, stderr io.Writer, output string) error {
	in, err := r.topics.Inspect(ctx)
	if err != nil {
		return &exitError{code: exitStore, err: err}
	}
	i := slices.IndexFunc(in.Topics, func(t *topic.Topic) bool { return t.Name == tp.Topic })
	if i < 0 || tp.Partition >= in.Topics[i].Partitions {
		return &exitError{code: exitFailed, err: fmt.Errorf("there is no partition %s", tp), hint: "stream repair lists those in trouble"}
	}
	p := r.topics.Partition(in.Topics[i], tp.Partition)
	spec := partition.RepairSpec{Topic: p.Topic, ID: p.ID, Partition: p.N, Log: p.LogConfig, KnownFrom: "a committed offset"}
	if r.offsets != nil {
		if spec.Known, err = group.Highest(ctx, r.offsets, p.ID, tp); err != nil {
			return &exitError{code: exitStore, err: err}
		}
	}
	host, _ := os.Hostname()
	env := partition.RepairEnv{Store: r.store, Records: r.records, Alone: r.alone, By: "stream repair on " + host, Waiting: func(d time.Duration) {
		fmt.Fprintf(stderr, "waiting %v until appends on their way are over\n", d.Round(time.Second))
	}}
	var rep *partition.Report
	if accept {
		rep, err = partition.AcceptLoss(ctx, env, spec)
	} else {
		rep, err = partition.Survey(ctx, env, spec)
	}
	switch {
	case errors.Is(err, partition.ErrHealthy):
		return &exitError{code: exitFailed, err: fmt.Errorf("%s: %w: nothing was changed", tp, err)}
	case errors.Is(err, pubsub.ErrUnavailable):
		return &exitError{code: exitStore, err: err}
	case err != nil:
		return err
	}
	if output == "json" {
		return writeJSON(w, rep)
	}
	return writeReport(w, rep)
}

func writeReport(w io.Writer, rep *partition.Report) error {
	var out strings.Builder
	fmt.Fprintf(&out, "%s-%d (topic id %s)\n", rep.Topic, rep.Partition, rep.TopicID)
	fmt.Fprintf(&out, "  stream:    %s, subject %s\n", rep.Stream, rep.Subject)
	if !slices.Contains(rep.Lost, "stream") {
		fmt.Fprintf(&out, "  sequences: %d to %d, %d messages\n", rep.FirstSequence, rep.LastSequence, rep.Messages)
	}
	if !slices.Contains(rep.Lost, "record") {
		fmt.Fprintf(&out, "  record:    log start %d, %d earlier breaks, snapshot %s\n", rep.LogStart, rep.Breaks, rep.Snapshot)
	}
	fmt.Fprintf(&out, "  offsets:   what fits ends before %d; the highest known is %d (%s)\n", rep.Next, rep.Highest-1, rep.HighestFrom)
	if rep.Stop != nil {
		fmt.Fprintf(&out, "  stopped:   %s, by %s\n", rep.Stop.At.Format(time.RFC3339), rep.Stop.Finder)
	}
	if rep.Done != "" {
		fmt.Fprintf(&out, "\ndone: %s\n", rep.Done)
	}
	if len(rep.Trouble) == 0 {
		out.WriteString("\nnothing is wrong with it\n")
	} else {
		out.WriteString("\nwhat is wrong\n")
		for _, t := range rep.Trouble {
			fmt.Fprintf(&out, "  - %s\n", oneLine(t))
		}
	}
	if len(rep.Around) > 0 {
		out.WriteString("\nwhat stands there\n")
		for _, m := range rep.Around {
			fmt.Fprintf(&out, "  %d: %s\n", m.Sequence, oneLine(m.What))
		}
	}
	if len(rep.Remedies) > 0 {
		out.WriteString("\nwhat can be done\n")
		for _, m := range rep.Remedies {
			fmt.Fprintf(&out, "  %s\n      %s\n", m.Name, oneLine(m.Effect))
		}
	}
	_, err := io.WriteString(w, out.String())
	return err
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
