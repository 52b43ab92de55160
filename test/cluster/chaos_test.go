package cluster

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hanzoai/stream/test/history"
	"github.com/hanzoai/stream/test/testkit"
)

// round is how long one load lasts at most: then its history is checked and the
// next begins on the same processes.
const round = 90 * time.Second

// TestChaos breaks a world again and again. Without CHAOS_MINUTES it is two short
// runs, one NATS server and three, from a fixed seed.
func TestChaos(t *testing.T) {
	seed := number(t, "CHAOS_SEED", 1)
	if os.Getenv("CHAOS_MINUTES") == "" {
		for _, replicas := range []int{1, 3} {
			t.Run(fmt.Sprintf("R%d", replicas), func(t *testing.T) {
				t.Parallel()
				breakWorld(t, seed, shape{gateways: 2, replicas: replicas, mode: shared}, 12*time.Second, 4*time.Second, time.Second, false)
			})
		}
		return
	}
	s := shape{gateways: number(t, "CHAOS_GATEWAYS", 3), replicas: number(t, "CHAOS_REPLICAS", 1), mode: cmp.Or(os.Getenv("CHAOS_MODE"), shared), sticky: os.Getenv("CHAOS_STICKY") == "yes"}
	limit := time.Duration(number(t, "CHAOS_MINUTES", 30)) * time.Minute
	frozen := time.Duration(number(t, "CHAOS_FREEZE", 30)) * time.Second
	breakWorld(t, seed, s, limit, frozen, 3*time.Second, os.Getenv("CHAOS_JUDGE") != "no")
}

func number(t *testing.T, name string, otherwise int) int {
	v := os.Getenv(name)
	if v == "" {
		return otherwise
	}
	n, err := strconv.Atoi(v)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// breakWorld is one run. judge holds stalls against the limits, for which the
// machine must not be busy with something else.
func breakWorld(t *testing.T, seed int, s shape, limit, frozen, pause time.Duration, judge bool) {
	t.Logf("seed %d: %d gateways, %s address mode, %d NATS servers, %v", seed, s.gateways, s.mode, s.replicas, limit)
	w := newWorld(t, s)
	watch := newWatch()
	c := &chaos{t: t, w: w, watch: watch, random: rand.New(rand.NewPCG(uint64(seed), 0)), freeze: frozen, pause: pause}
	until := time.Now().Add(limit)
	for n := 0; time.Now().Before(until) && !t.Failed(); n++ {
		l := newLoad(t, w, watch, fmt.Sprintf("chaos%d", n))
		l.waitBegun()
		end := time.Now().Add(round)
		if until.Before(end.Add(round / 3)) {
			end = until
		}
		c.run(l, end, n%2 == 1)
		l.finish()
		check(t, &l.rec, seed, l.topic)
	}
	watch.report(t, judge)
}

// check has a history checked, and kept if there is a problem.
func check(t *testing.T, rec *history.Recorder, seed int, name string) {
	t.Helper()
	h := rec.History()
	problems := history.Check(h)
	for _, p := range problems {
		t.Errorf("%s: %s", name, p)
	}
	if !t.Failed() {
		return
	}
	commit, err := exec.Command("git", "-C", testkit.Root(), "describe", "--always", "--dirty").Output()
	if err != nil {
		commit = []byte("unknown")
	}
	file := filepath.Join(kept, fmt.Sprintf("%s-seed%d-%s-%s-%s.history.gz",
		strings.ReplaceAll(t.Name(), "/", "-"), seed, name, strings.TrimSpace(string(commit)), time.Now().Format("0102-150405")))
	if err := h.Save(file); err != nil {
		t.Error(err)
	}
	t.Logf("kept: %s", file)
}

// TestKept checks a history that a failed run has kept: CHAOS_HISTORY names it.
func TestKept(t *testing.T) {
	file := os.Getenv("CHAOS_HISTORY")
	if file == "" {
		t.Log("CHAOS_HISTORY names no file")
		return
	}
	h, err := history.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range history.Check(h) {
		t.Error(p)
	}
}
