package client

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/logging"
)

func topicCreate(o *options) *cobra.Command {
	var partitions int32
	var replicas int16
	var configs []string
	var unless bool
	cmd := &cobra.Command{
		Use:     "create NAME...",
		Short:   "Create topics",
		Long:    "Creates topics. What is not said is the server's default.",
		Example: "  stream topic create orders --partitions 3 --config retention.ms=86400000",
		Args:    names("topic", 0),
	}
	o.bind(cmd, true, func(cmd *cobra.Command, args []string) (action, error) {
		values, err := pairs(cmd, "config", configs)
		if err != nil {
			return nil, err
		}
		for _, f := range []string{"partitions", "replicas"} {
			if fl := cmd.Flags().Lookup(f); fl.Changed && strings.HasPrefix(fl.Value.String(), "-") || fl.Changed && fl.Value.String() == "0" {
				return nil, usage(cmd, "--%s %s: at least 1 is wanted", f, fl.Value)
			}
		}
		return o.within(func(ctx context.Context, c *conn, cmd *cobra.Command, args []string) error {
			args = unique(args)
			rs, err := c.adm.CreateTopics(ctx, partitions, replicas, values, args...)
			if err != nil {
				return err
			}
			var out []result
			for _, name := range args {
				r, ok := rs[name]
				x := result{Name: name}
				switch {
				case !ok:
					x.Error = "the server says nothing of it"
				case unless && errors.Is(r.Err, kerr.TopicAlreadyExists):
					x.Result = "exists"
				case r.Err != nil:
					x.Error = refusal(r.Err, r.ErrMessage)
				case r.NumPartitions > 0 && r.ReplicationFactor > 0:
					x.Result = fmt.Sprintf("created with %s, %s", plural(r.NumPartitions, "partition"), plural(r.ReplicationFactor, "replica"))
				default:
					x.Result = "created"
				}
				out = append(out, x)
			}
			return o.report(cmd, "topic", out)
		}), nil
	})
	cmd.Flags().Int32VarP(&partitions, "partitions", "p", -1, "number of partitions; -1 is the server's default")
	cmd.Flags().Int16VarP(&replicas, "replicas", "r", -1, "copies of each partition; -1 is the server's default")
	cmd.Flags().StringArrayVarP(&configs, "config", "c", nil, "`name=value` of a topic config, may be repeated")
	cmd.Flags().BoolVar(&unless, "if-not-exists", false, "a topic that exists is no failure, whatever it is like")
	completeConfigs(cmd, "config")
	return cmd
}

func topicAlter(o *options) *cobra.Command {
	var set, unset []string
	var partitions int
	cmd := &cobra.Command{
		Use:   "alter NAME...",
		Short: "Change configs of topics, or add partitions",
		Long: "Changes configs and then partitions. A config that is not named stays as it is, and --unset\n" +
			"brings the server's default back. Partitions can be added and not taken away; keys of records\n" +
			"then go to other partitions than before.",
		Example:           "  stream topic alter orders --set retention.ms=3600000 --unset max.message.bytes\n  stream topic alter orders --partitions 6",
		Args:              names("topic", 0),
		ValidArgsFunction: o.completeTopics(0),
	}
	o.bind(cmd, true, func(cmd *cobra.Command, args []string) (action, error) {
		values, err := pairs(cmd, "set", set)
		if err != nil {
			return nil, err
		}
		var changes []kadm.AlterConfig
		for _, s := range set {
			name, _, _ := strings.Cut(s, "=")
			changes = append(changes, kadm.AlterConfig{Op: kadm.SetConfig, Name: name, Value: values[name]})
		}
		for _, name := range unset {
			if _, ok := values[name]; ok || name == "" || strings.Contains(name, "=") {
				return nil, usage(cmd, "--unset %q: the name of a config that is not set here is wanted", logging.Printable(name))
			}
			changes = append(changes, kadm.AlterConfig{Op: kadm.DeleteConfig, Name: name})
		}
		grow := cmd.Flags().Changed("partitions")
		if grow && partitions < 1 {
			return nil, usage(cmd, "--partitions %d: at least 1 is wanted", partitions)
		}
		if len(changes) == 0 && !grow {
			return nil, usage(cmd, "nothing to change: --set, --unset or --partitions is wanted")
		}
		return o.within(func(ctx context.Context, c *conn, cmd *cobra.Command, args []string) error {
			return c.alterTopics(ctx, o, cmd, unique(args), changes, grow, partitions)
		}), nil
	})
	cmd.Flags().StringArrayVarP(&set, "set", "c", nil, "`name=value` of a topic config, may be repeated")
	cmd.Flags().StringArrayVar(&unset, "unset", nil, "`name` of a topic config to bring back to its default, may be repeated")
	cmd.Flags().IntVarP(&partitions, "partitions", "p", 0, "number of partitions to grow to")
	completeConfigs(cmd, "set")
	completeConfigs(cmd, "unset")
	return cmd
}

