package cluster

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// waits remembers where the requests of one client waited, so that a stall can be
// told together with who did not answer. A frozen process still accepts connections
// (its kernel does), so a client finds out by its own timeouts only; franz-go asks
// its coordinator again and again at the same place until a connection is refused or
// an answer names another.
type waits struct {
	mu   sync.Mutex
	all  []wait // guards: in the order they ended, the last keptWaits
	said []line // guards: what the client itself logged, the last keptLines

	// A stall ends for many records at once; they share what was logged.
	shared      []line
	sharedSince time.Time // began
	sharedAt    time.Time // asked
}

// line is one of a client's log.
type line struct {
	at   time.Time
	text string
}

// wait is one request that took long or failed.
type wait struct {
	addr  string
	key   int16 // connecting: that of ApiVersions
	began time.Time
	took  time.Duration
	err   error
}

// keptWaits are more than one stall has.
const keptWaits = 500

// keptLines are what a reader logs in some ten seconds.
const keptLines = 5000

// Level makes waits a kgo.Logger, for clients whose stalls are hard to explain.
func (w *waits) Level() kgo.LogLevel { return kgo.LogLevelDebug }

// Log keeps a line.
func (w *waits) Log(_ kgo.LogLevel, msg string, keyvals ...any) {
	text := msg
	for i := 0; i+1 < len(keyvals); i += 2 {
		text += fmt.Sprintf(" %v=%.200v", keyvals[i], keyvals[i+1])
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.said = append(w.said, line{time.Now(), text})
	if len(w.said) > 2*keptLines {
		w.said = slices.Clone(w.said[keptLines:])
	}
}

// log is what the client said from then on, at most some 200 lines from the
// beginning and as many from the end.
func (w *waits) log(began time.Time) []line {
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	if !began.Before(w.sharedSince) && now.Sub(w.sharedAt) < noticeable {
		return w.shared
	}
	i, _ := slices.BinarySearchFunc(w.said, began, func(l line, t time.Time) int { return l.at.Compare(t) })
	said := slices.Clone(w.said[i:])
	if most := 200; len(said) > 2*most {
		said = slices.Concat(said[:most], said[len(said)-most:])
	}
	w.shared, w.sharedSince, w.sharedAt = said, began, now
	return said
}

// keysOf are the requests that an operation waits for. Connecting and the question
// who the coordinator or leader is belong to all.
var keysOf = map[string][]kmsg.Key{
	opProduce: {kmsg.Produce, kmsg.InitProducerID},
	opFetch:   {kmsg.Fetch, kmsg.ListOffsets},
	opCommit:  {kmsg.OffsetCommit, kmsg.FindCoordinator},
}

func (w *waits) note(meta kgo.BrokerMetadata, key int16, d time.Duration, err error) {
	if d < noticeable && err == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, wait{fmt.Sprintf("%s:%d", meta.Host, meta.Port), key, time.Now().Add(-d), d, err})
	if len(w.all) > 2*keptWaits {
		w.all = slices.Clone(w.all[keptWaits:])
	}
}

// OnBrokerE2E is called by franz-go with each request that has ended. Connecting is
// told of as a whole.
func (w *waits) OnBrokerE2E(meta kgo.BrokerMetadata, key int16, e kgo.BrokerE2E) {
	if key != int16(kmsg.ApiVersions) {
		w.note(meta, key, e.WriteWait+e.DurationE2E(), e.Err())
	}
}

// OnBrokerConnect is called by franz-go with each connection made, or not.
func (w *waits) OnBrokerConnect(meta kgo.BrokerMetadata, d time.Duration, _ net.Conn, err error) {
	w.note(meta, int16(kmsg.ApiVersions), d, err)
}

// during are the waits of an operation.
func (w *waits) during(op string, began time.Time, took time.Duration) []wait {
	if w == nil {
		return nil
	}
	keys := append([]kmsg.Key{kmsg.ApiVersions, kmsg.Metadata}, keysOf[op]...)
	w.mu.Lock()
	defer w.mu.Unlock()
	var ws []wait
	for _, x := range w.all {
		if slices.Contains(keys, kmsg.Key(x.key)) && x.began.Before(began.Add(took)) && x.began.Add(x.took).After(began) {
			ws = append(ws, x)
		}
	}
	return ws
}

// why says where a stall's time went: how much of it the client waited at gateways
// that stood still, and its longest waits by place.
func (w *watch) why(s stall) string {
	type place struct{ addr, what string }
	took, times := map[place]time.Duration{}, map[place]int{}
	var still []span
	for _, x := range s.waits {
		p := place{cmp.Or(w.names[x.addr], x.addr), kmsg.Key(x.key).Name()}
		took[p] += x.took
		times[p]++
		for _, f := range w.faults {
			if f.kind == freezeGateway && f.what == p.addr {
				still = append(still, span{x.began, x.began.Add(x.took)}.and(f.span()).and(s.span()))
			}
		}
	}
	places := slices.SortedFunc(maps.Keys(took), func(a, b place) int {
		return cmp.Or(cmp.Compare(took[b], took[a]), cmp.Compare(a.addr+a.what, b.addr+b.what))
	})
	var parts []string
	if d := covered(still); d > 0 {
		parts = append(parts, fmt.Sprintf("%v of it at gateways that stood still", d.Round(time.Millisecond)))
	}
	for _, p := range places[:min(4, len(places))] {
		if took[p] >= noticeable {
			parts = append(parts, fmt.Sprintf("%s at %s %d times %v", p.what, p.addr, times[p], took[p].Round(time.Millisecond)))
		}
	}
	return strings.Join(parts, ", ")
}

// span is a piece of time; one that ends before it begins is none.
type span struct{ from, to time.Time }

func (a span) and(b span) span {
	if b.from.After(a.from) {
		a.from = b.from
	}
	if b.to.Before(a.to) {
		a.to = b.to
	}
	return a
}

// covered is how much time the spans cover together.
func covered(spans []span) (d time.Duration) {
	slices.SortFunc(spans, func(a, b span) int { return a.from.Compare(b.from) })
	var until time.Time
	for _, s := range spans {
		if s.from.Before(until) {
			s.from = until
		}
		if s.to.After(s.from) {
			d += s.to.Sub(s.from)
			until = s.to
		}
	}
	return d
}
