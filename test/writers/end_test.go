package writers

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/hanzoai/stream/serde"
	"github.com/hanzoai/stream/test/testkit"
)

// ends asks one gateway for the end of a partition, again and again, and reads
// the record before it.
type ends struct {
	c     *kgo.Client
	topic string
	last  int64 // largest answer
	asked int
	// refused counts what clients ask again: a gateway that stood still for long
	// has lost its questions to the store.
	refused int
}

func newEnds(t *testing.T, s *testkit.Stream, topic string) *ends {
	// By name: newer fetches want topic ids.
	return &ends{c: client(t, s, kgo.MaxVersions(kversion.V2_8_0())), topic: topic}
}

// ask is one question and one read.
func (e *ends) ask(ctx context.Context) error {
	end, err := e.latest(ctx)
	if err != nil {
		return err
	}
	if end < e.last {
		return fmt.Errorf("the end fell from %d to %d", e.last, end)
	}
	e.last = end
	e.asked++
	if end == 0 {
		return nil
	}
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.ReplicaID = 0, 1, 1<<20, -1
	ft, fp := kmsg.NewFetchRequestTopic(), kmsg.NewFetchRequestTopicPartition()
	ft.Topic, fp.FetchOffset, fp.PartitionMaxBytes = e.topic, end-1, 1<<20
	ft.Partitions = append(ft.Partitions, fp)
	req.Topics = append(req.Topics, ft)
	r, err := e.c.SeedBrokers()[0].RetriableRequest(ctx, req)
	if err != nil {
		return err
	}
	p := r.(*kmsg.FetchResponse).Topics[0].Partitions[0]
	if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
		return fmt.Errorf("read at %d, of %d: %w", end-1, end, err)
	}
	if p.HighWatermark < end {
		return fmt.Errorf("high watermark %d after an end of %d", p.HighWatermark, end)
	}
	b, _, err := serde.ParseBatch(p.RecordBatches)
	if err != nil || b.BaseOffset() > end-1 || b.LastOffset() < end-1 {
		return fmt.Errorf("the record before the end of %d is not there (%v)", end, err)
	}
	return nil
}

func (e *ends) latest(ctx context.Context) (int64, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	lt, lp := kmsg.NewListOffsetsRequestTopic(), kmsg.NewListOffsetsRequestTopicPartition()
	lt.Topic, lp.Timestamp = e.topic, -1
	lt.Partitions = append(lt.Partitions, lp)
	req.Topics = append(req.Topics, lt)
	r, err := e.c.SeedBrokers()[0].RetriableRequest(ctx, req)
	if err != nil {
		return 0, err
	}
	p := r.(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]
	return p.Offset, kerr.ErrorForCode(p.ErrorCode)
}

// end is the end of a partition as a gateway tells it.
func end(t *testing.T, s *testkit.Stream, topic string) int64 {
	t.Helper()
	n, err := newEnds(t, s, topic).latest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestC36EndOnAnotherGateway: a producer at full speed through A, which is killed;
// B, frozen for a while, is asked for the end all the time. No answer falls, and
// the record before it can be read at once.
func TestC36EndOnAnotherGateway(t *testing.T) {
	f := newFleet(t, 2)
	a, b := f.gateways[0], f.gateways[1]
	f.create(t, "end", 1)
	step, frozen := time.Second, 2*time.Second
	if full {
		step, frozen = 5*time.Second, 30*time.Second
	}
	l := load{topic: "end", gateways: f.gateways[:1], partitions: 1, producers: 4, depth: 20, size: 100, length: 4*step + frozen}
	asking, stop := context.WithCancel(t.Context())
	defer stop()
	e := newEnds(t, b, "end")
	var wait sync.WaitGroup
	wait.Go(func() {
		for asking.Err() == nil {
			switch err := e.ask(asking); {
			case err == nil, asking.Err() != nil:
			case errors.Is(err, kerr.RequestTimedOut), errors.Is(err, kerr.NotLeaderForPartition), errors.Is(err, kerr.KafkaStorageError):
				e.refused++
			default:
				t.Error(err)
				return
			}
		}
	})
	wait.Go(func() {
		for _, do := range []struct {
			after time.Duration
			what  func()
		}{
			{step, func() { a.Kill(t); a.Restart(t) }},
			{step, func() { _ = b.Process().Signal(syscall.SIGSTOP) }},
			{frozen, func() { _ = b.Process().Signal(syscall.SIGCONT) }},
		} {
			select {
			case <-time.After(do.after):
				do.what()
			case <-asking.Done():
			}
		}
	})
	o := l.run(t, f)
	stop()
	wait.Wait()
	_ = b.Process().Signal(syscall.SIGCONT) // if the load ended early
	t.Logf("%d questions and %d refused, the last answer %d; %d records acknowledged, the longest wait %v", e.asked, e.refused, e.last, o.records, o.wait(1))
	if e.asked < 20 || e.last == 0 || e.refused > e.asked/10 {
		t.Errorf("%d questions answered and %d refused", e.asked, e.refused)
	}
	if n := end(t, b, "end"); n < e.last || n != int64(o.records) {
		t.Errorf("in the end %d, %d records, %d was shown", n, o.records, e.last)
	}
	l.check(t, o, b)
}
