package client

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/logging"
)

func topicCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{Use: "topic", Short: "List, create, change, compact and delete topics"}
	cmd.AddCommand(topicList(o), topicDescribe(o), topicCreate(o), topicAlter(o), topicDelete(o), topicOffsets(o), topicTruncate(o), topicCompact(o))
	return cmd
}

// topicLine is one topic of a list.
type topicLine struct {
	Name       string `json:"name"`
	ID         string `json:"topic_id"`
	Partitions int    `json:"partitions"`
	Replicas   int    `json:"replicas"`
	Internal   bool   `json:"internal"`
	Error      string `json:"error,omitempty"`
}

func topicList(o *options) *cobra.Command {
	var internal bool
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List topics",
		Example: "  stream topic list -o json",
		Args:    noArgs,
	}
	o.ask(cmd, func(ctx context.Context, c *conn, cmd *cobra.Command, _ []string) error {
		topics, err := c.adm.ListTopicsWithInternal(ctx)
		if err != nil {
			return err
		}
		lines := []topicLine{}
		for _, t := range topics.Sorted() {
			if t.IsInternal && !internal {
				continue
			}
			l := topicLine{Name: t.Topic, ID: topicID(t.ID), Partitions: len(t.Partitions), Replicas: t.Partitions.NumReplicas(), Internal: t.IsInternal}
			if t.Err != nil {
				l.Error = refusal(t.Err, "")
			}
			lines = append(lines, l)
		}
		if err := o.print(cmd, lines, func(w io.Writer) {
			row(w, "NAME", "PARTITIONS", "REPLICAS")
			for _, l := range lines {
				row(w, l.Name, l.Partitions, l.Replicas)
			}
		}); err != nil {
			return err
		}
		var bad []error
		for _, l := range lines {
			if l.Error != "" {
				bad = append(bad, fmt.Errorf("topic %s: %s", logging.Printable(l.Name), l.Error))
			}
		}
		if len(bad) > 0 {
			return failed("", "%w", errors.Join(bad...))
		}
		return nil
	})
	cmd.Flags().BoolVar(&internal, "internal", false, "show Kafka's internal topics too")
	return cmd
}

// topicDetail is one topic described.
type topicDetail struct {
	Name       string            `json:"name"`
	ID         string            `json:"topic_id"`
	Internal   bool              `json:"internal"`
	Partitions []partitionDetail `json:"partitions"`
	Configs    []configDetail    `json:"configs"`
}

type partitionDetail struct {
	Partition int32   `json:"partition"`
	Leader    int32   `json:"leader"` // -1: none
	Replicas  []int32 `json:"replicas"`
	InSync    []int32 `json:"in_sync"`
	First     *int64  `json:"earliest"` // nil: unknown
	Next      *int64  `json:"latest"`
	Error     string  `json:"error,omitempty"`
}

type configDetail struct {
	Name   string  `json:"name"`
	Value  *string `json:"value"` // nil: secret
	Source string  `json:"source"`
}

func topicDescribe(o *options) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:               "describe NAME...",
		Short:             "Show partitions, offsets and configs of topics",
		Example:           "  stream topic describe orders\n  stream topic describe orders --all-configs -o yaml",
		Args:              names("topic", 0),
		ValidArgsFunction: o.completeTopics(0),
	}
	o.ask(cmd, func(ctx context.Context, c *conn, cmd *cobra.Command, args []string) error {
		details, bad, err := c.describeTopics(ctx, unique(args), all)
		if err != nil {
			return err
		}
		return printDetails(o, cmd, details, bad)
	})
	cmd.Flags().BoolVar(&all, "all-configs", false, "show configs that have their default too")
	return cmd
}

func (d topicDetail) table(w io.Writer) {
	fmt.Fprintf(w, "topic %s (id %s)\n", logging.Printable(d.Name), d.ID)
	row(w, "PARTITION", "LEADER", "REPLICAS", "IN SYNC", "EARLIEST", "LATEST")
	for _, p := range d.Partitions {
		row(w, p.Partition, number(p.Leader), list(p.Replicas), list(p.InSync), known(p.First), known(p.Next))
	}
	if len(d.Configs) > 0 {
		fmt.Fprintln(w)
		row(w, "CONFIG", "VALUE", "SOURCE")
		for _, c := range d.Configs {
			v := "(secret)"
			if c.Value != nil {
				v = *c.Value
			}
			row(w, c.Name, v, c.Source)
		}
	}
}

