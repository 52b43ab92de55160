package cluster

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestFault13Burst makes 2,000 partitions at once through two gateways, while a
// client produces: JetStream drops no call, every topic is complete, the client
// goes on, and one partition more than the limit is refused with that reason.
func TestFault13Burst(t *testing.T) {
	t.Parallel()
	const topics, each, clients = 40, 50, 8
	w := newWorld(t, shape{gateways: 2, replicas: 1, mode: shared, args: []string{"--max-partitions", fmt.Sprint(topics*each + 1)}})
	peers := []*peer{connect(t, w.gateways[0].Addr), connect(t, w.gateways[1].Addr)}
	peers[0].create("beside", 1)
	done := make(chan struct{})
	var beside sync.WaitGroup
	var sent int
	var longest time.Duration
	beside.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			began := time.Now()
			peers[0].produce("beside", 0, batch{producer: -1, values: []string{fmt.Sprint(sent)}})
			longest = max(longest, time.Since(began))
			sent++
		}
	})
	began := time.Now()
	names := make(chan string, topics)
	for i := range topics {
		names <- fmt.Sprintf("burst%d", i)
	}
	close(names)
	var making sync.WaitGroup
	for i := range clients {
		p := connect(t, w.gateways[i%2].Addr)
		making.Go(func() {
			for name := range names {
				p.create(name, each)
			}
		})
	}
	making.Wait()
	took := time.Since(began)
	close(done)
	beside.Wait()
	t.Logf("%d partitions in %v; beside, %d records, the longest in %v", topics*each, took.Round(time.Millisecond), sent, longest.Round(time.Millisecond))
	if longest > patience {
		t.Errorf("a client waited %v", longest)
	}
	for _, p := range peers {
		for i := range topics {
			if _, n, err := p.metadata(fmt.Sprintf("burst%d", i)); n != each || err != nil {
				t.Errorf("burst%d: %d partitions, %v", i, n, err)
			}
		}
	}
	peers[1].produce("burst7", each-1, batch{producer: -1, values: []string{"a"}})
	for _, name := range []string{"over", "over.again"} {
		r := must[*kmsg.CreateTopicsResponse](peers[1], topicRequest(name, 2)).Topics[0]
		if err := code(r.ErrorCode); !errors.Is(err, kerr.InvalidPartitions) || r.ErrorMessage == nil || !strings.Contains(*r.ErrorMessage, "limit") {
			t.Errorf("above the limit: %v, %v", err, r.ErrorMessage)
		}
	}
	for _, s := range w.nats {
		if log := s.Log(); strings.Contains(log, "queue limit reached") {
			t.Errorf("nats has dropped calls:\n%s", log)
		}
	}
}
