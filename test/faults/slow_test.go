package faults

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/test/testkit"
)

// slowWorld is a stream process whose publishes pass a proxy.
func slowWorld(t *testing.T, topic string, env ...string) (*testkit.Stream, *proxy) {
	t.Helper()
	nats := testkit.StartNATS(t, testkit.NATSOptions{})
	p := newProxy(t, nats.URL)
	return testkit.Start(t, testkit.Options{PubsubURL: "nats://" + p.Addr, Env: env}), p
}

// TestC36SlowPartition holds back the writes of one partition's stream, half a
// second and five seconds each. It is slow and stays right; produce and fetch of
// the others do not notice.
func TestC36SlowPartition(t *testing.T) {
	t.Parallel()
	s, p := slowWorld(t, "slow")
	w := newWorld(t, s.Addr, "slow", load{partitions: 4, pace: 20 * time.Millisecond})
	w.waitAcks(t, 20*time.Second, 20)
	isSlow := subjectOf("slow", 0)
	var last time.Time
	for _, step := range []struct{ delay, length time.Duration }{{500 * time.Millisecond, 8 * time.Second}, {5 * time.Second, 22 * time.Second}} {
		p.Rule(func(s string) (time.Duration, bool) {
			if isSlow(s) {
				return step.delay, false
			}
			return 0, false
		})
		began := time.Now() // what is sent from now on is slow
		before := p.Sent(isSlow)
		w.waitAcks(t, step.length, 1, 0) // the slow one gets on too
		rest(t, step.length-time.Since(began))
		// A store that takes one write at a time is asked for little more than
		// it can do: one copy beside the one on its way.
		if n, most := p.Sent(isSlow)-before, 2*int(step.length/step.delay)+2; n > most {
			t.Errorf("%v per write: %d writes sent in %v, at most %d make sense", step.delay, n, step.length, most)
		}
		for _, wr := range w.writers {
			var took []time.Duration
			for _, a := range wr.since(began) {
				if a.at.Add(-a.took).After(began) {
					took = append(took, a.took)
				}
			}
			slices.Sort(took)
			if wr.partition == 0 {
				if len(took) > 0 && took[0] < step.delay-20*time.Millisecond {
					t.Errorf("%v per write: an answer came after %v", step.delay, took[0])
				}
				continue
			}
			// Nine in ten, far from the delay: a loaded machine is no slow store.
			if i := len(took) * 9 / 10; len(took) < 20 || took[i] > step.delay/2 {
				t.Errorf("%v per write in partition 0: partition %d got %d batches accepted, p90 %v", step.delay, wr.partition, len(took), took[min(i, len(took)-1)])
			}
			if e := wr.seen(); len(e) > 0 {
				t.Errorf("%v per write in partition 0: errors %v in partition %d", step.delay, e, wr.partition)
			}
		}
		for _, rd := range w.readers {
			if e := rd.seen(); len(e) > 0 {
				t.Errorf("%v per write: errors %v while reading partition %d", step.delay, e, rd.partition)
			}
		}
		w.report(t, fmt.Sprintf("%v per write", step.delay), began)
		p.Rule(nil)
		last = time.Now()
		w.waitAcks(t, 15*time.Second, 10)
		t.Logf("recovered in %v", time.Since(last).Round(time.Millisecond))
	}
	w.finish(t)
	alive(t, s)
}

