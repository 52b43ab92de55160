package faults

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/test/testkit"
)

// TestC41Fault09LaggingReplica freezes a follower of a partition's stream under load,
// long enough for it to lag, and wakes it again, several times: it then answers
// reads with what it had. Nothing below the end reads as empty or out of range,
// whichever replica answers, and the end never falls.
func TestC41Fault09LaggingReplica(t *testing.T) {
	t.Parallel()
	servers := testkit.StartNATSCluster(t, 3, testkit.NATSOptions{})
	s := startOnCluster(t, servers)
	w := newWorld(t, s.Addr, "lag", load{partitions: 1, pace: 5 * time.Millisecond})
	w.waitAcks(t, 40*time.Second, 20)
	js := jetStream(t, servers[0].URL)
	for range 3 {
		leader := ""
		testkit.Poll(t, 20*time.Second, "a leader", func() error {
			name, err := js.StreamNameBySubject("kafka.lag.0")
			if err != nil {
				return err
			}
			info, err := js.StreamInfo(name)
			if err == nil && info.Cluster.Leader == "" {
				err = errNot
			}
			if err == nil {
				leader = info.Cluster.Leader
			}
			return err
		})
		// Not the server that we ask, nor the leader.
		frozen := -1
		for i, name := range []string{"n0", "n1", "n2"} {
			if i > 0 && name != leader {
				frozen = i
			}
		}
		servers[frozen].Pause()
		w.waitAcks(t, 30*time.Second, 100)
		servers[frozen].Resume()
		// It catches up now; meanwhile every acknowledged record is asked for.
		c := &client{addr: s.Addr}
		woke := time.Now()
		reads, retriable := 0, map[int16]int{}
		for time.Since(woke) < 2*time.Second {
			acks := w.writers[0].since(time.Time{})
			for i := len(acks) - 1; i >= 0 && i > len(acks)-10; i-- {
				at := acks[i].base
				f, err := c.fetch(t.Context(), "lag", 0, at, 0)
				switch {
				case err != nil:
					t.Fatalf("fetch at %d: %v", at, err)
				case f.code == kerr.OffsetOutOfRange.Code || f.code != 0 && !kerr.IsRetriable(kerr.ErrorForCode(f.code)):
					t.Fatalf("fetch at %d, which was acknowledged: %v", at, kerr.ErrorForCode(f.code))
				case f.code != 0:
					retriable[f.code]++
				case len(f.records) == 0 || f.records[0].offset != at || number(f.records[0].value) != acks[i].first:
					t.Fatalf("fetch at %d, which was acknowledged: %d records, end %d", at, len(f.records), f.hw)
				}
				code, end, err := c.endOffset(t.Context(), "lag", 0)
				if err != nil || code == 0 && end <= at {
					t.Fatalf("end offset %d after %d was acknowledged (%v)", end, at, err)
				}
				reads++
			}
		}
		c.close()
		t.Logf("%d reads of acknowledged records after the freeze; errors %v", reads, retriable)
	}
	w.finish(t)
	alive(t, s)
}
