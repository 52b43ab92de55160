package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/hanzoai/stream/test/testkit"
)

// Kinds of faults.
const (
	killGateway   = "gateway killed"
	termGateway   = "gateway stopped"
	freezeGateway = "gateway frozen"
	lateAcks      = "acks late"
	lostAcks      = "acks lost"
	cutGateway    = "gateway cut off"
	killNATS      = "nats killed"
	freezeNATS    = "nats frozen"
	stepDown      = "leader stepped down"
	metaStepDown  = "meta leader stepped down"
	moveMember    = "member replaced"
)

// chaos does faults, one after the other; those that last may overlap with later
// ones.
type chaos struct {
	t      *testing.T
	w      *world
	watch  *watch
	random *rand.Rand
	freeze time.Duration // how long a gateway is frozen
	pause  time.Duration // between two faults, at most
	deck   []string      // kinds to come
	later  []*pending    // what has to be ended
}

// pending is a fault that lasts.
type pending struct {
	at   time.Time
	end  func()
	nats bool // it concerns a NATS server: no second one at a time
}

// weighted are the kinds with how often each comes, one or three NATS servers.
func (c *chaos) weighted() map[string]int {
	kinds := map[string]int{killGateway: 8, termGateway: 2, freezeGateway: 3, lateAcks: 2, lostAcks: 3, cutGateway: 1, moveMember: 2}
	if len(c.w.nats) > 1 {
		kinds[killNATS], kinds[freezeNATS], kinds[stepDown], kinds[metaStepDown] = 2, 1, 4, 2
	} else {
		kinds[killNATS] = 1
	}
	return kinds
}

// pick draws the next kind from a shuffled deck, so that none is long in coming. A
// kill comes first.
func (c *chaos) pick() string {
	if len(c.deck) == 0 {
		first := c.deck == nil
		weights := c.weighted()
		// The order of a map must not decide.
		for _, k := range slices.Sorted(maps.Keys(weights)) {
			for range weights[k] {
				c.deck = append(c.deck, k)
			}
		}
		c.random.Shuffle(len(c.deck), func(i, j int) { c.deck[i], c.deck[j] = c.deck[j], c.deck[i] })
		if first {
			return killGateway
		}
	}
	k := c.deck[0]
	c.deck = c.deck[1:]
	return k
}

// run does faults until the time is over, and then ends all of them. alone leaves
// each to itself.
func (c *chaos) run(l clients, until time.Time, alone bool) {
	for time.Now().Before(until) && !c.t.Failed() {
		c.one(l)
		c.endDue(c.between(c.pause/10, c.pause))
		if alone {
			c.calm(l)
		}
	}
	for _, p := range c.later {
		p.end()
	}
	c.later = nil
	c.w.heal(c.t)
}

// calm waits until all is over and well, so that what is slow next has one cause.
func (c *chaos) calm(l clients) {
	for len(c.later) > 0 {
		c.endDue(time.Until(c.later[0].at))
	}
	c.w.heal(c.t)
	if len(c.w.nats) > 1 {
		c.w.whole(c.t)
	}
	l.progress(1)
	c.endDue(settle)
}

func (c *chaos) between(least, most time.Duration) time.Duration {
	return least + time.Duration(c.random.Int64N(int64(most-least)))
}

// endDue waits, and ends what has lasted long enough meanwhile.
func (c *chaos) endDue(wait time.Duration) {
	for until := time.Now().Add(wait); ; {
		for _, g := range c.w.running() {
			g.supervise(c.t)
		}
		next := until
		var left []*pending
		for _, p := range c.later {
			if !p.at.After(time.Now()) {
				p.end()
				continue
			}
			left = append(left, p)
			if p.at.Before(next) {
				next = p.at
			}
		}
		c.later = left
		if !time.Now().Before(until) {
			return
		}
		rest(c.t, time.Until(next))
	}
}

func (c *chaos) last(d time.Duration, nats bool, end func()) {
	c.later = append(c.later, &pending{time.Now().Add(d), end, nats})
}

