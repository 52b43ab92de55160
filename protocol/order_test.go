package protocol

import (
	"bytes"
	"context"
	"io"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/broker/group"
	"github.com/hanzoai/stream/broker/partition"
)

// TestC04PipelineOrder: a fetch that waits holds everything behind it, and
// answers come in request order.
func TestC04PipelineOrder(t *testing.T) {
	t.Parallel()
	w := newWorld()
	s := startServer(t, w, nil)
	p := s.dial(t)
	fetch := recordsOf(w, "t1", 0, 2)
	fetch.MaxWaitMillis = 300
	fetch.SetVersion(12)
	a, b := batch(1, 10), batch(2, 20)
	pa, pb := produceOf(w, "t0", -1, bytes.Clone(a)), produceOf(w, "t0", -1, bytes.Clone(b))
	hb := &kmsg.HeartbeatRequest{Group: "g"}
	av := &kmsg.ApiVersionsRequest{}
	began := time.Now()
	var out []byte
	for i, r := range []kmsg.Request{fetch, hb, pa, pb, av} {
		if i > 0 {
			r.SetVersion(map[int16]int16{12: 4, 0: 9, 18: 0}[r.Key()])
		}
		p.corr++
		p.sent[p.corr] = r
		out = append(out, formatter.AppendRequest(nil, r, p.corr)...)
	}
	p.write(out)
	for want := int32(1); want <= 5; want++ {
		got, resp := p.recv()
		if got != want {
			t.Fatalf("answer %d came as number %d", got, want)
		}
		if took := time.Since(began); want == 1 && took < 290*time.Millisecond {
			t.Errorf("the fetch waited %v", took)
		}
		if pr, ok := resp.(*kmsg.ProduceResponse); ok && pr.Topics[0].Partitions[0].BaseOffset != int64(want-3) {
			t.Errorf("answer %d has offset %d", want, pr.Topics[0].Partitions[0].BaseOffset)
		}
	}
	if l := w.log("t0", 0); len(l.batches) != 2 || len(l.batches[0]) != len(a) {
		t.Error("the batches lie in the wrong order")
	}
}

// TestC04ProducesOverlap: the next Produce is submitted before the one ahead is
// acknowledged; another API is not handled before both are.
func TestC04ProducesOverlap(t *testing.T) {
	t.Parallel()
	w := newWorld()
	var handled bool
	w.groups.heartbeat = func(group.Membership) error { handled = true; return nil }
	dones := make(chan func(partition.AppendResult), 8)
	w.log("t0", 0).onSubmit = func(_ partition.AppendRequest, done func(partition.AppendResult)) bool {
		dones <- done
		return true
	}
	s := startServer(t, w, nil)
	p := s.dial(t)
	p.send(9, produceOf(w, "t0", 1, batch(1, 1)), produceOf(w, "t0", 1, batch(2, 1)), produceOf(w, "t0", 1, batch(3, 1)))
	p.send(4, &kmsg.HeartbeatRequest{Group: "g"})
	p.send(9, produceOf(w, "t0", 1, batch(4, 1)))
	var first [3]func(partition.AppendResult)
	for i := range first {
		first[i] = <-dones // all three are there, none acknowledged
	}
	// Acknowledged backwards; answered forwards.
	first[2](partition.AppendResult{BaseOffset: 2})
	first[1](partition.AppendResult{BaseOffset: 1})
	select {
	case <-dones:
		t.Fatal("a Produce overtook a Heartbeat")
	default:
	}
	if handled {
		t.Fatal("the Heartbeat was handled before the Produces ahead of it were answered")
	}
	first[0](partition.AppendResult{BaseOffset: 0})
	for i := range int32(3) {
		corr, resp := p.recv()
		if corr != i+1 || resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0].BaseOffset != int64(i) {
			t.Fatalf("answer %d: %+v", corr, resp)
		}
	}
	if corr, _ := p.recv(); corr != 4 {
		t.Fatalf("answer %d after the Produces", corr)
	}
	(<-dones)(partition.AppendResult{BaseOffset: 3})
	if corr, _ := p.recv(); corr != 5 {
		t.Fatalf("answer %d at the end", corr)
	}
}

