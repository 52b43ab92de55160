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
				breakWorld(t, seed, shape{gateways: 2, replicas: replicas, mode: shared}, 12*time.Second, 4*time.Second, time.Second, false, false)
			})
		}
		return
	}
	s := shape{gateways: number(t, "CHAOS_GATEWAYS", 3), replicas: number(t, "CHAOS_REPLICAS", 1), mode: cmp.Or(os.Getenv("CHAOS_MODE"), shared), sticky: os.Getenv("CHAOS_STICKY") == "yes"}
	limit := time.Duration(number(t, "CHAOS_MINUTES", 30)) * time.Minute
	frozen := time.Duration(number(t, "CHAOS_FREEZE", 30)) * time.Second
	breakWorld(t, seed, s, limit, frozen, 3*time.Second, os.Getenv("CHAOS_TXN") == "true", os.Getenv("CHAOS_JUDGE") != "no")
}

// TestTransactions is TestChaos with transactions, short.
func TestTransactions(t *testing.T) {
	t.Parallel()
	breakWorld(t, 2, shape{gateways: 2, replicas: 1, mode: shared}, 10*time.Second, 3*time.Second, time.Second, true, false)
}

// TestTransactionsElsewhere has the clients of a run with transactions work on
// brokers that are there, named by CHAOS_BROKERS, with no faults but workers that
// are replaced: on Apache Kafka it shows what they should see.
func TestTransactionsElsewhere(t *testing.T) {
	seeds := os.Getenv("CHAOS_BROKERS")
	if seeds == "" {
		t.Log("CHAOS_BROKERS names none")
		return
	}
	w := &world{shape: shape{replicas: 1}, seeds: strings.Split(seeds, ",")}
	t.Run("F-16 late", func(t *testing.T) {
		comeLate(t, fmt.Sprint("-", time.Now().UnixNano()), w.seeds[0], w.seeds[len(w.seeds)-1])
	})
	watch := newWatch(w)
	l := newEtl(t, w, watch, fmt.Sprintf("etl-%d", time.Now().UnixNano()), number(t, "CHAOS_SEED", 1))
	l.waitBegun()
	random := rand.New(rand.NewPCG(l.seed, 0))
	until := time.Now().Add(time.Duration(number(t, "CHAOS_MINUTES", 1)) * time.Minute)
	for time.Now().Before(until) && !t.Failed() {
		watch.end(watch.begin(moveMember, l.replace(random.IntN(1<<30), random.IntN(1<<30))))
		rest(t, time.Second)
	}
	// Not judged: Apache Kafka looks for transactions that are too old every 10 s.
	l.finish(0, false)
	watch.report(t, false)
}

// clients are what a world is broken under, for one round.
type clients interface {
	// waitBegun waits until every client has got through once.
	waitBegun()
	// progress waits until n more records are through on every partition, and
	// returns how long that took.
	progress(n int64) time.Duration
	// streams are those whose leaders may be asked to step down.
	streams() []string
	// replace ends one of them and starts another in its place, chosen by two
	// numbers of any size, and says which.
	replace(n, m int) string
	// finish ends the round, when all faults are over, and checks it.
	finish(seed int, judge bool)
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

// breakWorld is one run, under producers and groups or under transactions. judge holds stalls against the limits, for which the
// machine must not be busy with something else.
func breakWorld(t *testing.T, seed int, s shape, limit, frozen, pause time.Duration, transactions, judge bool) {
	t.Logf("seed %d: %d gateways, %s address mode, %d NATS servers, %v", seed, s.gateways, s.mode, s.replicas, limit)
	w := newWorld(t, s)
	watch := newWatch(w)
	c := &chaos{t: t, w: w, watch: watch, random: rand.New(rand.NewPCG(uint64(seed), 0)), freeze: frozen, pause: pause}
	until := time.Now().Add(limit)
	for n := 0; time.Now().Before(until) && !t.Failed(); n++ {
		var l clients
		if transactions {
			l = newEtl(t, w, watch, fmt.Sprintf("etl%d", n), seed+n)
		} else {
			l = newLoad(t, w, watch, fmt.Sprintf("chaos%d", n))
		}
		l.waitBegun()
		end := time.Now().Add(round)
		if until.Before(end.Add(round / 3)) {
			end = until
		}
		c.run(l, end, n%2 == 1)
		l.finish(seed, judge)
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
	if err := h.Save(keepAs(t, seed, name) + ".history.gz"); err != nil {
		t.Error(err)
	}
}

// keepAs is where to keep what a failed run has seen, without an ending.
func keepAs(t *testing.T, seed int, name string) string {
	commit, err := exec.Command("git", "-C", testkit.Root(), "describe", "--always", "--dirty").Output()
	if err != nil {
		commit = []byte("unknown")
	}
	file := filepath.Join(kept, fmt.Sprintf("%s-seed%d-%s-%s-%s",
		strings.ReplaceAll(t.Name(), "/", "-"), seed, name, strings.TrimSpace(string(commit)), time.Now().Format("0102-150405")))
	t.Logf("kept: %s", file)
	return file
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
