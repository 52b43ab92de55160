package command

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hanzoai/stream/test/testkit"
)

// described is what group describe says.
type described struct {
	Name, State string
	Lag         int64
	Members     []struct {
		Client     string `json:"client_id"`
		Partitions int
	}
	Offsets []struct {
		Topic                  string
		Partition              int32
		Committed, Latest, Lag *int64
		Member                 string `json:"member_id"`
	}
}

func (p person) group(t *testing.T, name string) described {
	t.Helper()
	var ds []described
	p.ask(t, &ds, "group", "describe", name)
	if len(ds) != 1 || ds[0].Name != name {
		t.Fatalf("group describe %s: %+v", name, ds)
	}
	return ds[0]
}

// committed wants what a group has committed, -1 for nothing.
func (p person) committed(t *testing.T, group, topic string, want ...int64) {
	t.Helper()
	var got []int64
	for _, o := range p.group(t, group).Offsets {
		if o.Topic == topic && o.Committed != nil {
			got = append(got, *o.Committed)
		} else if o.Topic == topic {
			got = append(got, -1)
		}
	}
	if len(got) != len(want) {
		t.Fatalf("group %s has committed %v, want %v", group, got, want)
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("group %s has committed %v, want %v", group, got, want)
		}
	}
}

func (p person) groups(t *testing.T) {
	p.create(t, "read", "2")
	p.want(t, "a\nb\nc\nd\n", "stored 4 records in read\n", "produce", "read", "-p", "0")
	p.want(t, "e\nf\n", "stored 2 records in read\n", "produce", "read", "-p", "1")

	r := p.run(t, "", "consume", "read", "-g", "readers", "-n", "3")
	if r.code != 0 || strings.Count(r.stdout, "\n") != 3 {
		t.Fatalf("consume: %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	d := p.group(t, "readers")
	if d.State != "Empty" || len(d.Members) != 0 || d.Lag > 3 {
		t.Errorf("%+v", d)
	}
	// The rest and nothing twice; then nothing at all.
	rest := p.run(t, "", "consume", "read", "-g", "readers", "-e")
	if rest.code != 0 || strings.Count(rest.stdout, "\n") != 3 {
		t.Errorf("the rest: %d\n%s%s", rest.code, rest.stdout, rest.stderr)
	}
	for _, v := range strings.Fields("a b c d e f") {
		if strings.Count(r.stdout+rest.stdout, v) != 1 {
			t.Errorf("%s is not there once:\n%s%s", v, r.stdout, rest.stdout)
		}
	}
	p.want(t, "", "", "consume", "read", "-g", "readers", "-e")
	p.committed(t, "readers", "read", 4, 2)

	p.want(t, "", "TOPIC  PARTITION  OLD  NEW\nread   0          4    0\nread   1          2    0\nnothing was changed: it was a dry run\n", "group", "reset", "readers", "-t", "read", "--to", "earliest", "--dry-run")
	p.committed(t, "readers", "read", 4, 2)
	p.want(t, "", "TOPIC  PARTITION  OLD  NEW\nread   0          4    1\nread   1          2    0\n", "group", "reset", "readers", "-t", "read", "--shift", "-3")
	p.committed(t, "readers", "read", 1, 0)
	p.want(t, "", "TOPIC  PARTITION  OLD  NEW\nread   0          1    2\n", "group", "reset", "readers", "-t", "read", "--partition", "0", "--to", "2")
	p.want(t, "", "c\nd\ne\nf\n", "consume", "read", "-g", "readers", "-e", "--from", "latest") // commits win
	p.fail(t, 1, `UNKNOWN_TOPIC_OR_PARTITION`, "", "group", "reset", "readers", "-t", "nope", "--to", "earliest")
	// A group may be given offsets before it exists.
	p.want(t, "", "TOPIC  PARTITION  OLD  NEW\nread   0          -    4\nread   1          -    2\n", "group", "reset", "fresh", "-t", "read", "--to", "latest")
	p.want(t, "", "", "consume", "read", "-g", "fresh", "-e")
	p.fail(t, 1, `group fresh has no committed offset in made.by.produce-0 to shift`, "", "group", "reset", "fresh", "-t", "made.by.produce", "--shift", "1")

	p.fail(t, 2, `no terminal`, "", "group", "offsets", "delete", "fresh", "-t", "read")
	p.want(t, "", "partition read-1: committed offset deleted\n", "group", "offsets", "delete", "fresh", "-t", "read", "--partition", "1", "--yes")
	p.fail(t, 1, `group fresh has no such committed offset in nope`, "", "group", "offsets", "delete", "fresh", "-t", "nope", "--yes")
	if ds := p.group(t, "fresh"); ds.Lag != 0 {
		t.Errorf("%+v", ds)
	}
	var list []struct{ Name, State, Type string }
	p.ask(t, &list, "group", "list")
	found := 0
	for _, g := range list {
		if (g.Name == "readers" || g.Name == "fresh") && g.State == "Empty" && g.Type == "classic" {
			found++
		}
	}
	if found != 2 {
		t.Errorf("group list: %+v", list)
	}
	if out := p.fail(t, 1, `group nope: GROUP_ID_NOT_FOUND: `, "", "group", "delete", "readers", "nope", "fresh", "--yes"); out != "group readers: deleted\ngroup fresh: deleted\n" {
		t.Errorf("delete of three:\n%s", out)
	}
	p.fail(t, 1, `group readers: GROUP_ID_NOT_FOUND: `, "", "group", "describe", "readers")
}

// interrupt: Ctrl-C commits what was printed and leaves the group; as long as
// the consumer is there nobody else moves its offsets.
func (p person) interrupt(t *testing.T) {
	p.create(t, "live", "1")
	p.want(t, "a\nb\n", "stored 2 records in live\n", "produce", "live")
	c := p.start(t, nil, nil, "consume", "live", "-g", "live-readers")
	sees := func(want string) {
		t.Helper()
		testkit.Poll(t, 20*time.Second, "output "+want, func() error {
			if c.stdout.String() != want {
				return errors.New(c.stdout.String() + c.stderr.String())
			}
			return nil
		})
	}
	sees("a\nb\n")
	if d := p.group(t, "live-readers"); d.State != "Stable" || len(d.Members) != 1 || d.Members[0].Client != "stream" || d.Members[0].Partitions != 1 || d.Offsets[0].Member == "" {
		t.Errorf("%+v", d)
	}
	p.fail(t, 1, `group live-readers has 1 member`, "", "group", "reset", "live-readers", "-t", "live", "--to", "earliest")
	p.fail(t, 1, `group live-readers: NON_EMPTY_GROUP: `, "", "group", "delete", "live-readers", "--yes")
	p.want(t, "c\n", "stored 1 record in live\n", "produce", "live")
	sees("a\nb\nc\n")
	if err := c.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if code := c.end(t); code != 0 || c.stderr.String() != "" {
		t.Errorf("exit code %d after Ctrl-C\n%s", code, c.stderr.String())
	}
	p.committed(t, "live-readers", "live", 3)
	if d := p.group(t, "live-readers"); d.State != "Empty" {
		t.Errorf("after Ctrl-C the group is %s", d.State)
	}

	// Input that was cut off is a failure, but what was read is stored.
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	prod := p.start(t, r, nil, "produce", "live")
	r.Close()
	if _, err := w.WriteString("d\n"); err != nil {
		t.Fatal(err)
	}
	testkit.Poll(t, 20*time.Second, "record d", func() error {
		if r := p.run(t, "", "consume", "live", "-e", "--from", "3"); r.stdout != "d\n" {
			return errors.New(r.stdout + r.stderr)
		}
		return nil
	})
	if err := prod.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if code := prod.end(t); code != 1 || !strings.Contains(prod.stderr.String(), "interrupted; stored 1 of 1 record read until then") {
		t.Errorf("exit code %d\n%s", code, prod.stderr.String())
	}
}
