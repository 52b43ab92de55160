package sim

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

// Number reads a number from the environment.
func Number(t *testing.T, name string, otherwise int) int {
	t.Helper()
	v := os.Getenv(name)
	if v == "" {
		return otherwise
	}
	n, err := strconv.Atoi(v)
	if err != nil {
		t.Fatalf("%s=%q is no number", name, v)
	}
	return n
}

// Seeds runs SIM_SEEDS seeds from SIM_FIRST (1) on, or SIM_REPEAT times the one
// seed SIM_SEED, each as a test of its own, and returns when all have ended, or
// after the first failures unless SIM_ALL is 1. It reports whether many were run,
// so that something can be said of all of them.
func Seeds(t *testing.T, otherwise int, run func(t *testing.T, seed uint64)) (many bool) {
	t.Helper()
	one := func(t *testing.T, seed uint64) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			defer func() {
				if t.Failed() {
					t.Logf("failing seed: SIM_SEED=%d", seed)
				}
			}()
			run(t, seed)
		})
	}
	if seed := Number(t, "SIM_SEED", -1); seed >= 0 {
		for range Number(t, "SIM_REPEAT", 1) {
			one(t, uint64(seed))
		}
		return false
	}
	seeds, first := Number(t, "SIM_SEEDS", otherwise), Number(t, "SIM_FIRST", 1)
	on := Number(t, "SIM_ALL", 0) > 0
	workers := runtime.GOMAXPROCS(0)
	t.Run("seeds", func(t *testing.T) {
		for w := range workers {
			t.Run(fmt.Sprintf("worker %d", w), func(t *testing.T) {
				t.Parallel()
				for i := w; i < seeds && (on || !t.Failed()); i += workers {
					one(t, uint64(first+i))
				}
			})
		}
	})
	return true
}

// Bubble runs fn in virtual time.
func Bubble(t *testing.T, fn func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, fn)
}

// Rand is the source of one actor's decisions.
func Rand(seed, actor uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, actor)) }

// Millis is a time between one and most milliseconds.
func Millis(r *rand.Rand, most int) time.Duration {
	return time.Duration(1+r.IntN(most)) * time.Millisecond
}

// Over reports whether a channel was closed.
func Over(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// Pause waits for a time, or until a channel is closed.
func Pause(ch <-chan struct{}, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ch:
	}
}
