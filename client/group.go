package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/logging"
)

func groupCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{Use: "group", Short: "List, look into, reset and delete consumer groups"}
	offsets := &cobra.Command{Use: "offsets", Short: "Delete committed offsets of a group"}
	offsets.AddCommand(groupOffsetsDelete(o))
	cmd.AddCommand(groupList(o), groupDescribe(o), groupReset(o), groupDelete(o), offsets)
	return cmd
}

func groupList(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List consumer groups and their states",
		Example: "  stream group list",
		Args:    noArgs,
	}
	type line struct {
		Name         string `json:"name"`
		State        string `json:"state"`
		Type         string `json:"type"`
		ProtocolType string `json:"protocol_type"`
		Coordinator  int32  `json:"coordinator"`
	}
	o.ask(cmd, func(ctx context.Context, c *conn, cmd *cobra.Command, _ []string) error {
		groups, err := c.adm.ListGroups(ctx)
		missing, err := partly(err)
		if err != nil {
			return err
		}
		lines := []line{}
		for _, g := range groups.Sorted() {
			lines = append(lines, line{g.Group, g.State, g.GroupType, g.ProtocolType, g.Coordinator})
		}
		if err := o.print(cmd, lines, func(w io.Writer) {
			row(w, "NAME", "STATE", "TYPE", "COORDINATOR")
			for _, l := range lines {
				row(w, l.Name, l.State, l.Type, l.Coordinator)
			}
		}); err != nil || missing == "" {
			return err
		}
		return failed("the groups of others are missing from the list", "%s", missing)
	})
	return cmd
}

// groupDetail is one group described.
type groupDetail struct {
	Name        string         `json:"name"`
	State       string         `json:"state"`
	Protocol    string         `json:"protocol"` // how partitions are assigned
	Coordinator int32          `json:"coordinator"`
	Members     []memberDetail `json:"members"`
	Offsets     []lagDetail    `json:"offsets"`
	Lag         int64          `json:"lag"` // all partitions together, those without a commit aside
}

type memberDetail struct {
	ID         string `json:"member_id"`
	Instance   string `json:"instance_id,omitempty"`
	Client     string `json:"client_id"`
	Host       string `json:"host"`
	Partitions int    `json:"partitions"`
}

type lagDetail struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Committed *int64 `json:"committed"` // nil: nothing
	Next      *int64 `json:"latest"`    // nil: unknown
	Lag       *int64 `json:"lag"`
	Member    string `json:"member_id,omitempty"`
	Error     string `json:"error,omitempty"`
}

func groupDescribe(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:               "describe NAME...",
		Short:             "Show members of groups, committed offsets and what is still to be read",
		Example:           "  stream group describe readers\n  stream group describe readers -o json",
		Args:              names("group", 0),
		ValidArgsFunction: o.completeGroups(0),
	}
	o.ask(cmd, func(ctx context.Context, c *conn, cmd *cobra.Command, args []string) error {
		args = unique(args)
		lags, err := c.adm.Lag(ctx, args...)
		if err != nil {
			return err
		}
		details, bad := []groupDetail{}, []string{}
		for _, name := range args {
			l, ok := lags[name]
			switch err := errors.Join(l.DescribeErr, l.FetchErr); {
			case !ok:
				bad = append(bad, fmt.Sprintf("group %s: the server says nothing of it", logging.Printable(name)))
				continue
			case err != nil:
				bad = append(bad, fmt.Sprintf("group %s: %s", logging.Printable(name), refusal(err, "")))
				continue
			case l.State == "Dead" && len(l.Lag) == 0: // older brokers say that of any name
				bad = append(bad, fmt.Sprintf("group %s: %s", logging.Printable(name), refusal(kerr.GroupIDNotFound, "")))
				continue
			}
			d := groupDetailOf(l)
			for _, x := range d.Offsets {
				if x.Error != "" {
					bad = append(bad, fmt.Sprintf("group %s, partition %s-%d: %s", logging.Printable(name), logging.Printable(x.Topic), x.Partition, x.Error))
				}
			}
			details = append(details, d)
		}
		return printDetails(o, cmd, details, bad)
	})
	return cmd
}

func groupDetailOf(l kadm.DescribedGroupLag) groupDetail {
	d := groupDetail{Name: l.Group, State: l.State, Protocol: l.Protocol, Coordinator: l.Coordinator.NodeID, Members: []memberDetail{}, Offsets: []lagDetail{}}
	for _, m := range l.Members {
		x := memberDetail{ID: m.MemberID, Client: m.ClientID, Host: m.ClientHost}
		if m.InstanceID != nil {
			x.Instance = *m.InstanceID
		}
		if a, ok := m.Assigned.AsConsumer(); ok {
			for _, t := range a.Topics {
				x.Partitions += len(t.Partitions)
			}
		}
		d.Members = append(d.Members, x)
	}
	for _, p := range l.Lag.Sorted() {
		x := lagDetail{Topic: p.Topic, Partition: p.Partition}
		if p.Member != nil {
			x.Member = p.Member.MemberID
		}
		if p.Commit.At >= 0 {
			x.Committed = &p.Commit.At
		}
		if p.End.Err == nil {
			x.Next = &p.End.Offset
		}
		switch {
		case p.Err != nil:
			x.Error = refusal(p.Err, "")
		case x.Committed != nil:
			x.Lag = &p.Lag
			d.Lag += p.Lag
		}
		d.Offsets = append(d.Offsets, x)
	}
	return d
}