// TestC04JoinHoldsItsConnectionOnly: what comes behind a JoinGroup that waits,
// waits; other connections do not.
func TestC04JoinHoldsItsConnectionOnly(t *testing.T) {
	t.Parallel()
	w := newWorld()
	joined := make(chan struct{})
	entered := make(chan struct{}, 1)
	w.groups.join = func(group.JoinRequest) group.JoinResponse {
		entered <- struct{}{}
		<-joined
		return group.JoinResponse{Err: kerr.UnknownMemberID}
	}
	s := startServer(t, w, nil)
	p, other := s.dial(t), s.dial(t)
	p.send(5, &kmsg.JoinGroupRequest{Group: "g"})
	p.send(9, produceOf(w, "t0", -1, batch(1, 1)))
	p.send(1, kmsg.NewPtrMetadataRequest())
	<-entered
	ask[*kmsg.MetadataResponse](other, 1, kmsg.NewPtrMetadataRequest())
	if n := len(w.log("t0", 0).batches); n != 0 {
		t.Error("a Produce was appended while a JoinGroup ahead of it was open")
	}
	close(joined)
	for want := int32(1); want <= 3; want++ {
		if got, _ := p.recv(); got != want {
			t.Fatalf("answer %d came as number %d", got, want)
		}
	}
}

// TestC04ManyMixedRequests sends a long random mix and checks order and offsets.
func TestC04ManyMixedRequests(t *testing.T) {
	t.Parallel()
	w := newWorld()
	// Acks come from another goroutine, in the order of submission.
	acks := make(chan func(), 1000)
	go func() {
		for f := range acks {
			f()
		}
	}()
	l := w.log("t0", 0)
	l.onSubmit = func(r partition.AppendRequest, done func(partition.AppendResult)) bool {
		res := l.append(r.Records)
		acks <- func() { done(res) }
		return true
	}
	s := startServer(t, w, nil)
	p := s.dial(t)
	f := newFiller(42)
	const n = 600
	produces := make([]bool, n)
	var out []byte
	for i := range n {
		var r kmsg.Request
		if produces[i] = f.IntN(3) > 0; produces[i] {
			r = produceOf(w, "t0", -1, batch(int64(i), f.IntN(3000)))
			r.SetVersion(9)
		} else {
			r = &kmsg.HeartbeatRequest{Group: "g", Version: 4}
		}
		p.corr++
		p.sent[p.corr] = r
		out = append(out, formatter.AppendRequest(nil, r, p.corr)...)
	}
	go func() { _, _ = p.Write(out) }()
	offset := int64(0)
	for i := range n {
		corr, resp := p.recv()
		if corr != int32(i+1) {
			t.Fatalf("answer %d came as number %d", corr, i+1)
		}
		if produces[i] {
			if sp := resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0]; sp.BaseOffset != offset || sp.ErrorCode != 0 {
				t.Fatalf("request %d: offset %d, want %d", corr, sp.BaseOffset, offset)
			}
			offset++
		}
	}
	close(acks)
}

// TestC04NoAcks: acks=0 gets no bytes; an error closes the connection after the
// answers before it.
func TestC04NoAcks(t *testing.T) {
	t.Parallel()
	w := newWorld()
	s := startServer(t, w, nil)
	p := s.dial(t)
	p.send(9, produceOf(w, "t0", 0, batch(1, 1)), produceOf(w, "t0", 0, batch(1, 1)), produceOf(w, "t0", 1, batch(1, 1)))
	corr, resp := p.recv()
	if corr != 3 || resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0].BaseOffset != 2 {
		t.Fatalf("answer %d: %+v", corr, resp)
	}
	p.send(9, produceOf(w, "t0", 1, batch(1, 1)), produceOf(w, "nosuch", 0, batch(1, 1)), produceOf(w, "t0", 1, batch(1, 1)))
	if corr, _ = p.recv(); corr != 4 {
		t.Fatalf("answer %d", corr)
	}
	p.closed("acks=0 with an error")
	// Records of a client that leaves at once are appended all the same.
	p = s.dial(t)
	p.send(9, produceOf(w, "t1", 0, batch(1, 1)), produceOf(w, "t1", 0, batch(1, 1)))
	_ = p.Close()
	eventually(t, "both records appended", func() bool {
		n, _ := w.log("t1", 0).Available(context.Background(), 0, false)
		return n == 2*len(batch(1, 1))
	})
}