// TestSlowPartitionMemory lets many producers press on a partition that takes
// one write in five seconds: memory stays bounded, and a producer to another
// partition keeps its pace.
func TestSlowPartitionMemory(t *testing.T) {
	t.Parallel()
	const limit = 256 << 20
	s, p := slowWorld(t, "press", fmt.Sprintf("GOMEMLIMIT=%d", limit))
	press := newWorld(t, s.Addr, "press", load{partitions: 1, pace: 50 * time.Millisecond})
	calm := newWorld(t, s.Addr, "calm", load{partitions: 2, pace: 20 * time.Millisecond})
	press.waitAcks(t, 20*time.Second, 1)
	isSlow := subjectOf("press", 0)
	p.Rule(func(s string) (time.Duration, bool) {
		if isSlow(s) {
			return 5 * time.Second, false
		}
		return 0, false
	})
	// 200 plain producers with batches of 900 kB: 180 MB are on offer at any time.
	began := time.Now()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	big := load{size: 900 << 10, records: 1, pace: time.Millisecond, mayCut: true}
	var writers []*writer
	for range 200 {
		wr := &writer{w: press, partition: 0, load: big, codes: map[int16]int{}, progress: make(chan struct{}, 1)}
		writers = append(writers, wr)
		wg.Go(func() { wr.press(t, ctx) })
	}
	rest(t, 20*time.Second)
	peak := peakMemory(t, s.Process().Pid())
	codes, accepted := map[int16]int{}, 0
	for _, wr := range writers {
		accepted += len(wr.since(began))
		for k, v := range wr.seen() {
			codes[k] += v
		}
	}
	t.Logf("resident at most %d MiB; %d big batches accepted; errors %v", peak>>20, accepted, codes)
	if peak > limit*5/4 {
		t.Errorf("resident %d MiB with a limit of %d MiB", peak>>20, limit>>20)
	}
	for _, wr := range calm.writers {
		as := wr.since(began)
		var took []time.Duration
		for _, a := range as {
			took = append(took, a.took)
		}
		slices.Sort(took)
		if len(took) < 20 || took[len(took)/2] > 2*time.Second {
			t.Errorf("beside it partition %d got %d batches accepted", wr.partition, len(took))
		}
	}
	calm.report(t, "beside it", began)
	stop()
	wg.Wait()
	p.Rule(nil)
	healed := time.Now()
	calm.waitAcks(t, 20*time.Second, 5)
	press.waitAcks(t, 30*time.Second, 5)
	t.Logf("recovered in %v", time.Since(healed).Round(time.Millisecond))
	calm.finish(t)
	alive(t, s)
}

// press sends one batch again and again, without care for what becomes of it.
func (w *writer) press(t *testing.T, ctx context.Context) {
	c := &client{addr: w.w.addr}
	defer c.close()
	b := plainBatch(w.value(0))
	for ctx.Err() == nil {
		began := time.Now()
		code, base, err := c.produce(ctx, w.w.topic, w.partition, slices.Clone(b))
		if ctx.Err() != nil {
			return
		}
		w.mu.Lock()
		if code == 0 {
			w.acks = append(w.acks, ack{n: 1, base: base, at: time.Now(), took: time.Since(began), tries: 1})
		} else {
			w.codes[code]++
		}
		w.mu.Unlock()
		if err == nil && code != 0 && !kerr.IsRetriable(kerr.ErrorForCode(code)) {
			t.Errorf("big batch: %v", kerr.ErrorForCode(code))
			return
		}
		if code != 0 {
			backoff(ctx)
		}
	}
}

// TestSlowStore holds back every write to the store, those of our own
// membership too. With half a second each everything goes on, slowly. With five
// no renewal is acknowledged in time: calls of groups get 15 or 16 meanwhile,
// and no group loses a member or a generation to it.
func TestSlowStore(t *testing.T) {
	t.Parallel()
	s, p := slowWorld(t, "all")
	w := newWorld(t, s.Addr, "all", load{partitions: 2, pace: 20 * time.Millisecond})
	m := joinGroup(t, s.Addr, "g", "all")
	w.waitAcks(t, 20*time.Second, 10)
	notAPI := func(s string) bool { return !strings.HasPrefix(s, "$JS.API.") && !strings.HasPrefix(s, "_INBOX.") }
	var offset int64
	for _, step := range []struct{ delay, length time.Duration }{{500 * time.Millisecond, 8 * time.Second}, {5 * time.Second, 20 * time.Second}} {
		before, asked := p.Sent(notAPI), p.Sent(func(s string) bool { return strings.HasPrefix(s, "$JS.API.") })
		began := time.Now()
		p.Rule(func(s string) (time.Duration, bool) {
			if notAPI(s) {
				return step.delay, false
			}
			return 0, false
		})
		codes := map[int16]int{}
		for time.Since(began) < step.length {
			code := m.heartbeat(t)
			codes[code]++
			if code != 0 && code != kerr.CoordinatorNotAvailable.Code && code != kerr.NotCoordinator.Code {
				t.Errorf("%v per write: heartbeat: %v", step.delay, kerr.ErrorForCode(code))
			}
			rest(t, 200*time.Millisecond)
		}
		t.Logf("%v per write: heartbeats by code %v; %d writes and %d questions to the store", step.delay, codes,
			p.Sent(notAPI)-before, p.Sent(func(s string) bool { return strings.HasPrefix(s, "$JS.API.") })-asked)
		if late := codes[kerr.CoordinatorNotAvailable.Code] + codes[kerr.NotCoordinator.Code]; step.delay == 5*time.Second && late == 0 {
			t.Errorf("%v per write: no heartbeat was refused although nothing proves that the group is ours", step.delay)
		}
		// No storm: two partitions, a group and a membership ask a bounded number
		// of questions, whatever the number of requests that wait.
		if n := p.Sent(notAPI) - before; n > 10*int(step.length/time.Second)+50 {
			t.Errorf("%v per write: %d writes sent in %v", step.delay, n, step.length)
		}
		w.report(t, fmt.Sprintf("%v per write", step.delay), began)
		p.Rule(nil)
		healed := time.Now()
		// At once: the member's session is shorter than the other waits may be.
		testkit.Poll(t, 20*time.Second, "heartbeat with the old generation", func() error { return codeError(m.heartbeat(t)) })
		offset++
		testkit.Poll(t, 20*time.Second, "commit with the old generation", func() error { return codeError(m.commit(t, offset)) })
		if got := m.committed(t); got != offset {
			t.Errorf("committed %d, read %d", offset, got)
		}
		w.waitAcks(t, 20*time.Second, 5)
		t.Logf("recovered in %v", time.Since(healed).Round(time.Millisecond))
	}
	w.finish(t)
	alive(t, s)
}

