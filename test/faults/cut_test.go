package faults

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hanzoai/stream/test/testkit"
)

// TestFault03CutOff cuts the gateway off NATS for 20 s, by connections that end and by
// connections on which nothing moves. It says so on /readyz and stays alive,
// answers retriable errors, acknowledges nothing, and is back by itself.
func TestFault03CutOff(t *testing.T) {
	t.Parallel()
	for name, kind := range map[string]struct {
		cut, heal func(*testkit.Relay)
	}{
		"refused": {(*testkit.Relay).Refuse, (*testkit.Relay).Accept},
		"silent":  {(*testkit.Relay).Stall, (*testkit.Relay).Flow},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nats := testkit.StartNATS(t, testkit.NATSOptions{})
			relay := testkit.NewRelay(t, strings.TrimPrefix(nats.URL, "nats://"))
			s := testkit.Start(t, testkit.Options{PubsubURL: "nats://" + relay.Addr})
			w := newWorld(t, s.Addr, "cut", load{partitions: 2, pace: 20 * time.Millisecond})
			w.waitAcks(t, 20*time.Second, 10)
			began := time.Now()
			kind.cut(relay)
			cut := time.Now()
			testkit.Poll(t, 15*time.Second, "/readyz says no", func() error { return not(testkit.Get(t.Context(), s.Admin+"/readyz")) })
			t.Logf("/readyz failed %v after the cut", time.Since(cut).Round(time.Millisecond))
			for time.Since(cut) < 20*time.Second {
				if err := testkit.Get(t.Context(), s.Admin+"/livez"); err != nil {
					t.Fatalf("not alive while cut off: %v", err)
				}
				if testkit.Get(t.Context(), s.Admin+"/readyz") == nil {
					t.Fatal("ready while cut off")
				}
				rest(t, 500*time.Millisecond)
			}
			for _, wr := range w.writers {
				// What was on its way may be answered; nothing that began later.
				for _, a := range wr.since(cut) {
					if a.at.Add(-a.took).After(cut) {
						t.Errorf("partition %d: value %d was acknowledged while cut off", wr.partition, a.first)
					}
				}
			}
			healed := time.Now()
			kind.heal(relay)
			s.WaitReady(t)
			w.waitAcks(t, 20*time.Second, 10)
			t.Logf("ready and writing %v after the end of the cut", time.Since(healed).Round(time.Millisecond))
			w.report(t, "from the cut on", began)
			w.finish(t)
			alive(t, s)
		})
	}
}

// not turns success into a failure.
func not(err error) error {
	if err == nil {
		return errNot
	}
	return nil
}

// alive checks that the process is the one that was started.
func alive(t *testing.T, s *testkit.Stream) {
	t.Helper()
	select {
	case <-s.Process().Exited():
		t.Error("the process has ended")
	default:
	}
	if n := strings.Count(s.Log(), `"panic"`) + strings.Count(s.Log(), "DATA RACE"); n > 0 {
		t.Errorf("%d panics or races in the log", n)
	}
}

var errNot = errors.New("not yet")