// one does one fault, if the cluster can bear it now: one gateway is always left
// alone, and a majority of the NATS servers.
func (c *chaos) one(l clients) {
	kind := c.pick()
	gs := c.w.running()
	n, m := c.random.IntN(1<<30), c.random.IntN(1<<30)
	lasting := c.between(time.Second, 4*time.Second)
	switch kind {
	case killGateway, termGateway, freezeGateway:
		if len(gs) < 2 {
			return
		}
		g := gs[n%len(gs)]
		f := c.watch.begin(kind, g.name)
		switch kind {
		case killGateway:
			g.kill(c.t)
			c.last(lasting/2, false, func() { g.start(c.t); c.watch.end(f) })
		case termGateway:
			g.set(dead)
			code := g.Process().Terminate(c.t, 40*time.Second)
			// A process of a few milliseconds, which has said nothing, does not
			// listen to signals yet: this one ends it.
			early := code == -1 && g.Log() == ""
			if code != 0 && code != storeAway && !early {
				c.t.Errorf("%s ended with exit code %d after SIGTERM", g.name, code)
			}
			g.start(c.t)
			c.watch.end(f)
		case freezeGateway:
			freeze(c.t, g)
			c.last(c.freeze, false, func() { resume(g); c.watch.end(f) })
		}
	case lateAcks, lostAcks, cutGateway:
		if len(gs) < 1 {
			return
		}
		g := gs[n%len(gs)]
		f := c.watch.begin(kind, g.name)
		for _, r := range g.links {
			if kind == cutGateway {
				r.Refuse()
			} else {
				r.StallAnswers()
			}
		}
		d := lasting
		if kind == lostAcks {
			d = lasting / 10
		}
		c.last(d, false, func() {
			for _, r := range g.links {
				if kind == lostAcks {
					r.Cut()
				}
				r.Flow()
				r.Accept()
			}
			c.watch.end(f)
		})
	case killNATS, freezeNATS:
		for _, p := range c.later {
			if p.nats {
				return
			}
		}
		if !c.w.natsWhole(c.t) {
			return
		}
		s := c.w.nats[n%len(c.w.nats)]
		f := c.watch.begin(kind, s.URL)
		if kind == freezeNATS {
			s.Pause()
			c.last(2*lasting, true, func() { s.Resume(); c.watch.end(f) })
			return
		}
		s.Kill()
		c.last(lasting, true, func() {
			if err := s.Start(); err != nil {
				c.t.Errorf("start nats again: %v", err)
			}
			c.watch.end(f)
		})
	case stepDown:
		streams := l.streams()
		f := c.watch.begin(kind, streams[n%len(streams)])
		if err := c.w.stepDown(c.t.Context(), "STREAM.LEADER.STEPDOWN."+f.what); err != nil {
			c.t.Logf("%s does not step down: %v", f.what, err)
		}
		c.watch.end(f)
	case metaStepDown:
		f := c.watch.begin(kind, "")
		if err := c.w.stepDown(c.t.Context(), metaLeader, nats.UserInfo(systemUser, systemUser)); err != nil {
			c.t.Logf("the meta leader does not step down: %v", err)
		}
		c.watch.end(f)
	case moveMember:
		c.watch.end(c.watch.begin(kind, l.replace(n, m)))
	}
}

// freeze is SIGSTOP, as a machine that is suspended or swaps. It returns when
// every thread stands still.
func freeze(t *testing.T, g *gateway) {
	t.Helper()
	g.set(frozen)
	_ = g.Process().Signal(syscall.SIGSTOP) // it runs
	stands(t, g, 10*time.Second)
}

// stands waits until every thread of a process stands still.
func stands(t *testing.T, g *gateway, limit time.Duration) {
	t.Helper()
	testkit.Poll(t, limit, g.name+" stands still", func() error {
		stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", g.Process().Pid()))
		for _, f := range stats {
			// A thread that has ended meanwhile stands still as well.
			if b, rerr := os.ReadFile(f); rerr == nil {
				if _, state, _ := strings.Cut(string(b), ") "); !strings.HasPrefix(state, "T") {
					err = fmt.Errorf("%s is in state %.1s", f, state)
				}
			}
		}
		return err
	})
}

func resume(g *gateway) {
	_ = g.Process().Signal(syscall.SIGCONT)
	g.set(running)
}

