package clients

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/hanzoai/stream/test/testkit"
)

// receive takes n records from the members, each partition from next on, which
// it moves; it fails on a record that came twice and on a gap. A library that
// repeats may deliver what was there before.
func (w world) receive(ctx context.Context, t *testing.T, next map[int32]int64, n int, members ...member) []record {
	t.Helper()
	in := make(chan record)
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	for _, m := range members {
		go func() {
			defer func() { done <- struct{}{} }()
			for {
				select {
				case r := <-m.records():
					select {
					case in <- r:
					case <-ctx.Done():
						if !w.lib.limits.repeats {
							t.Errorf("more records than %d: %v", n, r)
						}
						return
					}
				case <-ctx.Done():
					return
				}
			}
		}()
	}
	defer func() {
		cancel()
		for range members {
			<-done
		}
	}()
	var out []record
	for len(out) < n {
		select {
		case r := <-in:
			if want := next[r.Partition]; r.Offset < want && w.lib.limits.repeats {
				continue
			} else if r.Offset != want {
				t.Fatalf("partition %d: offset %d, want %d", r.Partition, r.Offset, want)
			}
			next[r.Partition]++
			out = append(out, r)
		case <-ctx.Done():
			t.Fatalf("%d of %d records: %v", len(out), n, ctx.Err())
		}
	}
	return out
}

func values(rs []record) []string {
	var out []string
	for _, r := range rs {
		out = append(out, string(r.Value))
	}
	slices.Sort(out)
	return out
}

// batch is n records with distinct values, spread over partitions.
func batch(n, partitions int, prefix string) []record {
	var rs []record
	for i := range n {
		rs = append(rs, record{Partition: int32(i % partitions), Key: fmt.Append(nil, i), Value: fmt.Appendf(nil, "%s %04d", prefix, i), Time: time.Now()})
	}
	return rs
}

// committed waits until the group has committed the end of every partition.
func (w world) committed(ctx context.Context, t *testing.T, group string) {
	t.Helper()
	testkit.Poll(t, 20*time.Second, "commits of "+group, func() error {
		ends, err := w.adm.ListEndOffsets(ctx, w.topic)
		if err != nil {
			return err
		}
		got, err := w.adm.FetchOffsets(ctx, group)
		if err != nil {
			return err
		}
		for p, end := range ends[w.topic] {
			if o, ok := got.Lookup(w.topic, p); !ok || o.At != end.Offset {
				return fmt.Errorf("partition %d: committed %d (%v), end %d", p, o.At, ok, end.Offset)
			}
		}
		return nil
	})
}

// resume consumes in a group, commits, and goes on with a new member.
func resume(ctx context.Context, t *testing.T, w world) {
	group, next := "group."+w.topic, map[int32]int64{}
	for round := range 3 {
		rs := batch(90, 3, fmt.Sprint("round ", round))
		w.produce(ctx, t, sending{codec: "none"}, rs)
		m, err := w.cl.join(ctx, t, group, w.topic, joining{})
		if err != nil {
			t.Fatalf("join: %v", err)
		}
		got := values(w.receive(ctx, t, next, len(rs), m))
		if want := values(rs); !slices.Equal(got, want) {
			t.Errorf("round %d: got %q, want %q", round, got, want)
		}
		if err := m.commit(ctx); err != nil {
			t.Errorf("commit: %v", err)
		}
		if err := m.close(); err != nil {
			t.Errorf("close: %v", err)
		}
		w.committed(ctx, t, group)
		testkit.Poll(t, 20*time.Second, "group without members", func() error {
			return w.members(ctx, group)
		})
	}
}

// shares are the partitions of each member of a stable group, by member id, or
// by instance id where it has one.
func (w world) shares(ctx context.Context, group string) (shares map[string][]int32, state, protocol string, err error) {
	groups, err := w.adm.DescribeGroups(ctx, group)
	if err == nil {
		err = groups[group].Err
	}
	if err != nil {
		return nil, "", "", err
	}
	g := groups[group]
	shares = map[string][]int32{}
	for _, m := range g.Members {
		name, mine := m.MemberID, []int32{}
		if m.InstanceID != nil {
			name = *m.InstanceID
		}
		if a, ok := m.Assigned.AsConsumer(); ok {
			for _, topic := range a.Topics {
				mine = append(mine, topic.Partitions...)
			}
		}
		slices.Sort(mine)
		shares[name] = mine
	}
	return shares, g.State, g.Protocol, nil
}

// members is nil once the group is stable and its members have as many
// partitions as want says, in any order.
func (w world) members(ctx context.Context, group string, want ...int) error {
	shares, state, _, err := w.shares(ctx, group)
	if err != nil {
		return err
	}
	var got []int
	for _, partitions := range shares {
		got = append(got, len(partitions))
	}
	slices.Sort(got)
	stable := "Stable"
	if len(want) == 0 {
		stable = "Empty"
	}
	if state != stable || !slices.Equal(got, want) {
		return fmt.Errorf("group is %s with %v partitions per member, want %s with %v", state, got, stable, want)
	}
	return nil
}

