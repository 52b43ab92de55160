package pubsub

import (
	"context"
	"testing"
	"time"
)

// TestWitness: how long a server is known to have been awake.
func TestWitness(t *testing.T) {
	var w Witness
	now := time.Unix(1_000_000, 0)
	asked := 0
	answer := func(server string, took time.Duration) time.Duration {
		sent := now
		now = now.Add(took)
		w.Note(server, sent, now, func(context.Context) { asked++ })
		return w.Awake(server, sent, now)
	}
	want := func(what string, got, want time.Duration) {
		t.Helper()
		if got != want {
			t.Errorf("%s: awake for %v, want %v", what, got, want)
		}
	}
	const rtt = 10 * time.Millisecond
	want("first answer", answer("a", rtt), -rtt)
	now = now.Add(time.Second)
	want("a second later", answer("a", rtt), time.Second)
	want("another server", answer("b", rtt), -rtt)
	now = now.Add(2 * time.Second)
	want("a little later", answer("a", rtt), 3*time.Second+2*rtt)
	now = now.Add(2 * time.Second)
	want("an answer that took long", answer("a", electionAfter), -electionAfter)
	now = now.Add(electionAfter)
	want("after silence", answer("a", rtt), -rtt)
	now = now.Add(2 * time.Second)
	answer("a", rtt)
	// An older question that was answered later changes nothing.
	w.Note("a", now.Add(-time.Second), now, nil)
	if got := w.Awake("a", now, now); got != 2*time.Second+rtt {
		t.Errorf("awake for %v", got)
	}
	if due := w.Due(now.Add(SecondLook)); len(due) != 2 {
		t.Errorf("%d are asked again", len(due))
	} else if due[0](t.Context()); asked != 1 {
		t.Errorf("asked %d times", asked)
	}
	// A clock that is set back begins anew (simulation of gateways, seed 20270).
	now = now.Add(-time.Hour)
	want("set back", answer("a", rtt), -rtt)
	now = now.Add(time.Second)
	want("a second after it", answer("a", rtt), time.Second)
	// Nobody wants to know any more.
	now = now.Add(witnessFor + time.Second)
	w.Due(now)
	if len(w.servers) != 0 {
		t.Errorf("%d servers are asked for ever", len(w.servers))
	}
}
