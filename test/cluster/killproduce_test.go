package cluster

import (
	"fmt"
	"strings"

	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/test/testkit"
)

// produceKills are the points on the way of a batch.
var produceKills = []killRow{
	{"frame read", "frame.read", notStored},
	{"batch admitted", "batch.admitted", notStored},
	{"batch stamped", "batch.stamped", notStored},
	{"published, no acknowledgement yet", "request.sent=kafka.kill.0:1:100ms", perhapsStored},
	{"acknowledged, before apply", "append.acknowledged", storedOnce},
	{"applied, before the answer", "append.applied", storedOnce},
	{"in a group commit of several producers", "request.sent=kafka.kill.0:1:100ms", allOrNone},
	{"answered, news to other gateways lost", "answer.sent", newsLost},
}

// begin makes the topic, in which time is the store's, and has producers write a
// first record each through gateway a.
func (k *killed) begin(producers int) (ids []int64) {
	k.Helper()
	k.b.create("kill", 1, "message.timestamp.type", "LogAppendTime")
	for i := range producers {
		id := k.a.producer()
		ids = append(ids, id)
		if base, _ := k.a.produce("kill", 0, batch{producer: id, values: []string{fmt.Sprintf("first %d", i)}}); base != int64(i) {
			k.Fatalf("record %d is at %d", i, base)
		}
	}
	return ids
}

// diesWith has the gateway die over a batch of two that follows the producer's
// first record, and returns the batch, to be sent again.
func (k *killed) diesWith() batch {
	k.Helper()
	next := batch{producer: k.begin(1)[0], first: 1, values: []string{"a", "b"}}
	k.arm()
	lost(k.a, next.request("kill", 0))
	k.died()
	return next
}

// notStored: nothing is stored; the retry succeeds through any gateway.
func notStored(k *killed) {
	next := k.diesWith()
	if end := k.b.offset("kill", 0, latest); end != 1 {
		k.Errorf("the log ends at %d after a batch that was not sent", end)
	}
	if base, _ := k.b.produce("kill", 0, next); base != 1 {
		k.Errorf("the retry is at %d, want 1", base)
	}
	k.wantValues("kill", "first 0", "a", "b")
}

// perhapsStored: stored or not, never half; an idempotent retry gets the original
// offset, a plain retry at most a duplicate.
func perhapsStored(k *killed) {
	next := k.diesWith()
	end := k.b.offset("kill", 0, latest)
	if end != 1 && end != 3 {
		k.Errorf("half a batch is stored: the log ends at %d", end)
	}
	if base, _ := k.b.produce("kill", 0, next); base != 1 {
		k.Errorf("the retry is at %d, want 1", base)
	}
	k.wantValues("kill", "first 0", "a", "b")

	// A plain one, through the other gateway this time.
	a := k.again()
	plain := batch{producer: -1, values: []string{"plain"}}
	k.arm()
	k.a = a
	lost(a, plain.request("kill", 0))
	k.died()
	had := k.b.offset("kill", 0, latest)
	if base, _ := k.b.produce("kill", 0, plain); base != had {
		k.Errorf("the plain retry is at %d, the log ended at %d", base, had)
	}
	all := k.b.values("kill", 0)
	if got := strings.Join(all, " "); got != "first 0 a b plain" && got != "first 0 a b plain plain" {
		k.Errorf("stored: %v", all)
	}
}

// storedOnce: it is stored once; the retry is answered with the original offset
// and time.
func storedOnce(k *killed) {
	next := k.diesWith()
	if end := k.b.offset("kill", 0, latest); end != 3 {
		k.Errorf("the log ends at %d, want 3", end)
	}
	base, at := k.b.produce("kill", 0, next)
	if base != 1 {
		k.Errorf("the retry is at %d, want 1", base)
	}
	k.wantValues("kill", "first 0", "a", "b")
	if all := k.b.read("kill", 0); all[1].maxTime != at {
		k.Errorf("the retry is told the time %d, stored is %d", at, all[1].maxTime)
	}
}

