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
	text string // guards: what STREAM_KILL_AT, or the file, says
	file string // STREAM_KILL_FILE, until it was read
	name string // guards: where to end; "" nowhere
	left int    // guards: passes until then
	wait time.Duration
}

// The variables are taken out of the environment: the configuration refuses
// names that it does not know.
func init() {
	points.text, points.file = os.Getenv("STREAM_KILL_AT"), os.Getenv("STREAM_KILL_FILE")
	os.Unsetenv("STREAM_KILL_AT")
	os.Unsetenv("STREAM_KILL_FILE")
	if points.text != "" {
		arm(points.text)
	}
}

// At ends the process if this is the moment.
func At(name string) { AtKey(name, "") }

// AtKey is At for a moment of which there are many kinds: name=key names one of
// them, name alone any.
func AtKey(name, key string) {
	points.mu.Lock()
	if points.name == "" && points.file != "" {
		if b, err := os.ReadFile(points.file); err == nil && len(b) > 0 {
			arm(string(b))
		}
	}
	if points.name != name && (key == "" || points.name != name+"="+key) {
		points.mu.Unlock()
		return
	}
	points.left--
	now := points.left == 0
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
	points.name, points.left, points.wait = f[0], 1, 0
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