func (d groupDetail) table(w io.Writer) {
	fmt.Fprintf(w, "group %s: %s, %s, lag %d\n", logging.Printable(d.Name), logging.Printable(d.State), plural(len(d.Members), "member"), d.Lag)
	if len(d.Offsets) > 0 {
		fmt.Fprintln(w)
		row(w, "TOPIC", "PARTITION", "COMMITTED", "LATEST", "LAG", "MEMBER")
		for _, x := range d.Offsets {
			committed, lag := "-", "-"
			if x.Committed != nil {
				committed = known(x.Committed)
			}
			if x.Lag != nil {
				lag = known(x.Lag)
			}
			row(w, x.Topic, x.Partition, committed, known(x.Next), lag, x.Member)
		}
	}
	if len(d.Members) > 0 {
		fmt.Fprintln(w)
		row(w, "MEMBER", "CLIENT", "HOST", "INSTANCE", "PARTITIONS")
		for _, m := range d.Members {
			row(w, m.ID, m.Client, m.Host, m.Instance, m.Partitions)
		}
	}
}

func groupDelete(o *options) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:               "delete NAME...",
		Short:             "Delete groups with their committed offsets",
		Example:           "  stream group delete readers",
		Args:              names("group", 0),
		ValidArgsFunction: o.completeGroups(0),
	}
	o.bind(cmd, true, func(*cobra.Command, []string) (action, error) {
		return func(ctx context.Context, c *conn, cmd *cobra.Command, args []string) error {
			args = unique(args)
			if err := confirm(ctx, cmd, yes, fmt.Sprintf("Delete %s with all committed offsets: %s?", plural(len(args), "group"), quoteAll(args))); err != nil {
				return err
			}
			return o.within(func(ctx context.Context, c *conn, cmd *cobra.Command, args []string) error {
				rs, err := c.adm.DeleteGroups(ctx, args...)
				out, partly, err := results(args, "deleted", err)
				if err != nil {
					return err
				}
				for i, name := range args {
					r, ok := rs[name]
					switch {
					case ok && r.Err != nil:
						out[i].Result, out[i].Error = "", refusal(r.Err, r.ErrMessage)
					case !ok:
						out[i].Result, out[i].Error = "", partly
					}
				}
				return o.report(cmd, "group", out)
			})(ctx, c, cmd, args)
		}, nil
	})
	yesFlag(cmd, &yes)
	return cmd
}

// results are the names of a request of which the parts go to several brokers,
// all done as far as one knows. Of what stays unanswered partly is the reason.
func results(names []string, done string, err error) (out []result, partly string, _ error) {
	partly = "the server says nothing of it"
	if s := (*kadm.ShardErrors)(nil); errors.As(err, &s) && !s.AllFailed && len(s.Errs) > 0 {
		partly, err = refusal(s.Errs[0].Err, ""), nil
	}
	for _, n := range names {
		out = append(out, result{Name: n, Result: done})
	}
	return out, partly, err
}

func groupOffsetsDelete(o *options) *cobra.Command {
	var yes bool
	var topics []string
	var only []int32
	cmd := &cobra.Command{
		Use:               "delete NAME --topic TOPIC",
		Short:             "Delete a group's committed offsets of topics that it no longer reads",
		Example:           "  stream group offsets delete readers --topic orders",
		Args:              names("group", 1),
		ValidArgsFunction: o.completeGroups(1),
	}
	o.bind(cmd, true, func(cmd *cobra.Command, _ []string) (action, error) {
		if err := needTopics(cmd, topics, only); err != nil {
			return nil, err
		}
		return func(ctx context.Context, c *conn, cmd *cobra.Command, args []string) error {
			if err := confirm(ctx, cmd, yes, fmt.Sprintf("Delete the offsets of group %s in %s?", logging.Printable(args[0]), quoteAll(topics))); err != nil {
				return err
			}
			return o.within(func(ctx context.Context, c *conn, cmd *cobra.Command, args []string) error {
				return c.deleteOffsets(ctx, o, cmd, args[0], unique(topics), only)
			})(ctx, c, cmd, args)
		}, nil
	})
	cmd.Flags().StringArrayVarP(&topics, "topic", "t", nil, "`topic`, may be repeated")
	cmd.Flags().Int32SliceVar(&only, "partition", nil, "only these partitions of the topic")
	_ = cmd.RegisterFlagCompletionFunc("topic", o.completeTopics(0))
	yesFlag(cmd, &yes)
	return cmd
}

func (c *conn) deleteOffsets(ctx context.Context, o *options, cmd *cobra.Command, group string, topics []string, only []int32) error {
	committed, err := c.adm.FetchOffsets(ctx, group)
	if err != nil {
		return err
	}
	set, order := kadm.TopicsSet{}, []kadm.Offset{}
	committed.Each(func(r kadm.OffsetResponse) {
		if slices.Contains(topics, r.Topic) && (len(only) == 0 || slices.Contains(only, r.Partition)) {
			set.Add(r.Topic, r.Partition)
			order = append(order, r.Offset)
		}
	})
	for _, t := range topics {
		if len(set[t]) == 0 {
			return failed("nothing was deleted; stream group describe shows what is committed", "group %s has no such committed offset in %s", logging.Printable(group), logging.Printable(t))
		}
	}
	sortBy(order, func(p kadm.Offset) (string, int32) { return p.Topic, p.Partition })
	rs, err := c.adm.DeleteOffsets(ctx, group, set)
	if err != nil {
		return err
	}
	var out []result
	for _, p := range order {
		x := result{Name: fmt.Sprintf("%s-%d", p.Topic, p.Partition), Result: "committed offset deleted"}
		switch err, ok := rs.Lookup(p.Topic, p.Partition); {
		case !ok:
			x.Result, x.Error = "", "the server says nothing of it"
		case err != nil:
			x.Result, x.Error = "", refusal(err, "")
		}
		out = append(out, x)
	}
	return o.report(cmd, "partition", out)
}
