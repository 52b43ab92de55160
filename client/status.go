package client

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hanzoai/stream/logging"
)

// clusterStatus is what a cluster says of itself.
type clusterStatus struct {
	Cluster         string         `json:"cluster_id"`
	Controller      int32          `json:"controller"` // -1: none
	Brokers         []brokerLine   `json:"brokers"`
	Topics          int            `json:"topics"` // without internal ones
	Partitions      int            `json:"partitions"`
	Groups          int            `json:"groups"`
	GroupStates     map[string]int `json:"group_states"`
	UnderReplicated []string       `json:"under_replicated"` // topic-partition
	Leaderless      []string       `json:"without_leader"`
	Missing         string         `json:"missing,omitempty"` // why groups are not all of them
}

type brokerLine struct {
	ID      int32  `json:"id"`
	Address string `json:"address"`
	Rack    string `json:"rack,omitempty"`
}

func statusCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show brokers, counts and partitions in trouble",
		Long: "Asks a cluster over the Kafka protocol what it is made of. Partitions without a leader, or\n" +
			"with fewer replicas in sync than they should have, are named.",
		Example: "  stream status -b kafka.example.com:9092",
		Args:    noArgs,
	}
	o.ask(cmd, func(ctx context.Context, c *conn, cmd *cobra.Command, _ []string) error {
		st, err := c.status(ctx)
		if err != nil {
			return err
		}
		if err := o.print(cmd, st, st.table); err != nil || st.Missing == "" {
			return err
		}
		return failed("groups are not counted wholly", "%s", st.Missing)
	})
	return cmd
}

func (c *conn) status(ctx context.Context) (*clusterStatus, error) {
	m, err := c.adm.Metadata(ctx)
	if err != nil {
		return nil, err
	}
	groups, err := c.adm.ListGroups(ctx)
	missing, err := partly(err)
	if err != nil {
		return nil, err
	}
	st := &clusterStatus{Cluster: m.Cluster, Controller: m.Controller, Brokers: []brokerLine{}, Groups: len(groups),
		GroupStates: map[string]int{}, UnderReplicated: []string{}, Leaderless: []string{}, Missing: missing}
	for _, b := range m.Brokers {
		l := brokerLine{ID: b.NodeID, Address: net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))}
		if b.Rack != nil {
			l.Rack = *b.Rack
		}
		st.Brokers = append(st.Brokers, l)
	}
	for _, t := range m.Topics.Sorted() {
		if !t.IsInternal {
			st.Topics++
			st.Partitions += len(t.Partitions)
		}
		for _, p := range t.Partitions.Sorted() {
			name := fmt.Sprintf("%s-%d", t.Topic, p.Partition)
			if p.Leader < 0 {
				st.Leaderless = append(st.Leaderless, name)
			}
			if len(p.ISR) < len(p.Replicas) {
				st.UnderReplicated = append(st.UnderReplicated, name)
			}
		}
	}
	for _, g := range groups {
		st.GroupStates[g.State]++
	}
	return st, nil
}

func (st *clusterStatus) table(w io.Writer) {
	fmt.Fprintf(w, "cluster:\t%s\n", logging.Printable(st.Cluster))
	fmt.Fprintf(w, "topics:\t%d with %s\n", st.Topics, plural(st.Partitions, "partition"))
	var states []string
	for s, n := range st.GroupStates {
		states = append(states, fmt.Sprintf("%d %s", n, logging.Printable(s)))
	}
	slices.Sort(states)
	groups := strconv.Itoa(st.Groups)
	if len(states) > 0 {
		groups += " (" + strings.Join(states, ", ") + ")"
	}
	fmt.Fprintf(w, "groups:\t%s\n", groups)
	trouble := func(what string, names []string) {
		s := "none"
		if len(names) > 0 {
			s = strconv.Itoa(len(names)) + ": " + strings.Join(names, ", ")
		}
		fmt.Fprintf(w, "%s:\t%s\n", what, logging.Printable(s))
	}
	trouble("under-replicated", st.UnderReplicated)
	trouble("without leader", st.Leaderless)
	fmt.Fprintln(w)
	row(w, "BROKER", "ADDRESS", "RACK", "CONTROLLER")
	for _, b := range st.Brokers {
		is := ""
		if b.ID == st.Controller {
			is = "yes"
		}
		row(w, b.ID, b.Address, b.Rack, is)
	}
}