// jetStream asks any server that answers for something of its API.
func (w *world) jetStream(ctx context.Context, subject string, answer any, as ...nats.Option) error {
	var err error
	for _, s := range w.nats {
		if err = func() error {
			nc, err := nats.Connect(s.URL, append(as[:len(as):len(as)], nats.Timeout(time.Second), nats.NoReconnect())...)
			if err != nil {
				return err
			}
			defer nc.Close()
			ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
			defer cancel()
			m, err := nc.RequestWithContext(ctx, "$JS.API."+subject, nil)
			if err != nil {
				return err
			}
			return json.Unmarshal(m.Data, answer)
		}(); err == nil {
			return nil
		}
	}
	return err
}

// A cluster has a system account, which alone may ask the meta leader, who places
// streams and keeps their names, to give way. Everybody else is in the other one.
const (
	systemUser    = "system"
	systemAccount = "accounts { main: { jetstream: enabled, users: [ { user: main, password: main } ] }, SYS: { users: [ { user: " + systemUser + ", password: " + systemUser + " } ] } }\n" +
		"system_account: SYS\nno_auth_user: main\n"
	metaLeader = "META.LEADER.STEPDOWN"
)

// stepDown asks a leader to give way.
func (w *world) stepDown(ctx context.Context, subject string, as ...nats.Option) error {
	var a struct {
		Error *struct {
			Description string `json:"description"`
		} `json:"error"`
	}
	if err := w.jetStream(ctx, subject, &a, as...); err != nil {
		return err
	}
	if a.Error != nil {
		return fmt.Errorf("%s", a.Error.Description)
	}
	return nil
}

// natsWhole reports whether every stream has all its replicas: then one server
// may go.
func (w *world) natsWhole(t *testing.T) bool {
	if len(w.nats) == 1 {
		return true
	}
	// The first page, 256 streams, stands for all.
	var a struct {
		Streams []struct {
			Cluster struct {
				Leader   string `json:"leader"`
				Replicas []struct {
					Current bool `json:"current"`
					Offline bool `json:"offline"`
				} `json:"replicas"`
			} `json:"cluster"`
		} `json:"streams"`
		Missing []string `json:"missing"`
	}
	if err := w.jetStream(t.Context(), "STREAM.LIST", &a); err != nil || len(a.Missing) > 0 {
		return false
	}
	for _, s := range a.Streams {
		if s.Cluster.Leader == "" || len(s.Cluster.Replicas) != len(w.nats)-1 {
			return false
		}
		for _, r := range s.Cluster.Replicas {
			if !r.Current || r.Offline {
				return false
			}
		}
	}
	return true
}

// whole waits until every stream has all its replicas.
func (w *world) whole(t *testing.T) {
	t.Helper()
	testkit.Poll(t, time.Minute, "all replicas in sync", func() error {
		if !w.natsWhole(t) {
			return errors.New("some replica lags")
		}
		return nil
	})
}

// leader is the NATS server that leads a stream.
func (w *world) leader(t *testing.T, stream string) (s *testkit.NATSServer) {
	t.Helper()
	testkit.Poll(t, time.Minute, stream+" has a leader", func() error {
		var a struct {
			Cluster struct {
				Leader string `json:"leader"`
			} `json:"cluster"`
		}
		if err := w.jetStream(t.Context(), "STREAM.INFO."+stream, &a); err != nil {
			return err
		}
		for i := range w.nats {
			if a.Cluster.Leader == fmt.Sprintf("n%d", i) {
				s = w.nats[i]
				return nil
			}
		}
		return fmt.Errorf("leader %q", a.Cluster.Leader)
	})
	return s
}

// replace ends a member of a group in good order and starts another.
func (l *load) replace(n, m int) string {
	kind, i := groupKinds[n%len(groupKinds)], m%2
	place := fmt.Sprintf("%s %d", kind, i)
	l.mu.Lock()
	var old *member
	for _, m := range l.members {
		if m.place == place && !m.ended {
			old = m
		}
	}
	if old != nil {
		old.ended = true
	}
	l.mu.Unlock()
	if old != nil {
		old.stop()
	}
	l.join(kind, i)
	return kind
}

// rest waits.
func rest(t *testing.T, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
	}
}
