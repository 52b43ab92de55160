package protocol

import (
	"math"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// sessions are fetch sessions as a handler uses them. Suite test/e2e/keys has
// whole lives of sessions, beside Apache Kafka.
type sessions struct {
	*fetchSessions
	t      *testing.T
	w      *world
	h      *handler
	fulled int // how often there was no room
}

func newSessions(t *testing.T, slots int) *sessions {
	s := &sessions{t: t, w: newWorld()}
	s.fetchSessions = newFetchSessions(slots, func() { s.fulled++ })
	s.h = &handler{backend: s.w, config: DefaultConfig(), sessions: s.fetchSessions, answers: newAnswers(1 << 20), limits: newLimits()}
	return s
}

// fetch asks for n partitions of t1 and more, of which a client may ask in vain.
func (s *sessions) fetch(id, epoch int32, set func(*kmsg.FetchRequest), partitions ...int32) *kmsg.FetchResponse {
	s.t.Helper()
	r := recordsOf(s.w, "t1", 0, partitions...)
	r.SetVersion(12)
	r.SessionID, r.SessionEpoch = id, epoch
	if len(partitions) == 0 {
		r.Topics = nil
	}
	if set != nil {
		set(r)
	}
	resp, err := s.h.fetch(s.t.Context(), &request{Request: r, conn: &conn{}})
	if err != nil {
		s.t.Fatal(err)
	}
	f := resp.(*fetchResponse)
	f.release()
	return &f.FetchResponse
}

// open makes a session of that many partitions.
func (s *sessions) open(size int) int32 {
	s.t.Helper()
	ns := make([]int32, size)
	for i := range ns {
		ns[i] = int32(i)
	}
	return s.fetch(0, 0, nil, ns...).SessionID
}

func (s *sessions) lives(id, epoch int32) bool {
	s.t.Helper()
	switch resp := s.fetch(id, epoch, nil); resp.ErrorCode {
	case 0:
		return true
	case kerr.FetchSessionIDNotFound.Code:
		return false
	default:
		s.t.Fatalf("session %d at epoch %d: code %d", id, epoch, resp.ErrorCode)
		return false
	}
}

func (s *sessions) consistent() {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	parts := 0
	for id, x := range s.byID {
		if x.id != id || x.busy || x.size != x.parts || len(x.known) != len(x.list) {
			s.t.Errorf("session %d: %+v", id, x)
		}
		parts += x.size
	}
	if parts != s.parts || len(s.byID) > s.slots || parts > s.slots*partsPerSlot {
		s.t.Errorf("%d sessions, %d partitions counted as %d", len(s.byID), parts, s.parts)
	}
}

// Who goes when there is no slot left (FetchSessionCache.tryEvict).
func TestFetchSessionEviction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSessions(t, 2)
		a, b := s.open(3), s.open(1)
		if a == 0 || b == 0 || a == b {
			t.Fatalf("sessions %d and %d", a, b)
		}
		if id := s.open(5); id != 0 || s.fulled != 1 {
			t.Errorf("a third session %d, full %d times", id, s.fulled)
		}
		time.Sleep(evictAfter + time.Second)
		if !s.lives(a, 1) || !s.lives(b, 1) {
			t.Fatal("a session has gone by itself")
		}
		// Both have had their time and are in use: only a larger one takes the place
		// of the smaller.
		if id := s.open(1); id != 0 {
			t.Error("one of the same size took a place")
		}
		c := s.open(2)
		if c == 0 || s.lives(b, 2) || !s.lives(a, 2) {
			t.Error("the smallest should have gone")
		}
		// c is young: it stays, however large the next one is. Not so a.
		d := s.open(4)
		if d == 0 || s.lives(a, 3) || !s.lives(c, 1) {
			t.Error("the young one should have stayed")
		}
		// The one that was not used for longest goes first, whatever its size.
		time.Sleep(evictAfter + time.Second)
		if !s.lives(c, 2) {
			t.Fatal("c has gone")
		}
		if s.open(1) == 0 || s.lives(d, 1) {
			t.Error("the idle one should have gone")
		}
		s.consistent()
	})
}