// allOrNone: of batches in one message all are stored or none, and every retry
// gets its original offset.
func allOrNone(k *killed) {
	ids := k.begin(4)
	// While one append waits for its acknowledgement the others gather.
	link := k.w.gateways[0].links[0]
	link.StallAnswers()
	big := strings.Repeat("x", 10_000)
	asked := make(chan error, len(ids))
	send := func(i int) {
		p := connect(k.T, k.w.gateways[0].Addr)
		must[*kmsg.ApiVersionsResponse](p, kmsg.NewPtrApiVersionsRequest())
		go func() {
			_, err := p.b.Request(k.Context(), batch{producer: ids[i], first: 1, values: []string{fmt.Sprint(i, big)}}.request("kill", 0))
			asked <- err
		}()
	}
	send(0)
	testkit.Poll(k, 20*time.Second, "the first append is stored", func() error {
		if end := k.b.offset("kill", 0, latest); end != 5 {
			return fmt.Errorf("the log ends at %d", end)
		}
		return nil
	})
	for i := 1; i < len(ids); i++ {
		send(i)
	}
	testkit.Poll(k, 20*time.Second, "the others are in the process", func() error {
		held, err := metric(k.T, k.w.gateways[0], `stream_memory_used_bytes{pool="requests"}`)
		if err == nil && held < float64(len(ids)*len(big)) {
			err = fmt.Errorf("%v bytes are held", held)
		}
		return err
	})
	k.arm()
	link.Flow()
	k.died()
	for range ids {
		<-asked // the first one's may have been answered
	}
	_, last, err := k.bounds("kill")
	if err != nil {
		k.Fatal(err)
	}
	end := k.b.offset("kill", 0, latest)
	if end != 5 && end != 8 || last != 5 && last != 6 {
		k.Errorf("some of a group are stored: %d records in %d messages", end, last)
	}
	seen := map[int64]bool{}
	for i, id := range ids {
		base, _ := k.b.produce("kill", 0, batch{producer: id, first: 1, values: []string{fmt.Sprint(i, big)}})
		if seen[base] || base < 4 || base > 7 || end == 8 && base >= end {
			k.Errorf("the retry of producer %d is at %d", i, base)
		}
		seen[base] = true
	}
	if n := len(k.b.values("kill", 0)); n != 8 {
		k.Errorf("%d records are stored, want 8", n)
	}
}

// newsLost: readers elsewhere see it by a question to the leader; nobody waits
// beyond max_wait.
func newsLost(k *killed) {
	id := k.begin(1)[0]
	const wait = 8 * time.Second
	waiting, err := metric(k.T, k.w.gateways[1], `stream_memory_used_bytes{pool="requests"}`)
	if err != nil {
		k.Fatal(err)
	}
	reader := connect(k.T, k.w.gateways[1].Addr)
	if got, err := reader.fetch("kill", 0, 0, 0); err != nil || len(got) != 1 {
		k.Fatalf("before: %v, %v", got, err)
	}
	type answer struct {
		got []stored
		err error
	}
	began := time.Now()
	answered := make(chan answer, 1)
	go func() {
		got, err := reader.fetch("kill", 0, 1, wait)
		// The loss of the connection may end the wait with an error to try again on.
		for err != nil && kerr.IsRetriable(err) && time.Since(began) < wait {
			got, err = reader.fetch("kill", 0, 1, wait)
		}
		answered <- answer{got, err}
	}()
	testkit.Poll(k, 20*time.Second, "the reader waits", func() error {
		now, err := metric(k.T, k.w.gateways[1], `stream_memory_used_bytes{pool="requests"}`)
		if err == nil && now <= waiting {
			err = fmt.Errorf("no request is held")
		}
		return err
	})
	// What comes to b from now on is lost with its connection.
	link := k.w.gateways[1].links[0]
	link.StallAnswers()
	k.arm()
	k.a.produce("kill", 0, batch{producer: id, first: 1, values: []string{"a"}})
	k.died()
	link.Cut()
	link.Flow()
	r, took := <-answered, time.Since(began)
	if r.err != nil || len(r.got) != 1 || r.got[0].value != "a" || took > wait+5*time.Second {
		k.Errorf("the reader has %v after %v: %v", r.got, took, r.err)
	}
	k.wantValues("kill", "first 0", "a")
}
