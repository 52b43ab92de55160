package client

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

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
	// Late are the transactions that should have ended: committed readers wait.
	Late    []lateTransaction `json:"late_transactions"`
	Missing string            `json:"missing,omitempty"` // why groups or transactions are not all of them
	// Compaction is what the gateway at --admin says of it; nil without.
	Compaction *gatewayCompaction `json:"compaction,omitempty"`
}

// gatewayCompaction is what a gateway says of compaction.
type gatewayCompaction struct {
	cleaner
	Topics int `json:"topics"`
	Last   *struct {
		Partition   string  `json:"partition"`
		Ended       string  `json:"ended"`
		Seconds     float64 `json:"seconds"`
		CompactedTo int64   `json:"compacted_to"`
		RecordsIn   int64   `json:"records_in"`
		RecordsOut  int64   `json:"records_out"`
		BytesIn     int64   `json:"bytes_in"`
		BytesOut    int64   `json:"bytes_out"`
	} `json:"last,omitempty"`
	Failing []struct {
		Partition string `json:"partition"`
		Error     string `json:"error"`
		At        string `json:"at"`
		Again     string `json:"again"`
	} `json:"failing"`
}

type brokerLine struct {
	ID      int32  `json:"id"`
	Address string `json:"address"`
	Rack    string `json:"rack,omitempty"`
}

// lateTransaction is one that is open beyond its timeout.
type lateTransaction struct {
	ID             string   `json:"transactional_id"`
	ProducerID     int64    `json:"producer_id"`
	State          string   `json:"state"`
	OpenSeconds    int64    `json:"open_seconds"`
	TimeoutSeconds float64  `json:"timeout_seconds"`
	Partitions     []string `json:"partitions"` // topic-partition
}

// lateAfter is how long after its timeout a transaction may still be open: Kafka
// looks every ten seconds, then tells all partitions, and clocks differ.
const lateAfter = 30 * time.Second

func statusCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show brokers, counts, and partitions and transactions in trouble",
		Long: "Asks a cluster over the Kafka protocol what it is made of. Partitions without a leader, or\n" +
			"with fewer replicas in sync than they should have, are named, and so are transactions that\n" +
			"are open 30 s longer than their timeout: nobody reads committed records behind them. With\n" +
			"--admin a gateway is asked over HTTP what compaction does, whichever gateway does it.",
		Example: "  stream status -b kafka.example.com:9092\n  stream status --admin http://localhost:9093",
		Args:    noArgs,
	}
	admin := ""
	o.ask(cmd, func(ctx context.Context, c *conn, cmd *cobra.Command, _ []string) error {
		st, err := c.status(ctx)
		if err != nil {
			return err
		}
		if admin != "" {
			at, err := o.adminURL(cmd, admin)
			if err != nil {
				return err
			}
			var gateway struct {
				Compaction *gatewayCompaction `json:"compaction"`
			}
			if err := o.http(ctx, http.MethodGet, at, "/v1/stream/status", &gateway); err != nil {
				return err
			}
			st.Compaction = gateway.Compaction
		}
		if err := o.print(cmd, st, st.table); err != nil || st.Missing == "" {
			return err
		}
		return failed("not all was counted", "%s", st.Missing)
	})
	cmd.Flags().StringVar(&admin, "admin", "", "`URL` of a gateway's HTTP port, such as http://localhost:9093")
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
		GroupStates: map[string]int{}, UnderReplicated: []string{}, Leaderless: []string{}, Late: []lateTransaction{}, Missing: missing}
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
	return st, c.lateTransactions(ctx, st)
}

// openStates are those of a transaction that holds readers up.
var openStates = []string{"Ongoing", "PrepareCommit", "PrepareAbort"}

// lateTransactions adds those to st.
func (c *conn) lateTransactions(ctx context.Context, st *clusterStatus) error {
	versions, err := c.adm.ApiVersions(ctx)
	if err != nil {
		return err
	}
	for _, b := range versions {
		if _, known := b.KeyMaxVersion(int16(kmsg.ListTransactions)); !known {
			return nil // before Kafka 3.0
		}
	}
	partly := func(err error) error {
		missing, err := partly(err)
		st.Missing = cmp.Or(st.Missing, missing)
		return err
	}
	open, err := c.adm.ListTransactions(ctx, nil, openStates)
	if err = partly(err); err != nil || len(open) == 0 {
		return err
	}
	all, err := c.adm.DescribeTransactions(ctx, open.TransactionalIDs()...)
	if err = partly(err); err != nil {
		return err
	}
	st.Late = late(all, time.Now())
	return nil
}

// late picks those that are open for too long.
func late(all kadm.DescribedTransactions, now time.Time) []lateTransaction {
	out := []lateTransaction{}
	for _, d := range all.Sorted() {
		timeout := time.Duration(d.TimeoutMillis) * time.Millisecond
		age := now.Sub(time.UnixMilli(d.StartTimestamp))
		if d.Err != nil || !slices.Contains(openStates, d.State) || d.StartTimestamp < 0 || age <= timeout+lateAfter {
			continue // it has ended meanwhile, or is in time
		}
		l := lateTransaction{ID: d.TxnID, ProducerID: d.ProducerID, State: d.State, OpenSeconds: int64(age / time.Second), TimeoutSeconds: timeout.Seconds(), Partitions: []string{}}
		for _, p := range d.Topics.IntoList() {
			for _, n := range p.Partitions {
				l.Partitions = append(l.Partitions, fmt.Sprintf("%s-%d", p.Topic, n))
			}
		}
		slices.Sort(l.Partitions)
		out = append(out, l)
	}
	return out
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
	var names []string
	for _, l := range st.Late {
		names = append(names, fmt.Sprintf("%s (%s, producer %d, for %v)", l.ID, l.State, l.ProducerID, time.Duration(l.OpenSeconds)*time.Second))
	}
	trouble("late transactions", names)
	if c := st.Compaction; c != nil {
		c.table(w)
	}
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

func (c *gatewayCompaction) table(w io.Writer) {
	on := ""
	if c.Gateway != 0 {
		on = fmt.Sprintf(" on gateway %d", c.Gateway)
	}
	fmt.Fprintf(w, "compaction:\t%s%s, %s\n", logging.Printable(c.State), on, plural(c.Topics, "compacted topic"))
	if s := c.trouble(); s != "" {
		fmt.Fprintf(w, "  waiting:\t%s\n", s)
	}
	if r := c.Running; r != nil {
		fmt.Fprintf(w, "  running:\t%s since %s%s\n", logging.Printable(r.Partition), logging.Printable(r.Since), r.percent())
	}
	if l := c.Last; l != nil {
		fmt.Fprintf(w, "  last:\t%s at %s, %.1f s: %d of %s left, up to offset %d\n", logging.Printable(l.Partition), logging.Printable(l.Ended), l.Seconds, l.RecordsOut, plural(l.RecordsIn, "record"), l.CompactedTo)
	}
	for _, f := range c.Failing {
		fmt.Fprintf(w, "  failing:\t%s at %s: %s (tried again at %s)\n", logging.Printable(f.Partition), logging.Printable(f.At), logging.Printable(f.Error), logging.Printable(f.Again))
	}
}
