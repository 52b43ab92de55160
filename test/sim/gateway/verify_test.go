package gateway

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hanzoai/stream/broker"
	"github.com/hanzoai/stream/broker/group"
	"github.com/hanzoai/stream/broker/partition"
	"github.com/hanzoai/stream/serde"
	"github.com/hanzoai/stream/test/history"
	"github.com/hanzoai/stream/types"
)

// patience is how long healed gateways may take, in virtual time.
const patience = 3 * time.Minute

// eventually waits until nothing is missing any more.
func (s *run) eventually(what string, missing func() string) {
	why := ""
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(time.Second) {
		if why = missing(); why == "" {
			return
		}
	}
	s.t.Errorf("%s, after %v without faults: %s", what, patience, why)
}

// verifyProgress waits until every group is stable and has committed the ends of
// its logs.
func (s *run) verifyProgress() {
	for _, x := range s.seats {
		s.eventually("not ready", func() string {
			if ok, why := x.now().broker.Ready(); !ok {
				return fmt.Sprintf("%s: %v", x.now().name, why)
			}
			return ""
		})
	}
	c := &consumer{s: s, r: s.rng, name: "verifier"}
	for _, name := range slices.Sorted(maps.Keys(s.groups)) {
		c.group = name
		s.eventually("group "+name+" does not get to the end", func() string {
			d, _, err := coordinate(c, 5*time.Second, func(ctx context.Context, g *group.Forwarder, _ *broker.Broker) (group.Description, error) {
				d := g.Describe(ctx, name)
				return d, d.Err
			})
			if err != nil || d.State != group.Stable {
				return fmt.Sprintf("it is %q: %v", d.State, err)
			}
			for _, t := range s.groups[name] {
				id, n, ok := s.find(s.rng, t, s.done)
				for p := range n {
					if !ok {
						break
					}
					to := target{t, id, p}
					end, err := s.latest(s.rng, to)
					if err != nil {
						return fmt.Sprintf("the end of %s: %v", to.log(), err)
					}
					if o, err := c.committed(to); err != nil || o < end && end > 0 {
						return fmt.Sprintf("%s ends at %d, committed is %d: %v", to.log(), end, o, err)
					}
				}
			}
			return ""
		})
	}
}

// verify compares what all gateways, and a new one, have to say.
func (s *run) verify() {
	if s.t.Failed() {
		return
	}
	fresh := &seat{s: s, n: len(s.seats)}
	fresh.start("v", 0)
	defer func() { fresh.stop(fresh.now(), false) }()
	all := append(slices.Clone(s.seats), fresh)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	s.eventually("gateways do not agree on topics", func() string {
		first := ""
		for _, x := range all {
			got, err := s.listed(ctx, x.now())
			if err != nil {
				return fmt.Sprintf("%s: %v", x.now().name, err)
			}
			if text := strings.Join(got, "\n"); first == "" {
				first = text
			} else if first != text {
				return fmt.Sprintf("one has\n%s\nanother\n%s", first, text)
			}
		}
		return ""
	})
	s.verifyTopics(ctx, fresh.now())
	s.eventually("streams that no topic explains", func() string {
		explained := map[string]bool{}
		for _, t := range fresh.now().broker.Known() {
			for _, p := range fresh.now().broker.Describe(ctx, t) {
				explained[p.Stream] = true
			}
		}
		var odd []string
		for _, l := range s.server.Logs() {
			if !explained[l] {
				odd = append(odd, l)
			}
		}
		return strings.Join(odd, ", ")
	})
	for _, x := range all {
		p := x.now()
		ts := p.broker.Known()
		for _, t := range ts {
			for n := range t.Partitions {
				s.readAll(ctx, p, target{t.Name, t.ID, n})
			}
		}
	}
}

// listed is one line per topic.
func (s *run) listed(ctx context.Context, p *process) ([]string, error) {
	ts, err := p.broker.Topics(ctx)
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, t := range ts {
		lines = append(lines, fmt.Sprintf("%s %s, %d partitions", t.Name, t.ID, t.Partitions))
	}
	return lines, nil
}

// verifyTopics checks that what was made and never to be deleted is there, and
// that what was deleted is not.
func (s *run) verifyTopics(ctx context.Context, p *process) {
	there := map[types.TopicID]string{}
	for _, t := range p.broker.Known() {
		there[t.ID] = t.Name
	}
	s.topics.mu.Lock()
	defer s.topics.mu.Unlock()
	for id, name := range s.topics.created {
		if there[id] == "" && !s.topics.doomed[id] {
			s.t.Errorf("topic %s (%s) was made and is gone", name, id)
		}
	}
	for id := range s.topics.deleted {
		if there[id] != "" {
			s.t.Errorf("topic %s (%s) was deleted and is there", there[id], id)
		}
	}
}

// readAll reads a log from its start to its end through one gateway.
func (s *run) readAll(ctx context.Context, g *process, to target) {
	f := history.Final{Span: s.rec.Begin(), Reader: g.name, Log: to.log()}
	fail := func(err error) { s.t.Errorf("%s reads %s: %v", g.name, to.log(), err) }
	var err error
	if f.Start, err = lookup(ctx, g.broker, to, partition.Earliest); err != nil {
		fail(err)
		return
	}
	if f.End, err = lookup(ctx, g.broker, to, partition.Latest); err != nil {
		fail(err)
		return
	}
	p, err := open(ctx, g.broker, to)
	if err != nil {
		fail(err)
		return
	}
	for next := f.Start; next < f.End; {
		got, err := p.Read(ctx, partition.ReadRequest{Offset: types.Offset(next), MaxBytes: 1 << 20, Whole: true})
		if err != nil || len(got.Batches) == 0 {
			fail(fmt.Errorf("%d batches at %d of %d: %w", len(got.Batches), next, f.End, err))
			return
		}
		for _, data := range got.Batches {
			for len(data) > 0 {
				b, rest, err := serde.ParseBatch(data)
				if err != nil {
					fail(err)
					return
				}
				rs, err := values(b)
				if err != nil {
					fail(err)
					return
				}
				for _, r := range rs {
					if r.Offset >= f.Start {
						f.Records = append(f.Records, r)
					}
				}
				data, next = rest, b.LastOffset()+1
			}
		}
	}
	s.rec.Final(f)
}