// TestReadAhead: a client that reads nothing is read from up to the limit.
func TestReadAhead(t *testing.T) {
	t.Parallel()
	w := newWorld()
	dones := make(chan func(partition.AppendResult), 100)
	w.log("t0", 0).onSubmit = func(_ partition.AppendRequest, done func(partition.AppendResult)) bool {
		dones <- done
		return true
	}
	s := startServer(t, w, func(c *Config) { c.MaxInflight = 5 })
	p := s.dial(t)
	for range 8 {
		p.send(9, produceOf(w, "t0", 1, batch(1, 1)))
	}
	var got []func(partition.AppendResult)
	for range 5 {
		got = append(got, <-dones)
	}
	eventually(t, "the sixth request is read and waits", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		for c := range s.conns {
			c.mu.Lock()
			defer c.mu.Unlock()
			return len(c.queue) == 5
		}
		return false
	})
	if len(dones) != 0 {
		t.Fatal("more than five requests are being worked on")
	}
	for i := range 8 {
		if i >= 5 {
			got = append(got, <-dones)
		}
		got[i](partition.AppendResult{BaseOffset: 1})
		if corr, _ := p.recv(); corr != int32(i+1) {
			t.Fatalf("answer %d", corr)
		}
	}
}

// TestFrameKeptWhilePartitionWorks: the bytes of a batch stay what they are
// until the partition is done, also when its connection is long gone.
func TestFrameKeptWhilePartitionWorks(t *testing.T) {
	t.Parallel()
	w := newWorld()
	type held struct {
		records []byte
		done    func(partition.AppendResult)
	}
	submitted := make(chan held, 1)
	w.log("t0", 0).onSubmit = func(r partition.AppendRequest, done func(partition.AppendResult)) bool {
		submitted <- held{r.Records, done}
		return true
	}
	s := startServer(t, w, func(c *Config) { c.GoneGrace = time.Millisecond })
	p := s.dial(t)
	want := batch(1, 50_000)
	p.send(9, produceOf(w, "t0", -1, bytes.Clone(want)))
	h := <-submitted
	_ = p.Close()
	eventually(t, "connection gone", func() bool { return s.value(t, "stream_connections") == 0 })
	// Other frames of the same size come and go.
	q := s.dial(t)
	for i := range 50 {
		q.send(9, produceOf(w, "t1", -1, bytes.Repeat([]byte{byte(i)}, 50_000)))
		q.recv()
	}
	if !bytes.Equal(h.records, want) {
		t.Error("the batch changed while the partition had it")
	}
	if s.budget.held() == 0 {
		t.Error("its bytes do not count any more")
	}
	h.done(partition.AppendResult{})
}

// TestPanicEndsOneConnection: the process lives, the panic is counted.
func TestPanicEndsOneConnection(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.groups.heartbeat = func(group.Membership) error { panic("as a test wants it") }
	w.log("t0", 0).onSubmit = func(partition.AppendRequest, func(partition.AppendResult)) bool { panic("in submit") }
	w.log("t0", 0).onRead = func(partition.ReadRequest) { panic("in read") }
	s := startServer(t, w, nil)
	for i, r := range []kmsg.Request{&kmsg.HeartbeatRequest{Group: "g"}, produceOf(w, "t0", 1, batch(1, 1)), offsetsOf("t1", -1, 666, -1), recordsOf(w, "t0", 0, 0)} {
		p, q := s.dial(t), s.dial(t)
		p.send(4, r)
		p.closed("panic")
		ask[*kmsg.MetadataResponse](q, 1, kmsg.NewPtrMetadataRequest())
		if n := s.value(t, "stream_panics_total"); n != float64(i+1) {
			t.Errorf("%v panics counted", n)
		}
	}
}

// TestLeaverIsHeard: what a client sent before it closed is handled.
func TestLeaverIsHeard(t *testing.T) {
	t.Parallel()
	w := newWorld()
	left := make(chan string, 1)
	w.groups.leave = func(g string, _ []group.LeaveMember) group.LeaveResponse { left <- g; return group.LeaveResponse{} }
	s := startServer(t, w, nil)
	p := s.dial(t)
	fetch := recordsOf(w, "t0", 0, 0)
	fetch.MaxWaitMillis = 60_000
	p.send(12, fetch)
	p.send(3, &kmsg.LeaveGroupRequest{Group: "bye", Members: []kmsg.LeaveGroupRequestMember{{MemberID: "m"}}})
	_ = p.Close()
	if g := <-left; g != "bye" {
		t.Error(g)
	}
	eventually(t, "no waiter left", func() bool { return w.log("t0", 0).waiting() == 0 })
}

