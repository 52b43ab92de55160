package command

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hanzoai/stream/test/testkit"
)

// compact asks for compaction, which is for gateways of stream only: admin is ""
// for Apache Kafka.
func (p person) compact(t *testing.T, admin string) {
	nobody := "http://" + testkit.FreeAddr(t)
	p.fail(t, 2, "the name of a topic is missing", "", "topic", "compact")
	p.fail(t, 2, "unexpected argument", "", "topic", "compact", "a", "b")
	p.fail(t, 2, `--admin "localhost:9093": http://host:port is wanted`, "", "topic", "compact", "a", "--admin", "localhost:9093")
	p.fail(t, 3, "no answer from "+nobody, "", "topic", "compact", "a", "--admin", nobody)
	p.fail(t, 3, "no answer from "+nobody, "", "status", "--admin", nobody)
	if admin == "" {
		return
	}
	p.fail(t, 1, "UNKNOWN_TOPIC_OR_PARTITION", "", "topic", "compact", "compact.nope", "--admin", admin)
	p.create(t, "compact.not", "1")
	p.fail(t, 1, "does not have compact", "", "topic", "compact", "compact.not", "--admin", admin)

	// Not compacted of the gateway's own accord, before all is there.
	p.create(t, "compact.yes", "2", "-c", "cleanup.policy=compact", "-c", "min.cleanable.dirty.ratio=1")
	var in strings.Builder
	for i := range 30 {
		fmt.Fprintf(&in, "k%d:%d\n", i%3, i)
	}
	p.want(t, in.String(), "stored 30 records in compact.yes\n", "produce", "compact.yes", "--key-separator", ":", "--partition", "0")
	p.want(t, "end:1\n", "stored 1 record in compact.yes\n", "produce", "compact.yes", "--key-separator", ":", "--partition", "0")
	type partition struct {
		Partition   int    `json:"partition"`
		CompactedTo int    `json:"compacted_to"`
		Records     int    `json:"records"`
		LastRun     string `json:"last_run"`
	}
	var c struct {
		Topic      string      `json:"topic"`
		Compacted  bool        `json:"compacted"`
		Partitions []partition `json:"partitions"`
	}
	p.ask(t, &c, "topic", "compact", "compact.yes", "--wait", "--admin", admin)
	if len(c.Partitions) != 2 || c.Topic != "compact.yes" || !c.Compacted || c.Partitions[0].CompactedTo != 30 || c.Partitions[0].Records != 3 || c.Partitions[0].LastRun == "" ||
		c.Partitions[1] != (partition{Partition: 1}) {
		t.Errorf("%+v", c)
	}
	// Nothing to do is done too; a table shows the same.
	r := p.run(t, "", "topic", "compact", "compact.yes", "--wait", "--admin", admin+"/")
	if r.code != 0 || !strings.Contains(r.stdout, "PARTITION  COMPACTED TO  RECORDS") || !strings.Contains(r.stdout, "\n0          30            3 ") || r.stderr != "" {
		t.Errorf("%d\n%s%s", r.code, r.stdout, r.stderr)
	}
	if r := p.run(t, "", "consume", "compact.yes", "--until-end", "--partition", "0"); r.code != 0 || r.stdout != "27\n28\n29\n1\n" {
		t.Errorf("%d\n%s%s", r.code, r.stdout, r.stderr)
	}
	var st struct {
		Compaction struct {
			State  string `json:"state"`
			Topics int    `json:"topics"`
			Last   struct {
				Partition string `json:"partition"`
				In        int    `json:"records_in"`
				Out       int    `json:"records_out"`
			} `json:"last"`
		} `json:"compaction"`
	}
	// The gateway says that it runs for a moment longer than the record does.
	testkit.Poll(t, 20*time.Second, "nothing runs", func() error {
		if p.ask(t, &st, "status", "--admin", admin); st.Compaction.State != "idle" {
			return errors.New(st.Compaction.State)
		}
		return nil
	})
	if x := st.Compaction; x.Topics != 1 || x.Last.Partition != "compact.yes-0" || x.Last.In != 30 || x.Last.Out != 3 {
		t.Errorf("%+v", x)
	}
	if r := p.run(t, "", "status", "--admin", admin); !strings.Contains(r.stdout, "compaction:") || !strings.Contains(r.stdout, "3 of 30 records left") {
		t.Errorf("%s%s", r.stdout, r.stderr)
	}
	var without map[string]json.RawMessage
	p.ask(t, &without, "status")
	if _, there := without["compaction"]; there {
		t.Error("compaction is told of without --admin")
	}
}
