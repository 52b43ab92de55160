package cluster

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hanzoai/stream/test/testkit"
)

// Address modes.
const (
	shared     = "shared"
	perGateway = "per-gateway"
)

// shape is what a world is made of.
type shape struct {
	gateways int
	replicas int // NATS servers, and replicas of every stream
	mode     string
	// sticky: the balancer sends all to the first gateway that is ready.
	sticky  bool
	binary  string // "" is the usual build
	env     []string
	own     func(i int) []string // more variables of the ith gateway
	args    []string             // more flags
	version string               // of the NATS servers; "" is the embedded one
}

// world is gateways on NATS servers, with relays in between and before.
type world struct {
	shape
	nats     []*testkit.NATSServer
	gateways []*gateway
	front    *testkit.Relay // the one address; nil in per-gateway mode
	seeds    []string       // where clients begin
}

// gateway is a stream process and its ways to the NATS servers.
type gateway struct {
	*testkit.Stream
	name  string
	links []*testkit.Relay

	mu    sync.Mutex
	state string // guards: running, dead, frozen
}

const (
	running = "running"
	dead    = "dead"
	frozen  = "frozen"
)

func newWorld(t *testing.T, s shape) *world {
	t.Helper()
	w := &world{shape: s}
	if s.replicas == 1 {
		w.nats = []*testkit.NATSServer{testkit.StartNATS(t, testkit.NATSOptions{Version: s.version})}
	} else {
		w.nats = testkit.StartNATSCluster(t, s.replicas, testkit.NATSOptions{Version: s.version, NoAdvertise: true, Config: systemAccount})
	}
	addrs := make([]string, s.gateways)
	for i := range addrs {
		addrs[i] = testkit.FreeAddr(t)
	}
	// First members of a group come together; three seconds are for people.
	args := []string{"--replicas", fmt.Sprint(s.replicas), "--group-initial-rebalance-delay-ms", "500ms"}
	if s.mode == perGateway {
		args = append(args, "--address-mode", perGateway)
		w.seeds = addrs
	} else {
		w.front = testkit.NewRelay(t, addrs...)
		args = append(args, "--advertised-address", w.front.Addr)
		w.seeds = []string{w.front.Addr}
	}
	args = append(args, s.args...)
	for i, addr := range addrs {
		g := &gateway{name: fmt.Sprintf("gateway %d", i+1), state: dead}
		var urls []string
		for j := range w.nats {
			// Each begins with another server.
			r := testkit.NewRelay(t, strings.TrimPrefix(w.nats[(i+j)%len(w.nats)].URL, "nats://"))
			g.links = append(g.links, r)
			urls = append(urls, "nats://"+r.Addr)
		}
		env := s.env
		if s.own != nil {
			env = slices.Concat(env, s.own(i))
		}
		g.Stream = testkit.Prepare(t, testkit.Options{PubsubURL: strings.Join(urls, ","), Addr: addr, Args: args, Env: env, Binary: s.binary, ReadyLimit: time.Minute})
		w.gateways = append(w.gateways, g)
	}
	w.waitStore(t)
	for _, g := range w.gateways {
		g.start(t)
	}
	for _, g := range w.gateways {
		g.ready(t)
	}
	if w.front != nil {
		w.balance(t)
	}
	return w
}

// balance looks after the balancer until the test ends: what is not ready gets no
// new connections; what does not answer at all, as a frozen process, loses those
// it has.
func (w *world) balance(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var wait sync.WaitGroup
	wait.Go(func() {
		tick := time.NewTicker(250 * time.Millisecond)
		defer tick.Stop()
		silent := make([]int, len(w.gateways))
		for {
			ok := make([]bool, len(w.gateways))
			var probes sync.WaitGroup
			for i, g := range w.gateways {
				probes.Go(func() {
					probe, cancel := context.WithTimeout(ctx, time.Second)
					defer cancel()
					err := testkit.Get(probe, g.Admin+"/readyz")
					if ok[i] = err == nil; probe.Err() == nil {
						silent[i] = 0
					} else if silent[i]++; silent[i] >= 2 && ctx.Err() == nil {
						w.front.CutTo(g.Addr)
					}
				})
			}
			probes.Wait()
			var ready []string
			for i, g := range w.gateways {
				if ok[i] {
					ready = append(ready, g.Addr)
				}
			}
			if w.sticky && len(ready) > 1 {
				for _, other := range ready[1:] {
					w.front.CutTo(other)
				}
				ready = ready[:1]
			}
			if len(ready) > 0 {
				w.front.Spread(ready...)
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	})
	t.Cleanup(func() {
		cancel()
		wait.Wait()
	})
}

func (g *gateway) is() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.state
}

func (g *gateway) set(state string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.state = state
}

// start launches the process, without waiting until it is ready.
func (g *gateway) start(t *testing.T) {
	t.Helper()
	g.Launch(t)
	g.set(running)
}

// kill is SIGKILL.
func (g *gateway) kill(t *testing.T) {
	g.set(dead)
	g.Stream.Kill(t)
}

// running lists the gateways that nothing was done to.
func (w *world) running() []*gateway {
	var gs []*gateway
	for _, g := range w.gateways {
		if g.is() == running {
			gs = append(gs, g)
		}
	}
	return gs
}

// heal ends every fault and waits until all gateways are ready.
func (w *world) heal(t *testing.T) {
	t.Helper()
	for _, g := range w.gateways {
		for _, l := range g.links {
			l.Flow()
			l.Accept()
		}
		switch g.is() {
		case dead:
			g.start(t)
		case frozen:
			resume(g)
		}
	}
	w.waitStore(t)
	for _, g := range w.gateways {
		g.ready(t)
	}
}

// waitStore waits until the NATS servers have a leader.
func (w *world) waitStore(t *testing.T) {
	t.Helper()
	testkit.Poll(t, time.Minute, "JetStream answers", func() error {
		var a struct {
			Error any `json:"error"`
		}
		if err := w.jetStream(t.Context(), "INFO", &a); err != nil || a.Error != nil {
			return fmt.Errorf("%v, %v", err, a.Error)
		}
		return nil
	})
}

// ready waits until the gateway is ready. One that gave up while NATS had no
// leader is started again, as whatever supervises it would.
func (g *gateway) ready(t *testing.T) {
	t.Helper()
	testkit.Poll(t, time.Minute, g.name+" is ready", func() error {
		g.supervise(t)
		return testkit.Get(t.Context(), g.Admin+"/readyz")
	})
}

// supervise starts a gateway again that gave up while NATS had no leader.
func (g *gateway) supervise(t *testing.T) {
	t.Helper()
	select {
	case <-g.Process().Exited():
		if code := g.Process().ExitCode(t, time.Second); code != storeAway {
			t.Fatalf("%s has ended with exit code %d:\n%s", g.name, code, g.Log())
		}
		g.start(t)
	default:
	}
}

// metric reads one sample of a gateway's metrics.
func metric(t *testing.T, g *gateway, sample string) (float64, error) {
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, g.Admin+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	req.Close = true // an idle connection would outlive the test
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(body)) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), sample+" "); ok {
			return strconv.ParseFloat(v, 64)
		}
	}
	return 0, fmt.Errorf("no sample %s", sample)
}

// storeAway is the exit code of a start without a store.
const storeAway = 3