func TestFetchSessionLimits(t *testing.T) {
	t.Parallel()
	none := newSessions(t, 0)
	if id := none.open(1); id != 0 {
		t.Errorf("session %d without slots", id)
	}
	s := newSessions(t, 1)
	if id := s.open(partsPerSlot + 1); id != 0 {
		t.Error("a session beyond the bound of partitions")
	}
	id := s.open(partsPerSlot)
	if id == 0 {
		t.Fatal("no session")
	}
	s.consistent()
	// One that grows beyond it ends, and its client begins anew.
	if resp := s.fetch(id, 1, nil, 5000); resp.ErrorCode != 70 || resp.SessionID != 0 || s.lives(id, 2) {
		t.Errorf("%+v", resp)
	}
	s.consistent()
	if s.parts != 0 {
		t.Errorf("%d partitions are still counted", s.parts)
	}
}

// Names that no topic can have are kept all the same, and count by their length:
// what a client can make us keep is bounded in bytes.
func TestRow11FetchSessionNames(t *testing.T) {
	t.Parallel()
	s := newSessions(t, 2)
	named := func(n int) func(*kmsg.FetchRequest) {
		return func(r *kmsg.FetchRequest) {
			r.Topics = nil
			for i := range n {
				rt := kmsg.NewFetchRequestTopic()
				rt.Topic = strings.Repeat("x", 30_000) + strconv.Itoa(i)
				rt.Partitions = append(rt.Partitions, kmsg.NewFetchRequestTopicPartition())
				r.Topics = append(r.Topics, rt)
			}
		}
	}
	if resp := s.fetch(0, 0, named(5)); resp.SessionID != 0 || len(resp.Topics) != 5 {
		t.Errorf("150 kB of names are kept in session %d, %d topics", resp.SessionID, len(resp.Topics))
	}
	id := s.fetch(0, 0, named(4)).SessionID
	if id == 0 || s.parts != 4*(1+30_001/namePerPart) {
		t.Fatalf("session %d, %d parts", id, s.parts)
	}
	s.consistent()
	other := s.open(1)
	if resp := s.fetch(other, 1, named(1)); resp.ErrorCode != 70 || s.lives(other, 2) {
		t.Errorf("one that grows by a name: %+v", resp)
	}
	// What is forgotten is given back.
	if resp := s.fetch(id, 1, func(r *kmsg.FetchRequest) {
		r.Topics = nil
		var all kmsg.FetchRequest
		named(4)(&all)
		for _, rt := range all.Topics[1:] {
			ft := kmsg.NewFetchRequestForgottenTopic()
			ft.Topic, ft.Partitions = rt.Topic, []int32{0}
			r.ForgottenTopics = append(r.ForgottenTopics, ft)
		}
	}); resp.ErrorCode != 0 || s.parts != 1+30_001/namePerPart {
		t.Errorf("%d parts, %+v", s.parts, resp)
	}
	s.consistent()
}

// A session takes the place of one other at most, and of none if there would be
// no room for it all the same.
func TestFetchSessionEvictsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSessions(t, 3)
		a, b, c := s.open(partsPerSlot), s.open(partsPerSlot), s.open(partsPerSlot)
		time.Sleep(evictAfter + time.Second)
		for _, id := range []int32{a, b, c} {
			if id == 0 || !s.lives(id, 1) {
				t.Fatal("a session has gone")
			}
		}
		for _, size := range []int{partsPerSlot + 1, 2 * partsPerSlot, 3 * partsPerSlot, 4 * partsPerSlot} {
			if id := s.open(size); id != 0 {
				t.Errorf("a session of %d partitions found room", size)
			}
		}
		for _, id := range []int32{a, b, c} {
			if !s.lives(id, 2) {
				t.Error("one has gone for nothing, or several for one")
			}
		}
		s.consistent()
	})
}

