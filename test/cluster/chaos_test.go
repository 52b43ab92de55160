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
	kept := logs(t, seed)
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
		c.run(l, end)
		l.finish()
		check(t, &l.rec, kept, seed, l.topic)
	}
	watch.report(t, judge)
}

// logs makes the folder in which a failed run leaves what it knows, and sees that
// processes leave their logs there too.
func logs(t *testing.T, seed int) string {
	dir := filepath.Join(testkit.Cache(), "chaos", fmt.Sprintf("%s-seed%d-%s", strings.ReplaceAll(t.Name(), "/", "-"), seed, time.Now().Format("0102-150405")))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("STREAM_TEST_LOGS", dir)
	t.Cleanup(func() {
		if !t.Failed() {
			if err := os.RemoveAll(dir); err != nil {
				t.Error(err)
			}
		}
	})
	return dir
}

// check has a history checked, and kept if there is a problem.
func check(t *testing.T, rec *history.Recorder, dir string, seed int, name string) {
	t.Helper()
	h := rec.History()
	problems := history.Check(h)
	for _, p := range problems {
		t.Errorf("%s: %s", name, p)
	}
	if len(problems) == 0 && !t.Failed() {
		return
	}
	file := filepath.Join(dir, name+".history.gz")
	if err := h.Save(file); err != nil {
		t.Error(err)
	}
	commit, err := exec.Command("git", "-C", testkit.Root(), "describe", "--always", "--dirty").Output()
	if err != nil {
		commit = []byte("unknown")
	}
	about := fmt.Sprintf("seed %d\ncommit %s", seed, commit)
	if err := os.WriteFile(filepath.Join(dir, "about.txt"), []byte(about), 0o644); err != nil {
		t.Error(err)
	}
	t.Logf("kept: %s", file)
}