// describeTopics gathers what is known of topics; bad has a line for each that
// could not be described wholly.
func (c *conn) describeTopics(ctx context.Context, topics []string, all bool) (out []topicDetail, bad []string, err error) {
	out = []topicDetail{}
	meta, err := c.adm.ListTopics(ctx, topics...)
	if err != nil {
		return nil, nil, err
	}
	var there []string
	for _, name := range topics {
		switch t, ok := meta[name]; {
		case !ok:
			bad = append(bad, fmt.Sprintf("topic %s: the server says nothing of it", logging.Printable(name)))
		case t.Err != nil:
			bad = append(bad, fmt.Sprintf("topic %s: %s", logging.Printable(name), refusal(t.Err, "")))
		default:
			there = append(there, name)
		}
	}
	if len(there) == 0 {
		return out, bad, nil
	}
	b, err := c.bounds(ctx, there...)
	missing, err := partly(err)
	if err != nil {
		return nil, nil, err
	}
	if missing == "" {
		missing = "the server says nothing of its offsets"
	}
	configs, err := c.adm.DescribeTopicConfigs(ctx, there...)
	if err != nil {
		return nil, nil, err
	}
	for _, name := range there {
		t := meta[name]
		d := topicDetail{Name: name, ID: topicID(t.ID), Internal: t.IsInternal, Partitions: []partitionDetail{}, Configs: []configDetail{}}
		for _, p := range t.Partitions.Sorted() {
			x := partitionDetail{Partition: p.Partition, Leader: p.Leader, Replicas: orEmpty(p.Replicas), InSync: orEmpty(p.ISR)}
			first, ok := b.first.Lookup(name, p.Partition)
			next, ok2 := b.next.Lookup(name, p.Partition)
			switch e := errors.Join(p.Err, first.Err, next.Err); {
			case e != nil:
				x.Error = refusal(e, "")
			case !ok || !ok2:
				x.Error = missing
			default:
				x.First, x.Next = &first.Offset, &next.Offset
			}
			if x.Error != "" {
				bad = append(bad, fmt.Sprintf("partition %s-%d: %s", logging.Printable(name), p.Partition, x.Error))
			}
			d.Partitions = append(d.Partitions, x)
		}
		rc, err := configs.On(name, nil)
		if err == nil {
			err = rc.Err
		}
		if err != nil {
			bad = append(bad, fmt.Sprintf("configs of %s: %s", logging.Printable(name), refusal(err, rc.ErrMessage)))
		}
		for _, cf := range rc.Configs {
			if all || cf.Source == kmsg.ConfigSourceDynamicTopicConfig {
				d.Configs = append(d.Configs, configDetail{cf.Key, cf.Value, cf.Source.String()})
			}
		}
		slices.SortFunc(d.Configs, func(a, b configDetail) int { return strings.Compare(a.Name, b.Name) })
		out = append(out, d)
	}
	return out, bad, nil
}

// several tells of failures; the command has failed if there
// is one.
func several(cmd *cobra.Command, bad []string) error {
	switch {
	case len(bad) == 0:
		return nil
	case len(bad) == 1:
		return failed("", "%s", bad[0])
	}
	for _, b := range bad {
		fmt.Fprintf(cmd.ErrOrStderr(), "stream: %s\n", b)
	}
	return failed("", "%s", plural(len(bad), "failure"))
}

func topicOffsets(o *options) *cobra.Command {
	var at string
	cmd := &cobra.Command{
		Use:               "offsets NAME",
		Short:             "Show the first and the next offset of every partition, or those of a time",
		Example:           "  stream topic offsets orders\n  stream topic offsets orders --at 2026-11-30T08:15:00Z\n  stream topic offsets orders --at 90m",
		Args:              names("topic", 1),
		ValidArgsFunction: o.completeTopics(1),
	}
	type line struct {
		Partition int32  `json:"partition"`
		First     int64  `json:"earliest"`
		Next      int64  `json:"latest"`
		At        *int64 `json:"at,omitempty"`
		Error     string `json:"error,omitempty"`
	}
	o.bind(cmd, true, func(cmd *cobra.Command, args []string) (action, error) {
		p, err := parseFlag(cmd, "at", at, position{kind: latest})
		if err != nil {
			return nil, err
		}
		return o.within(func(ctx context.Context, c *conn, cmd *cobra.Command, args []string) error {
			places, err := c.resolve(ctx, p, args...)
			if err != nil {
				return err
			}
			lines, bad := []line{}, []string{}
			for _, x := range places {
				l := line{Partition: x.partition, First: x.first, Next: x.next}
				if at != "" {
					l.At = &x.at
				}
				if x.err != nil {
					bad = append(bad, x.bad())
					if l.Error = refusal(x.err, ""); x.partition < 0 {
						continue
					}
				}
				lines = append(lines, l)
			}
			if len(lines) > 0 {
				if err := o.print(cmd, lines, func(w io.Writer) {
					head := []any{"PARTITION", "EARLIEST", "LATEST"}
					if at != "" {
						head = append(head, "AT")
					}
					row(w, head...)
					for _, l := range lines {
						cells := []any{l.Partition, l.First, l.Next}
						if l.Error != "" {
							cells = []any{l.Partition, "?", "?"}
						}
						if at != "" && l.Error == "" {
							cells = append(cells, *l.At)
						}
						row(w, cells...)
					}
				}); err != nil {
					return err
				}
			}
			return several(cmd, bad)
		}), nil
	})
	cmd.Flags().StringVar(&at, "at", "", "`position` to look up as well: "+positionHelp)
	return cmd
}

// bad is the failure of a place in words.
func (x place) bad() string {
	if x.partition < 0 {
		return fmt.Sprintf("topic %s: %s", logging.Printable(x.topic), refusal(x.err, ""))
	}
	return fmt.Sprintf("partition %s-%d: %s", logging.Printable(x.topic), x.partition, refusal(x.err, ""))
}

// topicID is the form that Kafka's own tools show.
func topicID(id kadm.TopicID) string { return base64.RawURLEncoding.EncodeToString(id[:]) }

func unique(names []string) []string {
	var out []string
	for _, n := range names {
		if !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	return out
}

func orEmpty(s []int32) []int32 {
	if s == nil {
		return []int32{}
	}
	return s
}

func list(s []int32) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(s), " ", ","), "[]")
}

func number(n int32) string {
	if n < 0 {
		return "none"
	}
	return fmt.Sprint(n)
}

func known(n *int64) string {
	if n == nil {
		return "?"
	}
	return fmt.Sprint(*n)
}
