//go:build killpoints

package killpoint

import (
	"fmt"
	"os"
	"os/signal"
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
	then string // guards: what is armed when name has been passed
	wait time.Duration
	stop bool // guards: freeze instead of ending
}

// The variables are taken out of the environment: the configuration refuses
// names that it does not know.
func init() {
	points.file = os.Getenv("STREAM_KILL_FILE")
	arm(os.Getenv("STREAM_KILL_AT"))
	os.Unsetenv("STREAM_KILL_AT")
	os.Unsetenv("STREAM_KILL_FILE")
}

// At ends or freezes the process if this is the moment.
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
	if !meant(points.name, name, key) {
		points.mu.Unlock()
		return
	}
	points.left--
	if points.left == 0 && points.then != "" {
		text := points.text
		arm(points.then)
		points.text = text // what the file has
		points.mu.Unlock()
		return
	}
	now := points.left == 0
	if now && points.file != "" {
		// Of several processes with one file the first ends, and it alone.
		now = os.Remove(points.file) == nil
	}
	wait, stop := points.wait, points.stop
	points.mu.Unlock()
	if !now {
		return
	}
	if key != "" {
		name += "=" + key
	}
	if stop {
		freeze(name)
		time.Sleep(wait)
		return
	}
	time.Sleep(wait)
	fmt.Fprintf(os.Stderr, "killed at %s\n", name)
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // the signal is on its way
}

// meant reports whether a moment is the one that is armed.
func meant(armed, name, key string) bool {
	if armed == "" || armed == name {
		return armed != ""
	}
	kind, ok := strings.CutPrefix(armed, name+"=")
	if begin, any := strings.CutSuffix(kind, "*"); any {
		return ok && key != "" && strings.HasPrefix(key, begin)
	}
	return ok && key != "" && kind == key
}

// freeze has the process stand still here. The goroutine that is at the point goes
// on only when somebody has continued the process: other threads than the one that
// takes the signal run on for a moment.
func freeze(name string) {
	woken := make(chan os.Signal, 1)
	signal.Notify(woken, syscall.SIGCONT)
	defer signal.Stop(woken)
	fmt.Fprintf(os.Stderr, "frozen at %s\n", name)
	_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	<-woken
}

// arm reads [freeze ][earlier[:count]>]name[:count[:delay]].
func arm(text string) {
	what, stop := strings.CutPrefix(strings.TrimSpace(text), "freeze ")
	what, then, _ := strings.Cut(what, ">")
	if points.then = then; stop && then != "" {
		points.then = "freeze " + then
	}
	f := strings.Split(what, ":")
	points.text, points.name, points.left, points.wait, points.stop = text, f[0], 1, 0, stop
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
