package group

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"pgregory.net/rapid"
)

// modelClient is a consumer that does what the protocol says, at once.
type modelClient struct {
	name     string
	static   bool
	silent   bool // has gone away without a word
	id       string
	gen      int32
	joining  ticket
	syncing  ticket
	in       bool // has its share of gen
	known    bool // was told a generation since it came (back)
	replaced bool // another process took its instance id
}

// model is a group with its clients and what was ever promised to them.
type model struct {
	*rig
	clients []*modelClient
	leaders map[int32]string            // generation -> leader told
	owners  map[int32]map[string]string // generation -> share -> member
	last    int32                       // highest generation told
}

func (m *model) request(c *modelClient) JoinRequest {
	r := joinRequest("g", c.id)
	if c.static {
		r.Instance = &c.name
	}
	r.RequireMemberID = len(c.name)%2 == 0
	return r
}

func (m *model) membership(c *modelClient) Membership {
	ms := Membership{Group: "g", Member: c.id, Generation: c.gen}
	if c.static {
		ms.Instance = &c.name
	}
	return ms
}

func (m *model) startJoin(c *modelClient) {
	c.in = false
	c.joining = m.start(m.request(c))
}

// lost is what a client may only hear if it has gone away for a while.
func (m *model) lost(t *rapid.T, c *modelClient, err error, what string) {
	if c.known && !c.silent {
		t.Fatalf("%s of %s (%s), who is alive: %v", what, c.name, c.id, err)
	}
	c.id, c.known = "", false
}

// step lets every client do what its last answers ask for, until all rest.
func (m *model) step(t *rapid.T) {
	for round := 0; ; round++ {
		if round > 50 {
			t.Fatal("the group never comes to rest")
		}
		again := false
		for _, c := range m.clients {
			if !c.silent && m.react(t, c) {
				again = true
			}
		}
		if !again {
			return
		}
	}
}

// react handles one client's answers; true if it did something.
func (m *model) react(t *rapid.T, c *modelClient) bool {
	switch {
	case c.joining != 0:
		resp, ok := m.joins[c.joining]
		if !ok {
			return false
		}
		c.joining = 0
		switch {
		case errors.Is(resp.Err, kerr.MemberIDRequired):
			c.id = resp.Member
		case errors.Is(resp.Err, kerr.UnknownMemberID):
			m.lost(t, c, resp.Err, "join")
		case errors.Is(resp.Err, kerr.NotCoordinator), errors.Is(resp.Err, kerr.RebalanceInProgress):
		case resp.Err != nil:
			t.Fatalf("join of %s: %v", c.name, resp.Err)
		default:
			m.joinedAs(t, c, resp)
			return true
		}
		m.startJoin(c)
		return true
	case c.syncing != 0:
		resp, ok := m.syncs[c.syncing]
		if !ok {
			return false
		}
		c.syncing = 0
		switch {
		case resp.Err == nil:
			m.shared(t, c, string(resp.Assignment))
			return true
		case errors.Is(resp.Err, kerr.UnknownMemberID):
			m.lost(t, c, resp.Err, "sync")
			m.startJoin(c)
		case errors.Is(resp.Err, kerr.NotCoordinator):
			m.sendSync(c, nil)
		case errors.Is(resp.Err, kerr.RebalanceInProgress), errors.Is(resp.Err, kerr.IllegalGeneration):
			m.startJoin(c)
		default:
			t.Fatalf("sync of %s: %v", c.name, resp.Err)
		}
		return true
	case !c.in:
		m.startJoin(c)
		return true
	}
	return false
}

func (m *model) joinedAs(t *rapid.T, c *modelClient, resp JoinResponse) {
	if resp.Generation < m.last {
		t.Fatalf("generation %d after %d", resp.Generation, m.last)
	}
	m.last = resp.Generation
	c.id, c.gen, c.known = resp.Member, resp.Generation, true
	if resp.SkipAssignment || resp.Leader != resp.Member {
		m.sendSync(c, nil)
		return
	}
	if l, ok := m.leaders[c.gen]; ok && l != c.id && !c.static {
		t.Fatalf("generation %d is led by %s and by %s", c.gen, l, c.id)
	}
	m.leaders[c.gen] = c.id
	var as []Assignment
	seen := map[string]bool{}
	for i, jm := range resp.Members {
		if seen[jm.Member] {
			t.Fatalf("%s is twice in generation %d", jm.Member, c.gen)
		}
		seen[jm.Member] = true
		as = append(as, Assignment{Member: jm.Member, Data: fmt.Appendf(nil, "p%d", i)})
	}
	m.sendSync(c, as)
}

func (m *model) sendSync(c *modelClient, as []Assignment) {
	c.syncing = m.startSync(SyncRequest{Membership: m.membership(c), Assignments: as})
}