// alterTopics tells of both halves, whatever becomes of them.
func (c *conn) alterTopics(ctx context.Context, o *options, cmd *cobra.Command, topics []string, changes []kadm.AlterConfig, grow bool, partitions int) error {
	done, bad := map[string][]string{}, map[string][]string{}
	if len(changes) > 0 {
		rs, err := c.adm.AlterTopicConfigs(ctx, changes, topics...)
		if err != nil {
			return err
		}
		for _, name := range topics {
			switch r, err := rs.On(name, nil); {
			case err != nil && r.Err == nil:
				bad[name] = append(bad[name], "configs: the server says nothing of them")
			case r.Err != nil:
				bad[name] = append(bad[name], "configs: "+refusal(r.Err, r.ErrMessage))
			default:
				done[name] = append(done[name], plural(len(changes), "config")+" changed")
			}
		}
	}
	if grow {
		rs, err := c.adm.UpdatePartitions(ctx, partitions, topics...)
		if err != nil && len(changes) == 0 {
			return err
		}
		for _, name := range topics {
			switch r, ok := rs[name]; {
			case err != nil:
				bad[name] = append(bad[name], "partitions: "+err.Error())
			case !ok:
				bad[name] = append(bad[name], "partitions: the server says nothing of them")
			case r.Err != nil:
				bad[name] = append(bad[name], "partitions: "+refusal(r.Err, r.ErrMessage))
			default:
				done[name] = append(done[name], "grown to "+plural(partitions, "partition"))
			}
		}
	}
	var out []result
	for _, name := range topics {
		x := result{Name: name, Result: strings.Join(done[name], ", "), Error: strings.Join(bad[name], "; ")}
		if x.Error != "" && x.Result != "" {
			x.Error += " (but " + x.Result + ")"
		}
		out = append(out, x)
	}
	return o.report(cmd, "topic", out)
}

func topicDelete(o *options) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:               "delete NAME...",
		Short:             "Delete topics with all their records",
		Example:           "  stream topic delete orders\n  stream topic delete orders payments --yes",
		Args:              names("topic", 0),
		ValidArgsFunction: o.completeTopics(0),
	}
	o.bind(cmd, true, func(*cobra.Command, []string) (action, error) {
		return func(ctx context.Context, c *conn, cmd *cobra.Command, args []string) error {
			args = unique(args)
			if err := confirm(ctx, cmd, yes, fmt.Sprintf("Delete %s with all records: %s?", plural(len(args), "topic"), quoteAll(args))); err != nil {
				return err
			}
			return o.within(func(ctx context.Context, c *conn, cmd *cobra.Command, _ []string) error {
				rs, err := c.adm.DeleteTopics(ctx, args...)
				if err != nil {
					return err
				}
				var out []result
				for _, name := range args {
					r, ok := rs[name]
					x := result{Name: name, Result: "deleted"}
					if !ok {
						x.Result, x.Error = "", "the server says nothing of it"
					} else if r.Err != nil {
						x.Result, x.Error = "", refusal(r.Err, r.ErrMessage)
					}
					out = append(out, x)
				}
				return o.report(cmd, "topic", out)
			})(ctx, c, cmd, args)
		}, nil
	})
	yesFlag(cmd, &yes)
	return cmd
}