// company is a group of members of one library.
type company struct {
	world
	group   string
	members []member
	next    map[int32]int64 // offset by partition
}

func (c *company) join(ctx context.Context, t *testing.T, how joining) member {
	t.Helper()
	m, err := c.cl.join(ctx, t, c.group, c.topic, how)
	if err != nil {
		t.Fatalf("join: %v", err)
	}
	c.members = append(c.members, m)
	return m
}

// leave ends the first member.
func (c *company) leave(t *testing.T) {
	t.Helper()
	m := c.members[0]
	c.members = c.members[1:]
	if err := m.close(); err != nil {
		t.Errorf("close: %v", err)
	}
}

// balance waits until the partitions are shared as want says.
func (c *company) balance(ctx context.Context, t *testing.T, want ...int) {
	t.Helper()
	testkit.Poll(t, 40*time.Second, fmt.Sprintf("balance %v", want), func() error { return c.world.members(ctx, c.group, want...) })
}

// receive takes the records rs from the members and commits.
func (c *company) receive(ctx context.Context, t *testing.T, what string, rs []record) {
	t.Helper()
	got := values(c.world.receive(ctx, t, c.next, len(rs), c.members...))
	if want := values(rs); !slices.Equal(got, want) {
		t.Errorf("%s: got %q (%d distinct), want %q", what, got, len(slices.Compact(slices.Clone(got))), want)
	}
	for _, m := range c.members {
		if err := m.commit(ctx); err != nil {
			t.Errorf("commit: %v", err)
		}
	}
	if !c.lib.limits.commitsAlone {
		c.committed(ctx, t, c.group)
	}
}

// round produces and receives records.
func (c *company) round(ctx context.Context, t *testing.T, what string) {
	t.Helper()
	rs := batch(120, 6, what)
	c.produce(ctx, t, sending{codec: "none"}, rs)
	c.receive(ctx, t, what, rs)
}

// rebalance lets three members share six partitions and one of them leave. A
// cooperative member keeps what it has but for what others need.
func rebalance(how joining) func(context.Context, *testing.T, world) {
	return func(ctx context.Context, t *testing.T, w world) {
		c := company{world: w, group: "group." + w.topic, next: map[int32]int64{}}
		defer func() {
			for len(c.members) > 0 {
				c.leave(t)
			}
		}()
		before := map[string][]int32{}
		balance := func(want ...int) {
			t.Helper()
			c.balance(ctx, t, want...)
			if !how.cooperative {
				return
			}
			after, _, protocol, err := w.shares(ctx, c.group)
			if err != nil || protocol != "cooperative-sticky" {
				t.Fatalf("the group's protocol is %q, %v", protocol, err)
			}
			for name, had := range before {
				has, here := after[name]
				kept := 0
				for _, p := range had {
					if slices.Contains(has, p) {
						kept++
					}
				}
				if here && kept != min(len(had), len(has)) {
					t.Errorf("a member had partitions %v and has %v", had, has)
				}
			}
			before = after
		}
		c.join(ctx, t, how)
		balance(6)
		c.round(ctx, t, "one member")
		c.join(ctx, t, how)
		balance(3, 3)
		c.join(ctx, t, how)
		balance(2, 2, 2)
		c.round(ctx, t, "three members")
		c.leave(t)
		balance(3, 3)
		c.round(ctx, t, "two members")
		for len(c.members) > 0 {
			c.leave(t)
		}
		w.committed(ctx, t, c.group)
	}
}

// static restarts a member with a group.instance.id: the group waits for it and
// gives it back what it had.
func static(ctx context.Context, t *testing.T, w world) {
	c := company{world: w, group: "group." + w.topic, next: map[int32]int64{}}
	defer func() {
		for len(c.members) > 0 {
			c.leave(t)
		}
	}()
	c.join(ctx, t, joining{instance: "first"})
	c.balance(ctx, t, 6)
	c.join(ctx, t, joining{instance: "second"})
	c.balance(ctx, t, 3, 3)
	c.round(ctx, t, "both")
	before, _, _, err := w.shares(ctx, c.group)
	if err != nil || len(before["first"]) != 3 || len(before["second"]) != 3 {
		t.Fatalf("members are %v, %v, want first and second", before, err)
	}
	if w.lib.limits.commitsAlone {
		w.committed(ctx, t, c.group)
	}
	c.leave(t) // stays a member
	after, state, _, err := w.shares(ctx, c.group)
	if err != nil || state != "Stable" || !reflect.DeepEqual(after, before) {
		t.Fatalf("without the first the group is %s %v, %v, want Stable %v", state, after, err, before)
	}
	rs := batch(120, 6, "while the first is away")
	w.produce(ctx, t, sending{codec: "none"}, rs)
	c.join(ctx, t, joining{instance: "first"})
	c.receive(ctx, t, "while the first is away", rs)
	c.balance(ctx, t, 3, 3)
	if after, _, _, err = w.shares(ctx, c.group); err != nil || !reflect.DeepEqual(after, before) {
		t.Errorf("the first came back to %v, %v, want %v", after, err, before)
	}
}