func codeError(code int16) error { return kerr.ErrorForCode(code) }

// member is the only member of a group.
type member struct {
	c          *client
	group, top string
	id         string
	generation int32
}

func joinGroup(t *testing.T, addr, group, topic string) *member {
	t.Helper()
	m := &member{c: &client{addr: addr}, group: group, top: topic}
	t.Cleanup(m.c.close)
	join := kmsg.NewPtrJoinGroupRequest()
	join.Group, join.ProtocolType = group, "consumer"
	join.SessionTimeoutMillis, join.RebalanceTimeoutMillis = 10_000, 10_000
	pr := kmsg.NewJoinGroupRequestProtocol()
	pr.Name, pr.Metadata = "range", []byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
	join.Protocols = append(join.Protocols, pr)
	joined := must[*kmsg.JoinGroupResponse](t, m.c, join, 2)
	if joined.ErrorCode != 0 {
		t.Fatalf("join: %v", kerr.ErrorForCode(joined.ErrorCode))
	}
	m.id, m.generation = joined.MemberID, joined.Generation
	sync := kmsg.NewPtrSyncGroupRequest()
	sync.Group, sync.Generation, sync.MemberID = group, m.generation, m.id
	as := kmsg.NewSyncGroupRequestGroupAssignment()
	as.MemberID, as.MemberAssignment = m.id, []byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
	sync.GroupAssignment = append(sync.GroupAssignment, as)
	if r := must[*kmsg.SyncGroupResponse](t, m.c, sync, 1); r.ErrorCode != 0 {
		t.Fatalf("sync: %v", kerr.ErrorForCode(r.ErrorCode))
	}
	return m
}

func (m *member) heartbeat(t *testing.T) int16 {
	t.Helper()
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group, req.Generation, req.MemberID = m.group, m.generation, m.id
	return must[*kmsg.HeartbeatResponse](t, m.c, req, 1).ErrorCode
}

func (m *member) commit(t *testing.T, offset int64) int16 {
	t.Helper()
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.Generation, req.MemberID = m.group, m.generation, m.id
	rt := kmsg.NewOffsetCommitRequestTopic()
	rt.Topic = m.top
	rp := kmsg.NewOffsetCommitRequestTopicPartition()
	rp.Offset = offset
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return must[*kmsg.OffsetCommitResponse](t, m.c, req, 5).Topics[0].Partitions[0].ErrorCode
}

func (m *member) committed(t *testing.T) int64 {
	t.Helper()
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Group = m.group
	rt := kmsg.NewOffsetFetchRequestTopic()
	rt.Topic, rt.Partitions = m.top, []int32{0}
	req.Topics = append(req.Topics, rt)
	r := must[*kmsg.OffsetFetchResponse](t, m.c, req, 5)
	if code := cmp.Or(r.ErrorCode, r.Topics[0].Partitions[0].ErrorCode); code != 0 {
		t.Fatalf("fetch offsets: %v", kerr.ErrorForCode(code))
	}
	return r.Topics[0].Partitions[0].Offset
}