func topicTruncate(o *options) *cobra.Command {
	var yes, all bool
	var before string
	var only []int32
	cmd := &cobra.Command{
		Use:   "truncate NAME",
		Short: "Delete the oldest records of a topic",
		Long: "Deletes the records before an offset or time, or all of them. The topic stays, and so do\n" +
			"the offsets of what comes after.",
		Example:           "  stream topic truncate orders --before 1000 --partition 0\n  stream topic truncate orders --before 2026-11-30\n  stream topic truncate orders --all --yes",
		Args:              names("topic", 1),
		ValidArgsFunction: o.completeTopics(1),
	}
	o.bind(cmd, true, func(cmd *cobra.Command, args []string) (action, error) {
		if all == (before != "") {
			return nil, usage(cmd, "either --before or --all is wanted")
		}
		p, err := parseFlag(cmd, "before", before, position{kind: latest})
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context, c *conn, cmd *cobra.Command, args []string) error {
			return c.truncate(ctx, o, cmd, args[0], p, only, yes)
		}, nil
	})
	cmd.Flags().StringVar(&before, "before", "", "`position` of the first record to keep: "+positionHelp)
	cmd.Flags().BoolVar(&all, "all", false, "delete all records that are there now")
	cmd.Flags().Int32SliceVar(&only, "partition", nil, "only these partitions")
	yesFlag(cmd, &yes)
	return cmd
}

func (c *conn) truncate(ctx context.Context, o *options, cmd *cobra.Command, topic string, p position, only []int32, yes bool) error {
	var places []place
	if err := o.within(func(ctx context.Context, c *conn, _ *cobra.Command, _ []string) (err error) {
		if places, err = c.resolve(ctx, p, topic); err == nil {
			places, err = pick(places, topic, only)
		}
		return err
	})(ctx, c, cmd, nil); err != nil {
		return err
	}
	offsets, gone := kadm.Offsets{}, int64(0)
	for i, x := range places {
		if x.err != nil {
			return failed("nothing was deleted", "%s", x.bad())
		}
		if p.kind == atOffset && p.n > x.next {
			return failed("nothing was deleted", "partition %s-%d ends before offset %d: %s", logging.Printable(topic), x.partition, x.next, refusal(kerr.OffsetOutOfRange, ""))
		}
		offsets.AddOffset(topic, x.partition, x.at, -1)
		gone += places[i].at - places[i].first
	}
	if err := confirm(ctx, cmd, yes, fmt.Sprintf("Delete the first %s of %s in %s?", plural(gone, "offset"), logging.Printable(topic), plural(len(places), "partition"))); err != nil {
		return err
	}
	return o.within(func(ctx context.Context, c *conn, cmd *cobra.Command, _ []string) error {
		rs, err := c.adm.DeleteRecords(ctx, offsets)
		if err != nil {
			return err
		}
		var out []result
		for _, x := range places {
			y := result{Name: fmt.Sprintf("%s-%d", topic, x.partition)}
			switch r, ok := rs.Lookup(topic, x.partition); {
			case !ok:
				y.Error = "the server says nothing of it"
			case r.Err != nil:
				y.Error = refusal(r.Err, "")
			default:
				y.Result = fmt.Sprintf("begins at offset %d", r.LowWatermark)
			}
			out = append(out, y)
		}
		return o.report(cmd, "partition", out)
	})(ctx, c, cmd, nil)
}

// pick keeps the partitions named in only, all if it is empty; one that is not
// there is an error.
func pick(places []place, topic string, only []int32) ([]place, error) {
	if len(only) == 0 {
		return places, nil
	}
	var out []place
	for _, n := range only {
		found := false
		for _, x := range places {
			if x.topic == topic && (x.partition == n || x.partition < 0) {
				out, found = append(out, x), true
			}
		}
		if !found {
			return nil, failed("stream topic describe shows the partitions", "topic %s has no partition %d", logging.Printable(topic), n)
		}
	}
	return out, nil
}

// pairs reads name=value of a flag.
func pairs(cmd *cobra.Command, flag string, in []string) (map[string]*string, error) {
	out := map[string]*string{}
	for _, s := range in {
		name, value, ok := strings.Cut(s, "=")
		if !ok || name == "" {
			return nil, usage(cmd, "--%s %q: name=value is wanted", flag, logging.Printable(s))
		}
		if _, twice := out[name]; twice {
			return nil, usage(cmd, "--%s names %s twice", flag, logging.Printable(name))
		}
		out[name] = &value
	}
	return out, nil
}

// parseFlag reads a position from a flag; empty is def.
func parseFlag(cmd *cobra.Command, flag, s string, def position) (position, error) {
	if s == "" {
		return def, nil
	}
	p, err := parsePosition(s, time.Now())
	if err != nil {
		return p, usage(cmd, "--%s: %w", flag, err)
	}
	return p, nil
}
