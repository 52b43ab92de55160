package protocol

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/types"
)

// Fetch sessions (KIP-227; org.apache.kafka.server.FetchManager): a client that
// has named its partitions once is told, from then on, only of those where
// something is new, and names only those that it wants otherwise. A consumer of
// a thousand partitions sends and reads 270 bytes per fetch instead of 70,000.
//
// Sessions are memory of this process alone. A client that comes to another
// gateway is told FETCH_SESSION_ID_NOT_FOUND and names its partitions again.

// evictAfter is how long a session is safe: then it goes for a new one if it was
// not used since, or is smaller (min.incremental.fetch.session.eviction.ms).
const evictAfter = 2 * time.Minute

// partsPerSlot bounds the partitions of all sessions, 260 to 600 bytes each, by
// their slots. A name that is longer than a topic's can be counts as more of
// them: clients can ask for what does not exist, and the name is kept.
const (
	partsPerSlot = 256
	namePerPart  = 256 // bytes
)

// fetchSessions are the sessions of all clients.
type fetchSessions struct {
	slots int // max.incremental.fetch.session.cache.slots
	full  func()

	mu    sync.Mutex // guards: all below, and of each session what says so
	byID  map[int32]*fetchSession
	parts int // of all sessions, as they are counted
}

// fetchSession is one client's session. It is used by one request at a time.
type fetchSession struct {
	id    int32 // 0: not kept (yet)
	byIDs bool  // its topics have ids, no names (v13+)

	created, used time.Time // guarded by fetchSessions.mu
	epoch         int32     // of the next request; guarded by fetchSessions.mu
	busy          bool      // a request uses it; guarded by fetchSessions.mu
	size          int       // parts counted for it in fetchSessions; guarded by fetchSessions.mu

	// Of the request that uses it, without the lock: list has the partitions in the order in which
	// they are served, the one that had records last at the end.
	list  []*sessionPart
	known map[sessionKey]*sessionPart
	parts int // what they count
	// topics is list in the form of a request; nil if list has changed.
	topics []kmsg.FetchRequestTopic
}

type sessionKey struct {
	topic     string
	id        types.TopicID
	partition int32
}

type sessionPart struct {
	sessionKey
	// ask is what the client asked last, within topics if there are some.
	ask *kmsg.FetchRequestTopicPartition
	// What the client was told last.
	high, start int64
}

// parts is what a partition counts.
func (k sessionKey) parts() int { return 1 + len(k.topic)/namePerPart }

func newFetchSessions(slots int, full func()) *fetchSessions {
	return &fetchSessions{slots: slots, full: full, byID: make(map[int32]*fetchSession)}
}

// begin finds or makes the session of a request, and the request to answer: that
// with all partitions of the session. A nil session means that there is none.
// done must follow if there is one.
func (f *fetchSessions) begin(req *kmsg.FetchRequest) (s *fetchSession, use *kmsg.FetchRequest, err error) {
	switch req.SessionEpoch {
	case 0, -1:
		// A full request ends the session that it names.
		f.mu.Lock()
		f.dropLocked(f.byID[req.SessionID])
		f.mu.Unlock()
		if req.SessionEpoch == -1 || f.slots == 0 {
			return nil, req, nil
		}
		s = &fetchSession{byIDs: req.Version >= 13, known: make(map[sessionKey]*sessionPart)}
		s.update(req)
		return s, s.request(req), nil
	}
	if s, err = f.take(req); err != nil {
		return nil, nil, err
	}
	s.update(req) // without the lock: a request may name very many
	use = s.request(req)
	kept, err := f.count(s)
	if err != nil {
		return nil, nil, err
	}
	if !kept {
		s = nil
	}
	return s, use, nil
}

// take finds the session of a request, for its use alone.
func (f *fetchSessions) take(req *kmsg.FetchRequest) (*fetchSession, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.byID[req.SessionID]
	switch {
	case s == nil:
		return nil, kerr.FetchSessionIDNotFound
	case s.epoch != req.SessionEpoch, s.busy:
		return nil, kerr.InvalidFetchSessionEpoch
	case s.byIDs != (req.Version >= 13):
		return nil, kerr.FetchSessionTopicIDError
	}
	if s.epoch++; s.epoch < 0 { // after the highest comes 1
		s.epoch = 1
	}
	s.used, s.busy = time.Now(), true
	return s, nil
}

// count takes in how many partitions a session in use has now. One that has none
// ends; so does one that grows beyond what there is, and its client begins anew.
func (f *fetchSessions) count(s *fetchSession) (kept bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.byID[s.id] != s { // a full request has ended it meanwhile
		return len(s.list) > 0, nil
	}
	f.parts += s.parts - s.size
	s.size = s.parts
	switch {
	case len(s.list) == 0:
		f.dropLocked(s)
		return false, nil
	case f.parts > f.slots*partsPerSlot:
		f.full()
		f.dropLocked(s)
		return false, kerr.FetchSessionIDNotFound
	}
	return true, nil
}

// done ends a request's use of its session.
func (f *fetchSessions) done(s *fetchSession) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s.busy = false
}

func (f *fetchSessions) dropLocked(s *fetchSession) {
	if s != nil && s.id != 0 && f.byID[s.id] == s {
		delete(f.byID, s.id)
		f.parts -= s.size
	}
}

