//go:build killpoints

package killpoint

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

var points struct {
	mu   sync.Mutex
	file string // STREAM_KILL_FILE; "" for STREAM_KILL_AT
	text string // guards: what was armed last
	name string // guards: where to end; "" nowhere
	left int    // guards: passes until then
	wait time.Duration
}

// The variables are taken out of the environment: the configuration refuses
// names that it does not know.
func init() {
	points.file = os.Getenv("STREAM_KILL_FILE")
	arm(os.Getenv("STREAM_KILL_AT"))
	os.Unsetenv("STREAM_KILL_AT")
	os.Unsetenv("STREAM_KILL_FILE")
}

// At ends the process if this is the moment.
func At(name string) { AtKey(name, "") }

// AtKey is At for a moment of which there are many kinds: name=key names one of
// them, name alone any.
func AtKey(name, key string) {
	points.mu.Lock()
	if points.file != "" {
		b, err := os.ReadFile(points.file)
		if text := string(b); err != nil {
			arm("")
		} else if text != points.text {
			arm(text)
		}
	}
	if points.name == "" || points.name != name && (key == "" || points.name != name+"="+key) {
		points.mu.Unlock()
		return
	}
	points.left--
	now := points.left == 0
	if now && points.file != "" {
		// Of several processes with one file the first ends, and it alone.
		now = os.Remove(points.file) == nil
	}
	points.mu.Unlock()
	if !now {
		return
	}
	time.Sleep(points.wait)
	fmt.Fprintf(os.Stderr, "killed at %s\n", name)
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // the signal is on its way
}

// arm reads name[:count[:delay]].
func arm(text string) {
	f := strings.Split(strings.TrimSpace(text), ":")
	points.text, points.name, points.left, points.wait = text, f[0], 1, 0
	var err error
	if len(f) > 1 && f[1] != "" {
		points.left, err = strconv.Atoi(f[1])
	}
	if len(f) > 2 && err == nil {
		points.wait, err = time.ParseDuration(f[2])
	}
	if err != nil || len(f) > 3 || points.left < 1 {
		panic(fmt.Sprintf("kill point %q: %v", text, err))
	}
}
