package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/hanzoai/stream/test/testkit"
)

// rollGateway is a gateway that is stopped in order and comes back as the next
// release.
const rollGateway = "gateway replaced"

// TestFault19Rolling replaces three gateways one after the other by the next release, as
// a Deployment and a StatefulSet do, under producers, groups and admin calls: no
// client sees an error that its library does not retry. The stored format is
// raised when the last old gateway has gone, and locks the old release out. Then
// one is killed.
func TestFault19Rolling(t *testing.T) {
	for _, mode := range []string{shared, perGateway} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, shape{gateways: 3, replicas: 1, mode: mode, args: []string{"--shutdown-delay", "1s"}})
			watch := newWatch(w)
			l := newLoad(t, w, watch, "rolling")
			l.waitBegun()
			stop := l.administer()
			for _, g := range w.gateways {
				f := watch.begin(rollGateway, g.name)
				roll(t, w, g)
				watch.end(f)
				rest(t, time.Second)
			}
			stop() // tools that ask every broker do not forgive one that is gone
			crash(t, w, watch)
			l.finish(0, false)
			watch.report(t, false)

			testkit.Poll(t, 30*time.Second, "the new format is in force", func() error { return w.format(t, `"v":4`) })
			old := w.gateways[0]
			old.Process().Terminate(t, 40*time.Second)
			old.Use(testkit.Binary(t))
			old.start(t)
			if code := old.Process().ExitCode(t, 30*time.Second); code != 3 || !strings.Contains(old.Log(), "newer than this build's") || !strings.Contains(old.Log(), "hint: run the version") {
				t.Errorf("the old release ended with exit code %d:\n%s", code, old.Log())
			}
			old.set(dead)
		})
	}
}

// crash kills a gateway: clients go on at the others, which name it no more.
func crash(t *testing.T, w *world, watch *watch) {
	t.Helper()
	rest(t, settle) // what is seen from here on is of the kill
	g := w.gateways[1]
	f := watch.begin(killGateway, g.name)
	g.kill(t)
	began := time.Now()
	if w.mode == perGateway {
		for _, other := range w.running() {
			testkit.Poll(t, 10*time.Second, other.name+" names it no more", func() error { return other.names(t, g.Addr, false) })
		}
		t.Logf("%s was named for %v after it was killed", g.name, time.Since(began).Round(time.Millisecond))
	}
	rest(t, settle)
	g.start(t)
	g.ready(t)
	watch.end(f)
}

// roll stops a gateway in order and starts the next release in its place.
func roll(t *testing.T, w *world, g *gateway) {
	t.Helper()
	addr := "" // as others tell of it
	if w.mode == perGateway {
		addr = g.Addr
	}
	g.set(dead)
	began := time.Now()
	if err := g.Process().Signal(terminate); err != nil {
		t.Fatal(err)
	}
	testkit.Poll(t, 5*time.Second, "/readyz says no", func() error {
		if testkit.Get(t.Context(), g.Admin+"/readyz") == nil {
			return errors.New("it is ready")
		}
		return nil
	})
	// For the length of the delay it still serves, and nobody is told of it.
	if err := testkit.Get(t.Context(), g.Admin+"/livez"); err != nil {
		t.Errorf("%s: not alive while it drains: %v", g.name, err)
	}
	if addr != "" {
		for _, other := range w.gateways {
			testkit.Poll(t, 5*time.Second, other.name+" names it no more", func() error {
				return other.names(t, addr, false)
			})
		}
	}
	if code := g.Process().ExitCode(t, 40*time.Second); code != 0 {
		t.Errorf("%s ended with exit code %d after SIGTERM:\n%s", g.name, code, g.Log())
	}
	if !strings.Contains(g.Log(), `"within_grace":true`) {
		t.Errorf("%s was not done within its grace", g.name)
	}
	t.Logf("%s: drained in %v", g.name, time.Since(began).Round(time.Millisecond))
	g.Use(testkit.NextBinary(t))
	g.start(t)
	g.ready(t)
	if addr != "" {
		for _, other := range w.gateways {
			testkit.Poll(t, 5*time.Second, other.name+" names it again", func() error { return other.names(t, addr, true) })
		}
	}
}

// names compares what a gateway tells its clients of an address.
func (g *gateway) names(t *testing.T, addr string, want bool) error {
	select {
	case <-g.Process().Exited():
		return nil // it was the one
	default:
	}
	cl := seed(t, g.Addr)
	defer cl.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	d, err := kadm.NewClient(cl).BrokerMetadata(ctx)
	if err != nil {
		select {
		case <-g.Process().Exited():
			return nil
		default:
			return err
		}
	}
	for _, b := range d.Brokers {
		if fmt.Sprintf("%s:%d", b.Host, b.Port) == addr {
			if want {
				return nil
			}
			return fmt.Errorf("it names %s", addr)
		}
	}
	if want {
		return fmt.Errorf("it does not name %s", addr)
	}
	return nil
}

// administer makes, describes and deletes topics and looks at groups until it is
// stopped: all of it succeeds.
func (l *load) administer() (stop func()) {
	ctx, cancel := context.WithCancel(l.t.Context())
	var wait sync.WaitGroup
	wait.Go(func() {
		cl := l.client()
		defer cl.Close()
		admin := kadm.NewClient(cl)
		for n := 0; ctx.Err() == nil; n++ {
			name := fmt.Sprintf("made-%d", n)
			for what, call := range map[string]func() error{
				"create": func() error {
					r, err := admin.CreateTopic(ctx, 1, -1, nil, name)
					return cmpErr(err, r.Err)
				},
				"list topics": func() error { _, err := admin.ListTopics(ctx); return err },
				"describe cluster": func() error {
					m, err := admin.BrokerMetadata(ctx)
					if err == nil && (len(m.Brokers) == 0 || m.Controller < 0) {
						err = fmt.Errorf("%+v", m)
					}
					return err
				},
				"list groups": func() error { _, err := admin.ListGroups(ctx); return err },
				"ends": func() error {
					r, err := admin.ListEndOffsets(ctx, l.topic)
					return cmpErr(err, r.Error())
				},
			} {
				began := time.Now()
				if err := call(); err != nil && ctx.Err() == nil {
					l.t.Errorf("admin: %s: %v", what, err)
				}
				l.watch.took("admin", began, what, nil)
			}
			rest(l.t, 100*time.Millisecond)
		}
	})
	return func() {
		cancel()
		wait.Wait()
	}
}

// format looks for a text in the record of the format.
func (w *world) format(t *testing.T, want string) error {
	nc, err := nats.Connect(w.nats[0].URL)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	kv, err := js.KeyValue(t.Context(), "kafka-meta")
	if err != nil {
		return err
	}
	e, err := kv.Get(t.Context(), "format")
	if err != nil {
		return err
	}
	if !strings.Contains(string(e.Value()), want) {
		return fmt.Errorf("%s", e.Value())
	}
	return nil
}