// update takes in what a request says of the session's partitions.
func (s *fetchSession) update(req *kmsg.FetchRequest) {
	for i := range req.Topics {
		rt := &req.Topics[i]
		for j := range rt.Partitions {
			ask := rt.Partitions[j]
			ask.UnknownTags = kmsg.Tags{}
			k := sessionKey{rt.Topic, rt.TopicID, ask.Partition}
			if p := s.known[k]; p != nil {
				*p.ask = ask
				continue
			}
			p := &sessionPart{sessionKey: k, ask: &ask, high: -1, start: -1}
			s.known[k] = p
			s.parts += k.parts()
			s.list = append(s.list, p)
			s.topics = nil
		}
	}
	gone := false
	for i := range req.ForgottenTopics {
		ft := &req.ForgottenTopics[i]
		for _, n := range ft.Partitions {
			k := sessionKey{ft.Topic, ft.TopicID, n}
			if s.known[k] != nil {
				delete(s.known, k)
				s.parts -= k.parts()
				gone = true
			}
		}
	}
	if gone {
		s.list = slices.DeleteFunc(s.list, func(p *sessionPart) bool { return s.known[p.sessionKey] != p })
		s.topics = nil
	}
}

// request is req with all partitions of the session, in their order.
func (s *fetchSession) request(req *kmsg.FetchRequest) *kmsg.FetchRequest {
	if s.topics == nil {
		asks := make([]kmsg.FetchRequestTopicPartition, len(s.list))
		first := 0
		for i, p := range s.list {
			asks[i] = *p.ask
			p.ask = &asks[i]
			if i == 0 || s.list[i-1].topic != p.topic || s.list[i-1].id != p.id {
				t := kmsg.NewFetchRequestTopic()
				t.Topic, t.TopicID = p.topic, p.id
				s.topics = append(s.topics, t)
				first = i
			}
			s.topics[len(s.topics)-1].Partitions = asks[first : i+1 : i+1]
		}
	}
	use := *req
	use.Topics, use.ForgottenTopics = s.topics, nil
	return &use
}

// answer makes the answer one of the session: of one that goes on, only what is
// new stays in it; one that begins is kept, if there is room.
func (f *fetchSessions) answer(s *fetchSession, slots []slot, resp *fetchResponse) {
	if s.id == 0 {
		for i, p := range s.list {
			p.told(slots[i].to, false)
		}
		f.keep(s)
		resp.SessionID = s.id
		return
	}
	resp.SessionID = s.id
	var (
		topics  []kmsg.FetchResponseTopic
		records [][][]byte
		last    *sessionPart
		moved   []*sessionPart
	)
	for i, p := range s.list {
		some := resp.bytes(i) > 0
		if some {
			moved = append(moved, p)
		}
		if !p.told(slots[i].to, some) {
			continue
		}
		if last == nil || last.topic != p.topic || last.id != p.id {
			t := kmsg.NewFetchResponseTopic()
			t.Topic, t.TopicID = p.topic, p.id
			topics = append(topics, t)
		}
		t := &topics[len(topics)-1]
		t.Partitions = append(t.Partitions, *slots[i].to)
		records = append(records, resp.records[i])
		last = p
	}
	resp.Topics, resp.records = topics, records
	s.turn(moved)
}

// turn puts those behind all others that had records, so that the next fetch
// begins with those that had none.
func (s *fetchSession) turn(moved []*sessionPart) {
	if len(moved) == 0 || slices.Equal(s.list[len(s.list)-len(moved):], moved) {
		return
	}
	rest := make([]*sessionPart, 0, len(s.list))
	next := 0 // of moved, which is in the order of list
	for _, p := range s.list {
		if next < len(moved) && p == moved[next] {
			next++
			continue
		}
		rest = append(rest, p)
	}
	s.list, s.topics = append(rest, moved...), nil
}

// told notes what is answered about a partition, and says whether it must be:
// with records, in error, or with bounds other than the client knows. After an
// error it must once more.
func (p *sessionPart) told(to *kmsg.FetchResponseTopicPartition, records bool) bool {
	must := records || to.ErrorCode != 0 || p.high != to.HighWatermark || p.start != to.LogStartOffset
	p.high, p.start = to.HighWatermark, to.LogStartOffset
	if to.ErrorCode != 0 {
		p.high = -1
	}
	return must
}

// keep gives a session its id and a slot, or neither.
func (f *fetchSessions) keep(s *fetchSession) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	if !f.roomLocked(now, s.parts) {
		f.full()
		return
	}
	for s.id == 0 || f.byID[s.id] != nil {
		s.id = 1 + rand.Int32N(math.MaxInt32)
	}
	s.created, s.used, s.epoch, s.size = now, now, 1, s.parts
	f.byID[s.id] = s
	f.parts += s.size
}

// roomLocked makes room for a session of size parts, if there can be: it takes
// the place of at most one other (FetchSessionCache.tryEvict), and is itself
// refused before it costs anybody his, if even that were not enough.
func (f *fetchSessions) roomLocked(now time.Time, size int) bool {
	most := f.slots * partsPerSlot
	if len(f.byID) < f.slots && f.parts+size <= most {
		return true
	}
	old := f.evictableLocked(now, size)
	if old == nil || f.parts-old.size+size > most {
		return false
	}
	f.dropLocked(old)
	return true
}

// evictableLocked is the session to end for one of size partitions: one that was
// not used for a while, else the smallest of those that have had their time, if
// it is smaller.
func (f *fetchSessions) evictableLocked(now time.Time, size int) *fetchSession {
	var idle, small *fetchSession
	for _, s := range f.byID {
		if s.busy {
			continue
		}
		if now.Sub(s.used) > evictAfter && (idle == nil || s.used.Before(idle.used)) {
			idle = s
		}
		if now.Sub(s.created) > evictAfter && s.size < size && (small == nil || cmp.Or(cmp.Compare(s.size, small.size), cmp.Compare(s.id, small.id)) < 0) {
			small = s
		}
	}
	if idle != nil {
		return idle
	}
	return small
}