// Two requests of one session at a time cannot both be the next one.
func TestFetchSessionBusy(t *testing.T) {
	t.Parallel()
	s := newSessions(t, 10)
	id := s.open(2)
	reading := make(chan struct{})
	got := make(chan *kmsg.FetchResponse, 1)
	srv := s.w.log("t1", 0)
	go func() {
		r := recordsOf(s.w, "t1", 0)
		r.SetVersion(12)
		r.Topics = nil
		r.SessionID, r.SessionEpoch, r.MaxWaitMillis = id, 1, 60_000
		close(reading)
		resp, err := s.h.fetch(t.Context(), &request{Request: r, conn: &conn{}})
		if err != nil {
			t.Error(err)
			got <- nil
			return
		}
		f := resp.(*fetchResponse)
		f.release()
		got <- &f.FetchResponse
	}()
	<-reading
	eventually(t, "the fetch waits", func() bool { return srv.waiting() == 1 })
	if resp := s.fetch(id, 2, nil); resp.ErrorCode != 71 {
		t.Errorf("at the same time: %+v", resp)
	}
	srv.append(batch(1, 10))
	if resp := <-got; resp == nil || resp.ErrorCode != 0 || len(resp.Topics) != 1 {
		t.Errorf("the first: %+v", resp)
	}
	if !s.lives(id, 2) {
		t.Error("the session has gone")
	}
	s.consistent()
}

// A full request that names a session in use ends it for good.
func TestFetchSessionEndedWhileBusy(t *testing.T) {
	t.Parallel()
	f := newFetchSessions(10, func() {})
	req := func(id, epoch int32) *kmsg.FetchRequest {
		r := recordsOf(newWorld(), "t1", 0, 1)
		r.SetVersion(12)
		r.SessionID, r.SessionEpoch = id, epoch
		return r
	}
	s, _, err := f.begin(req(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	f.keep(s)
	f.done(s)
	if s, _, err = f.begin(req(s.id, 1)); err != nil {
		t.Fatal(err)
	}
	if other, _, err := f.begin(req(s.id, -1)); err != nil || other != nil {
		t.Fatalf("%v, %v", other, err)
	}
	f.done(s)
	if len(f.byID) != 0 || f.parts != 0 {
		t.Errorf("%d sessions, %d partitions", len(f.byID), f.parts)
	}
	// After the highest epoch comes 1.
	s, _, _ = f.begin(req(0, 0))
	f.keep(s)
	s.epoch, s.busy = math.MaxInt32, false
	if _, _, err := f.begin(req(s.id, math.MaxInt32)); err != nil || s.epoch != 1 {
		t.Errorf("epoch %d, %v", s.epoch, err)
	}
}

// Order: who had records is served last the next time, all keep their order
// else.
func TestFetchSessionTurns(t *testing.T) {
	s := &fetchSession{}
	var all []*sessionPart
	for i := range int32(5) {
		all = append(all, &sessionPart{sessionKey: sessionKey{partition: i}})
	}
	s.list = append(s.list, all...)
	for _, c := range []struct{ had, want []int }{
		{nil, []int{0, 1, 2, 3, 4}}, {[]int{4}, []int{0, 1, 2, 3, 4}}, {[]int{3, 4}, []int{0, 1, 2, 3, 4}},
		{[]int{0, 2}, []int{1, 3, 4, 0, 2}}, {[]int{3, 2}, []int{1, 4, 0, 3, 2}}, {[]int{1, 4, 0, 3, 2}, []int{1, 4, 0, 3, 2}},
	} {
		var moved []*sessionPart
		for _, i := range c.had {
			moved = append(moved, all[i])
		}
		s.turn(moved)
		for i, w := range c.want {
			if s.list[i] != all[w] || len(s.list) != 5 {
				t.Fatalf("after %v: place %d has %d, want %d", c.had, i, s.list[i].partition, w)
			}
		}
	}
}
