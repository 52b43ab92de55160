package client

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/hanzoai/stream/logging"
)

// move is where a group's offset of one partition goes.
type move struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Old       *int64 `json:"old"` // nil: nothing was committed
	New       int64  `json:"new"`
	Error     string `json:"error,omitempty"`
}

func groupReset(o *options) *cobra.Command {
	var topics []string
	var only []int32
	var to string
	var shift int64
	var dry bool
	cmd := &cobra.Command{
		Use:   "reset NAME --topic TOPIC",
		Short: "Set where a group goes on reading",
		Long: "Commits other offsets for a group of which no consumer is running. --dry-run shows them and\n" +
			"changes nothing. Positions outside of a partition are moved to its nearest end.",
		Example:           "  stream group reset readers --topic orders --to earliest --dry-run\n  stream group reset readers --topic orders --to 2026-11-30T08:15:00Z\n  stream group reset readers --topic orders --partition 2 --shift -10",
		Args:              names("group", 1),
		ValidArgsFunction: o.completeGroups(1),
	}
	o.bind(cmd, true, func(cmd *cobra.Command, _ []string) (action, error) {
		if err := needTopics(cmd, topics, only); err != nil {
			return nil, err
		}
		shifted := cmd.Flags().Changed("shift")
		if shifted == (to != "") {
			return nil, usage(cmd, "either --to or --shift is wanted")
		}
		p, err := parseFlag(cmd, "to", to, position{kind: latest})
		if err != nil {
			return nil, err
		}
		return o.within(func(ctx context.Context, c *conn, cmd *cobra.Command, args []string) error {
			group := args[0]
			moves, err := c.plan(ctx, group, unique(topics), only, p, shifted, shift)
			if err != nil {
				return err
			}
			var bad []string
			if !dry {
				if bad, err = c.commit(ctx, group, moves); err != nil {
					return err
				}
			}
			if err := o.print(cmd, moves, func(w io.Writer) {
				row(w, "TOPIC", "PARTITION", "OLD", "NEW")
				for _, m := range moves {
					was := "-"
					if m.Old != nil {
						was = fmt.Sprint(*m.Old)
					}
					cells := []any{m.Topic, m.Partition, was, m.New}
					if m.Error != "" {
						cells[3] = "failed"
					}
					row(w, cells...)
				}
				if dry {
					fmt.Fprintln(w, "nothing was changed: it was a dry run")
				}
			}); err != nil {
				return err
			}
			return several(cmd, bad)
		}), nil
	})
	cmd.Flags().StringArrayVarP(&topics, "topic", "t", nil, "`topic`, may be repeated")
	cmd.Flags().Int32SliceVar(&only, "partition", nil, "only these partitions of the topic")
	cmd.Flags().StringVar(&to, "to", "", "`position`: "+positionHelp)
	cmd.Flags().Int64Var(&shift, "shift", 0, "move the committed offset by so many, back if negative")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "show what would be committed, change nothing")
	_ = cmd.RegisterFlagCompletionFunc("topic", o.completeTopics(0))
	complete(cmd, "to", "earliest", "latest")
	return cmd
}

func needTopics(cmd *cobra.Command, topics []string, only []int32) error {
	switch {
	case len(topics) == 0 || slices.Contains(topics, ""):
		return usage(cmd, "--topic is missing")
	case len(only) > 0 && len(topics) > 1:
		return usage(cmd, "--partition goes with one --topic")
	}
	return nil
}

// plan finds the new offsets. Nothing is changed if one cannot be found.
func (c *conn) plan(ctx context.Context, group string, topics []string, only []int32, p position, shifted bool, shift int64) ([]move, error) {
	described, err := c.adm.DescribeGroups(ctx, group)
	if err != nil {
		return nil, err
	}
	if n := len(described[group].Members); n > 0 {
		return nil, failed("stop its consumers; their own commits would undo it", "group %s has %s", logging.Printable(group), plural(n, "member"))
	}
	committed, err := c.adm.FetchOffsets(ctx, group)
	if err != nil {
		return nil, err
	}
	places, err := c.resolve(ctx, p, topics...)
	if err != nil {
		return nil, err
	}
	if places, err = pick(places, topics[0], only); err != nil {
		return nil, err
	}
	moves := []move{}
	for _, x := range places {
		if x.err != nil {
			return nil, failed("nothing was changed", "%s", x.bad())
		}
		m := move{Topic: x.topic, Partition: x.partition, New: x.at}
		if old, ok := committed.Lookup(x.topic, x.partition); ok && old.Err != nil {
			return nil, failed("nothing was changed", "committed offset of %s-%d: %s", logging.Printable(x.topic), x.partition, refusal(old.Err, ""))
		} else if ok && old.At >= 0 {
			m.Old = &old.At
		}
		if shifted {
			if m.Old == nil {
				return nil, failed("nothing was changed; use --to, or --partition for those that have one", "group %s has no committed offset in %s-%d to shift", logging.Printable(group), logging.Printable(x.topic), x.partition)
			}
			m.New = min(max(*m.Old+shift, x.first), x.next)
		}
		moves = append(moves, m)
	}
	return moves, nil
}

// commit commits moves, and has a line for each that failed.
func (c *conn) commit(ctx context.Context, group string, moves []move) (bad []string, _ error) {
	offsets := kadm.Offsets{}
	for _, m := range moves {
		offsets.AddOffset(m.Topic, m.Partition, m.New, -1)
	}
	rs, err := c.adm.CommitOffsets(ctx, group, offsets)
	if err != nil {
		return nil, err
	}
	for i := range moves {
		m := &moves[i]
		switch r, ok := rs.Lookup(m.Topic, m.Partition); {
		case !ok:
			m.Error = "the server says nothing of it"
		case r.Err != nil:
			m.Error = refusal(r.Err, "")
		default:
			continue
		}
		bad = append(bad, fmt.Sprintf("partition %s-%d: %s", logging.Printable(m.Topic), m.Partition, m.Error))
	}
	return bad, nil
}

func quoteAll(names []string) string { return logging.Printable(strings.Join(names, ", ")) }