// TestGoneClientFreesJoin: a join whose client vanished ends after the grace.
func TestGoneClientFreesJoin(t *testing.T) {
	t.Parallel()
	w := newWorld()
	ended := make(chan struct{})
	entered := make(chan struct{})
	w.groups.join = nil
	b := &ctxGroups{world: w, join: func(ctx context.Context) { close(entered); <-ctx.Done(); close(ended) }}
	s := startServer(t, b, func(c *Config) { c.GoneGrace = 10 * time.Millisecond })
	p := s.dial(t)
	p.send(5, &kmsg.JoinGroupRequest{Group: "g"})
	<-entered
	_ = p.Close()
	<-ended
	eventually(t, "connection gone", func() bool { return s.value(t, "stream_connections") == 0 })
}

// ctxGroups shows the context of JoinGroup.
type ctxGroups struct {
	*world
	join func(ctx context.Context)
}

func (g *ctxGroups) Groups() Groups { return ctxJoin{g.world.groups, g.join} }

type ctxJoin struct {
	stubGroups
	join func(ctx context.Context)
}

func (j ctxJoin) Join(ctx context.Context, _ group.JoinRequest) group.JoinResponse {
	j.join(ctx)
	return group.JoinResponse{Err: kerr.UnknownMemberID}
}

// TestDrain: produces finish, a waiting fetch answers early, then the connection
// ends cleanly; nothing is accepted any more.
func TestDrain(t *testing.T) {
	t.Parallel()
	w := newWorld()
	dones := make(chan func(partition.AppendResult), 1)
	w.log("t0", 0).onSubmit = func(_ partition.AppendRequest, done func(partition.AppendResult)) bool {
		dones <- done
		return true
	}
	s := startServer(t, w, nil)
	p, q, idle := s.dial(t), s.dial(t), s.dial(t)
	p.send(9, produceOf(w, "t0", -1, batch(1, 1)))
	fetch := recordsOf(w, "t1", 0, 1)
	fetch.MaxWaitMillis = 50_000
	q.send(12, fetch)
	done := <-dones
	eventually(t, "fetch waits", func() bool { return w.log("t1", 1).waiting() == 1 })
	eventually(t, "three connections", func() bool { return s.value(t, "stream_connections") == 3 })

	down := make(chan error, 1)
	go func() { down <- s.Shutdown(context.Background()) }()
	if _, resp := q.recv(); resp.(*kmsg.FetchResponse).Topics[0].Partitions[0].ErrorCode != 0 {
		t.Errorf("%+v", resp)
	}
	q.closed("drained")
	idle.closed("drained")
	select {
	case err := <-down:
		t.Fatalf("shutdown ended before the produce did: %v", err)
	default:
	}
	// What arrives now is not read, and does not cost p its answer.
	p.write(framed([]byte{0, 3, 0, 1, 0, 0, 0, 9, 0xff, 0xff, 0, 0, 0, 0}))
	done(partition.AppendResult{BaseOffset: 5})
	if _, resp := p.recv(); resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0].BaseOffset != 5 {
		t.Errorf("%+v", resp)
	}
	if b, err := io.ReadAll(p); err != nil || len(b) > 0 {
		t.Errorf("after the last answer: %q, %v", b, err)
	}
	_ = p.Close()
	_ = q.Close()
	_ = idle.Close()
	if err := <-down; err != nil {
		t.Error(err)
	}
}

// TestShutdownCuts: what does not end in time is cut.
func TestShutdownCuts(t *testing.T) {
	t.Parallel()
	w := newWorld()
	dones := make(chan func(partition.AppendResult), 1)
	w.log("t0", 0).onSubmit = func(_ partition.AppendRequest, done func(partition.AppendResult)) bool {
		dones <- done
		return true
	}
	s := startServer(t, w, nil)
	p := s.dial(t)
	p.send(9, produceOf(w, "t0", -1, batch(1, 1)))
	done := <-dones
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := s.Shutdown(ctx); err == nil {
		t.Error("the deadline is no error")
	}
	p.closed("cut")
	done(partition.AppendResult{}) // late, harmless
}
