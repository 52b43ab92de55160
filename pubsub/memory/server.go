package memory

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/hanzoai/stream/pubsub"
)

// Config describes a server. The zero value is usable.
type Config struct {
	Clock       func() time.Time // the store's clock; nil: time.Now
	MaxPayload  int              // bytes of one message with headers; 0: 8 MiB
	MaxReplicas int              // 0: 1
	Version     string           // NATS version it claims; "": 2.15.2
	// Timeout is how long an isolated client's calls wait for an answer; 0: 5 s.
	Timeout time.Duration
	// Remember keeps what Trim removes for History.
	Remember bool
}

// maxHeaders is where NATS refuses a message's headers.
const maxHeaders = 64 << 10

// Server is the state that several clients share. Safe for concurrent use.
type Server struct {
	config Config

	mu       sync.Mutex // guards: all below, and the contents of logs, tables and queues
	logs     map[string]*stream
	subjects map[string]*stream
	tables   map[string]*table
	clients  []*Client
	services []*service
}

// NewServer makes an empty server. Nothing needs to be closed but its clients.
func NewServer(c Config) *Server {
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.MaxPayload == 0 {
		c.MaxPayload = 8 << 20
	}
	if c.Timeout == 0 {
		c.Timeout = 5 * time.Second
	}
	c.MaxReplicas = max(c.MaxReplicas, 1)
	if c.Version == "" {
		c.Version = "2.15.2"
	}
	return &Server{
		config:   c,
		logs:     map[string]*stream{},
		subjects: map[string]*stream{},
		tables:   map[string]*table{},
	}
}

// stream is one log's state. messages are in sequence order, perhaps with holes.
type stream struct {
	config   pubsub.LogConfig
	messages []pubsub.Message
	last     pubsub.Seq
	lastTime time.Time
	bytes    uint64
	trimmed  []pubsub.Message // only with Config.Remember
	leader   string           // the server that leads it; "": one called memory
	behind   int              // replicas that are not in sync
	offline  int              // those of them that are away
}

// find is the index of the first message with sequence >= seq.
func (s *stream) find(seq pubsub.Seq) int {
	if len(s.messages) == 0 {
		return 0
	}
	// Without holes the index follows from the first sequence.
	if first := s.messages[0].Seq; seq >= first {
		if i := int(seq - first); i < len(s.messages) && s.messages[i].Seq == seq {
			return i
		}
	} else {
		return 0
	}
	return sort.Search(len(s.messages), func(i int) bool { return s.messages[i].Seq >= seq })
}

func (s *stream) bounds() pubsub.Bounds {
	b := pubsub.Bounds{
		First: s.last + 1, Last: s.last, Messages: uint64(len(s.messages)), Bytes: s.bytes,
		LastTime: s.lastTime, Replicas: s.config.Replicas, InSync: s.config.Replicas - s.behind, Offline: s.offline, Leader: cmp.Or(s.leader, "memory"),
	}
	if len(s.messages) > 0 {
		b.First = s.messages[0].Seq
	}
	return b
}

// SetBehind makes so many replicas of a log lag, of which some are on servers that
// are away. It is only told: nothing else changes.
func (s *Server) SetBehind(log string, behind, offline int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.logs[log]; l != nil {
		l.behind, l.offline = behind, offline
	}
}

// SetLeader names the server that leads a log. It is only told: nothing else changes.
func (s *Server) SetLeader(log, leader string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.logs[log]; l != nil {
		l.leader = leader
	}
}

func size(m pubsub.Message) uint64 { return uint64(headerSize(m.Header) + len(m.Data) + 30) }

// headerSize is the length of the headers as NATS sends them.
func headerSize(h pubsub.Header) int {
	if len(h) == 0 {
		return 0
	}
	n := len("NATS/1.0\r\n\r\n")
	for k, vs := range h {
		for _, v := range vs {
			n += len(k) + len(v) + 4
		}
	}
	return n
}

func cloneHeader(h pubsub.Header) pubsub.Header {
	if len(h) == 0 {
		return nil
	}
	c := make(pubsub.Header, len(h))
	for k, v := range h {
		c[k] = slices.Clone(v)
	}
	return c
}

// storeLocked appends and tells the followers.
func (s *Server) storeLocked(st *stream, h pubsub.Header, data []byte) pubsub.Seq {
	st.last++
	st.lastTime = s.config.Clock()
	m := pubsub.Message{Seq: st.last, Time: st.lastTime, Header: h, Data: data, Size: len(data)}
	st.messages = append(st.messages, m)
	st.bytes += size(m)
	m.Data = nil
	for _, c := range s.clients {
		for _, f := range c.follows {
			if f.log.name == st.config.Name {
				f.pushLocked(m)
			}
		}
	}
	return st.last
}

