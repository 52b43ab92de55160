package cluster

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/test/testkit"
)

// TestFault03CutOffOne cuts one of two gateways off NATS for 20 s: at first nothing
// moves on its connections, then they end. It says so on /readyz and stays alive;
// who sits at it is told to try again and denied nothing, and gets through when it
// is over; clients go on at the other; it comes back by itself.
func TestFault03CutOffOne(t *testing.T) {
	t.Parallel()
	under(t, shape{gateways: 2, replicas: 1, mode: shared}, func(w *world, l *load) {
		const length = 20 * time.Second
		g := w.gateways[0]
		own, other := connect(t, g.Addr), connect(t, w.gateways[1].Addr)
		own.create("own", 1)
		own.produce("own", 0, batch{producer: -1, values: []string{"before"}})
		f := l.watch.begin(cutGateway, g.name)
		cut := time.Now()
		for _, r := range g.links {
			r.Stall()
		}
		testkit.Poll(t, 15*time.Second, "/readyz says no", func() error { return not(testkit.Get(t.Context(), g.Admin+"/readyz")) })
		t.Logf("/readyz failed %v after the cut", time.Since(cut).Round(time.Millisecond))
		var asking sync.WaitGroup
		var asked atomic.Int32
		var healing atomic.Bool
		for _, questions := range []func(*peer) (string, error){produceMeanwhile, endMeanwhile, unknownMeanwhile} {
			p := connect(t, g.Addr) // a connection is served in order
			asking.Go(func() {
				for !healing.Load() {
					what, err := questions(p)
					if healing.Load() {
						return
					}
					asked.Add(1)
					if err == nil || !kerr.IsRetriable(err) || errors.Is(err, kerr.UnknownTopicOrPartition) {
						t.Errorf("%s at a gateway that is cut off: %v", what, err)
						return
					}
					rest(t, 250*time.Millisecond)
				}
			})
		}
		defer healing.Store(true)
		most, through := time.Duration(0), 0
		for silent := true; time.Since(cut) < length; {
			if silent && time.Since(cut) > length/2 {
				silent = false
				for _, r := range g.links {
					r.Refuse()
					r.Flow() // else what was held would stay so behind a closed connection
				}
			}
			if err := testkit.Get(t.Context(), g.Admin+"/livez"); err != nil {
				t.Fatalf("not alive while cut off: %v", err)
			}
			if testkit.Get(t.Context(), g.Admin+"/readyz") == nil {
				t.Fatal("ready while cut off")
			}
			began := time.Now()
			other.produce("own", 0, batch{producer: -1, values: []string{"elsewhere"}})
			most = max(most, time.Since(began))
			through++
			rest(t, 250*time.Millisecond)
		}
		healing.Store(true)
		t.Logf("at the other gateway: %d records, the longest in %v", through, most.Round(time.Millisecond))
		healed := time.Now()
		for _, r := range g.links {
			r.Accept()
		}
		testkit.Poll(t, patience, g.name+" is ready", func() error {
			select {
			case <-g.Process().Exited():
				t.Fatalf("%s has ended:\n%s", g.name, g.Log())
			default:
			}
			return testkit.Get(t.Context(), g.Admin+"/readyz")
		})
		t.Logf("ready %v after the end of the cut", time.Since(healed).Round(time.Millisecond))
		l.watch.end(f)
		asking.Wait()
		if t.Logf("%d answers of the one that was cut off", asked.Load()); asked.Load() < 3 {
			t.Errorf("it has answered %d requests", asked.Load())
		}
		again := connect(t, g.Addr)
		again.produce("own", 0, batch{producer: -1, values: []string{"after"}})
		// A batch that was answered with a retriable code may be there; it was sent
		// under its own value.
		seen := map[string]int{}
		for _, v := range again.values("own", 0) {
			seen[v]++
		}
		if seen["before"] != 1 || seen["after"] != 1 || seen["elsewhere"] != through {
			t.Errorf("stored: %v", seen)
		}
		l.progress(5)
	})
}

// What a gateway without a store is asked. It must acknowledge, deny and end
// nothing. A batch that was on its way when the cut came waits for its outcome.

func produceMeanwhile(p *peer) (string, error) {
	r, err := ask[*kmsg.ProduceResponse](p, batch{producer: -1, values: []string{"meanwhile"}}.request("own", 0))
	if err == nil {
		err = code(r.Topics[0].Partitions[0].ErrorCode)
	}
	return "Produce", err
}

func endMeanwhile(p *peer) (string, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	rt, rp := kmsg.NewListOffsetsRequestTopic(), kmsg.NewListOffsetsRequestTopicPartition()
	rp.Timestamp, rp.CurrentLeaderEpoch = latest, -1
	rt.Topic, rt.Partitions = "own", append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	r, err := ask[*kmsg.ListOffsetsResponse](p, req)
	if err == nil {
		err = code(r.Topics[0].Partitions[0].ErrorCode)
	}
	return "ListOffsets", err
}

func unknownMeanwhile(p *peer) (string, error) {
	_, _, err := p.metadata("never-made")
	return "Metadata of a topic that nobody made", err
}

// not turns success into a failure.
func not(err error) error {
	if err == nil {
		return errors.New("it still says yes")
	}
	return nil
}