// shared checks that a share of a generation has one owner; a static member's
// heir is the same owner.
func (m *model) shared(t *rapid.T, c *modelClient, share string) {
	c.in = true
	if share == "" {
		return
	}
	if m.owners[c.gen] == nil {
		m.owners[c.gen] = map[string]string{}
	}
	owner := c.id
	if c.static {
		owner = c.name
	}
	if o, ok := m.owners[c.gen][share]; ok && o != owner {
		t.Fatalf("generation %d: %s belongs to %s and to %s", c.gen, share, o, owner)
	}
	m.owners[c.gen][share] = owner
}

func (m *model) beat(t *rapid.T) {
	for _, c := range m.clients {
		if c.silent || !c.in {
			continue
		}
		switch err := m.heartbeat(m.membership(c)); {
		case err == nil:
		case errors.Is(err, kerr.RebalanceInProgress):
			m.startJoin(c)
		case errors.Is(err, kerr.UnknownMemberID), errors.Is(err, kerr.IllegalGeneration):
			m.lost(t, c, err, "heartbeat")
			m.startJoin(c)
		default:
			t.Fatalf("heartbeat of %s: %v", c.name, err)
		}
	}
}

// Whatever happens to the group, a share of a generation has one owner,
// generations only grow, and nobody who is alive is put out.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newTestConfig()
		c.InitialRebalanceDelay = time.Duration(rapid.IntRange(0, 3).Draw(t, "delay")) * time.Second
		m := &model{rig: newRig(t, c), leaders: map[int32]string{}, owners: map[int32]map[string]string{}}
		pick := func(t *rapid.T) *modelClient {
			if len(m.clients) == 0 {
				t.Skip("nobody there")
			}
			return rapid.SampledFrom(m.clients).Draw(t, "client")
		}
		t.Repeat(map[string]func(*rapid.T){
			"come": func(t *rapid.T) {
				if len(m.clients) > 6 {
					t.Skip("full")
				}
				n := len(m.clients)
				m.clients = append(m.clients, &modelClient{name: "c" + strings.Repeat("x", n), static: rapid.Bool().Draw(t, "static")})
			},
			"pass": func(t *rapid.T) {
				for range rapid.IntRange(1, 8).Draw(t, "times") {
					m.pass(3 * time.Second)
					m.beat(t)
					m.step(t)
				}
			},
			"leave": func(t *rapid.T) {
				c := pick(t)
				if c.silent || c.id == "" {
					t.Skip("not a member")
				}
				for _, err := range m.leave(LeaveMember{Member: c.id}) {
					if err != nil && c.known {
						t.Fatalf("leave of %s: %v", c.name, err)
					}
				}
				*c = modelClient{name: c.name, static: c.static}
			},
			"vanish": func(t *rapid.T) { pick(t).silent = true },
			"return": func(t *rapid.T) {
				// A new process: it knows nothing but its instance id.
				c := pick(t)
				*c = modelClient{name: c.name, static: c.static}
			},
			"takeover": func(t *rapid.T) { m.reload() },
			"store fails": func(t *rapid.T) {
				// What the turn decided is forgotten with the state.
				for _, c := range m.clients {
					if !c.silent && c.in && rapid.Bool().Draw(t, "joins") {
						var tk ticket
						tk = m.s.take(waiter{join: func(jr JoinResponse) { m.joins[tk] = jr }})
						m.s.join(m.now, m.request(c), tk)
						c.in, c.joining = false, tk
					}
				}
				m.reload()
			},
			"": func(t *rapid.T) {
				m.step(t)
				if m.s.generation < m.last {
					t.Fatalf("generation %d, told %d", m.s.generation, m.last)
				}
				size := 0
				for _, mb := range m.s.members {
					if m.s.byID[mb.id] != mb || mb.instance != nil && m.s.static[*mb.instance] != mb {
						t.Fatalf("%s is not found by its names", mb.id)
					}
					size += mb.size
				}
				if size != m.s.size || len(m.s.byID) != len(m.s.members) {
					t.Fatalf("size %d, reckoned %d; %d members, %d ids", m.s.size, size, len(m.s.members), len(m.s.byID))
				}
			},
		})
		// Left alone, everybody who is there gets a share of one generation.
		for range 60 {
			m.pass(3 * time.Second)
			m.beat(t)
			m.step(t)
		}
		alive := 0
		for _, c := range m.clients {
			if c.silent {
				continue
			}
			alive++
			if !c.in || c.gen != m.s.generation {
				t.Fatalf("%s is at rest outside of generation %d: %+v", c.name, m.s.generation, c)
			}
		}
		if alive > 0 && m.s.phase != Stable || len(m.s.members) != alive {
			t.Fatalf("%s with %d members, %d alive", m.s.phase, len(m.s.members), alive)
		}
	})
}