// Publish stores a message as a plain NATS publisher does: by subject, without
// expectation. Headers that steer a publish are not kept. ErrNotFound: no log
// has that subject. It keeps neither header nor data.
func (s *Server) Publish(subject string, h pubsub.Header, data []byte) (pubsub.Seq, error) {
	h = cloneHeader(h)
	maps.DeleteFunc(h, func(k string, _ []string) bool { return strings.HasPrefix(k, "Nats-Expected-") })
	if len(h) == 0 {
		h = nil
	}
	data = slices.Clone(data)
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.subjects[subject]
	if st == nil {
		return 0, fmt.Errorf("publish %s: %w", subject, pubsub.ErrNotFound)
	}
	return s.storeLocked(st, h, data), nil
}

// History is Messages with what Trim has removed, from a sequence on. It needs
// Config.Remember.
func (s *Server) History(log string, from pubsub.Seq) []pubsub.Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.logs[log]
	if st == nil {
		return nil
	}
	gone := sort.Search(len(st.trimmed), func(i int) bool { return st.trimmed[i].Seq >= from })
	return slices.Concat(st.trimmed[gone:], st.messages[st.find(from):])
}

// Messages returns what a log holds, in order; nil if there is no such log.
func (s *Server) Messages(log string) []pubsub.Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st := s.logs[log]; st != nil {
		return slices.Clone(st.messages)
	}
	return nil
}

// Logs names all logs, sorted.
func (s *Server) Logs() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.logs))
}

// Remove deletes one message, as an operator could, and leaves a hole (or a
// log whose first or last message is gone). It reports whether it was there.
func (s *Server) Remove(log string, seq pubsub.Seq) bool {
	return s.RemoveRange(log, seq, seq) > 0
}

// RemoveRange is Remove for all messages from one sequence to another. It tells
// how many there were.
func (s *Server) RemoveRange(log string, from, to pubsub.Seq) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.logs[log]
	if st == nil {
		return 0
	}
	begin, end := st.find(from), st.find(to+1)
	if begin >= end {
		return 0
	}
	for _, m := range st.messages[begin:end] {
		st.bytes -= size(m)
	}
	// Into a new slice: readers may hold the old one.
	st.messages = slices.Concat(st.messages[:begin], st.messages[end:])
	return end - begin
}

// Rewrite changes one stored message, which no client can: fn gets a copy with
// data and headers of its own. It reports whether it was there.
func (s *Server) Rewrite(log string, seq pubsub.Seq, fn func(*pubsub.Message)) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.logs[log]
	if st == nil {
		return false
	}
	i := st.find(seq)
	if i == len(st.messages) || st.messages[i].Seq != seq {
		return false
	}
	m := st.messages[i]
	st.bytes -= size(m)
	m.Header, m.Data = cloneHeader(m.Header), slices.Clone(m.Data)
	fn(&m)
	m.Seq, m.Size = seq, len(m.Data)
	st.bytes += size(m)
	st.messages = slices.Clone(st.messages)
	st.messages[i] = m
	return true
}

// Forget removes a table's key with its marker, as a purge by an operator
// does: the key reads as never written. Watches hear nothing.
func (s *Server) Forget(table, key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.tables[table]; t != nil {
		delete(t.keys, key)
	}
}

// Image is a copy of one log or table at a moment.
type Image struct {
	log   *stream
	table *table
}

// Snapshot copies a log or a table, or returns nil if there is none of the
// name.
func (s *Server) Snapshot(name string) *Image {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st := s.logs[name]; st != nil {
		return &Image{log: st.clone()}
	}
	if t := s.tables[name]; t != nil {
		return &Image{table: t.clone()}
	}
	return nil
}

// Restore puts an image in the place of what has its name now: sequences and
// revisions go back to what they were. Followers and watches start over, as
// after a reconnect. An image can be restored many times.
func (s *Server) Restore(i *Image) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var name string
	if i.log != nil {
		st := i.log.clone()
		name = st.config.Name
		s.logs[name], s.subjects[st.config.Subject] = st, st
	} else {
		t := i.table.clone()
		name = t.name
		s.tables[name] = t
	}
	for _, c := range s.clients {
		if c.up {
			c.restartLocked(name)
		}
	}
}

func (s *stream) clone() *stream {
	c := *s
	c.messages = slices.Clone(s.messages)
	return &c
}
