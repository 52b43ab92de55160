package main

import (
	"fmt"
	"math"
	"os"
	"path"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// memoryLimit is what this process may use.
type memoryLimit struct {
	Limit  byteSize // what budgets are parts of; never 0
	Origin string
	set    int64 // to hand to the runtime; 0: it has a limit already
	gcSet  bool  // the user chose GOGC
}

// fallbackMemory is assumed where the system does not tell.
const fallbackMemory = 1 << 30

// readMemory finds the limit: GOMEMLIMIT, else 90 % of the control group's,
// else 75 % of the machine's memory.
func readMemory() memoryLimit {
	m := findMemory(os.ReadFile, os.Getenv("GOMEMLIMIT") != "", debug.SetMemoryLimit(-1))
	m.gcSet = os.Getenv("GOGC") != ""
	return m
}

type readFileFunc func(string) ([]byte, error)

func findMemory(read readFileFunc, given bool, runtimeLimit int64) memoryLimit {
	if given && runtimeLimit != math.MaxInt64 {
		return memoryLimit{Limit: byteSize(runtimeLimit), Origin: "GOMEMLIMIT"}
	}
	m := memoryLimit{Limit: fallbackMemory, Origin: "assumed"}
	total := machineMemory(read)
	cg := cgroupMemory(read)
	switch {
	case cg > 0 && (total == 0 || cg < total):
		m.Limit, m.Origin = byteSize(cg/10*9), "90 % of the control group's limit"
	case total > 0:
		m.Limit, m.Origin = byteSize(total/4*3), "75 % of the machine's memory"
	}
	if !given && m.Origin != "assumed" { // GOMEMLIMIT=off stays off
		m.set = int64(m.Limit)
	}
	return m
}

// cgroupMemory is the lowest limit of this process's control group and its
// parents, version 2 or 1; 0 if there is none.
func cgroupMemory(read readFileFunc) int64 {
	b, err := read("/proc/self/cgroup")
	if err != nil {
		return 0
	}
	lowest := int64(0)
	for line := range strings.Lines(string(b)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		var root, file string
		switch {
		case parts[0] == "0" && parts[1] == "":
			root, file = "/sys/fs/cgroup", "memory.max"
		case strings.Contains(","+parts[1]+",", ",memory,"):
			root, file = "/sys/fs/cgroup/memory", "memory.limit_in_bytes"
		default:
			continue
		}
		for dir := path.Clean("/" + parts[2]); ; dir = path.Dir(dir) {
			if b, err := read(path.Join(root, dir, file)); err == nil {
				n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
				// Version 1 says "no limit" by a number near 2^63.
				if err == nil && n > 0 && n < 1<<60 && (lowest == 0 || n < lowest) {
					lowest = n
				}
			}
			if dir == "/" {
				break
			}
		}
	}
	return lowest
}

// machineMemory reads /proc/meminfo; 0 where there is none.
func machineMemory(read readFileFunc) int64 {
	b, err := read("/proc/meminfo")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "MemTotal:"); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			if err == nil {
				return n << 10
			}
		}
	}
	return 0
}

// resolve fills in the limits that follow from the memory limit and others, and
// says which keys it changed and why.
func (l *loaded) resolve(m memoryLimit) map[string]string {
	why := map[string]string{}
	if l.QueuedRequests == 0 {
		l.QueuedRequests = max(m.Limit/4, l.MaxRequest)
		why[fold("queued.max.request.bytes")] = "a quarter of the memory limit, at least socket.request.max.bytes"
	} else if l.QueuedRequests < l.MaxRequest {
		l.QueuedRequests = l.MaxRequest
		why[fold("queued.max.request.bytes")] = "raised to socket.request.max.bytes"
	}
	if l.FetchHeld == 0 {
		l.FetchHeld = max(m.Limit/4, 64<<20)
		why["fetch-held-bytes"] = "a quarter of the memory limit, at least 64 MiB"
	}
	if most := m.Limit / 8; l.FetchCache > most {
		l.FetchCache = most
		why[fold("fetch.cache.bytes")] = "an eighth of the memory limit"
	}
	if most := max(m.Limit/8, 1<<20); l.CleanerMemory > most {
		l.CleanerMemory = most
		why[fold("log.cleaner.dedupe.buffer.size")] = "an eighth of the memory limit"
	}
	if !l.isSet("socket.request.max.bytes") && l.MaxRequest == l.MaxMessage+64<<10 {
		why[fold("socket.request.max.bytes")] = "message.max.bytes + 64 KiB"
	}
	if !l.external() && !l.isSet("data-dir") && l.DataDir != "" {
		why["data-dir"] = "the user's data folder"
	}
	if len(l.AdminBind) == 0 && len(l.Bind) > 0 {
		for _, a := range l.Bind {
			if full, err := listenAddress(a, 0); err == nil {
				if host, _, _ := splitHostPort(full); !slices.Contains(l.AdminBind, host) {
					l.AdminBind = append(l.AdminBind, host)
				}
			}
		}
		why["admin-bind"] = "as bind"
	}
	return why
}

func (m memoryLimit) gcText() string {
	if m.gcSet {
		return "GOGC=" + os.Getenv("GOGC")
	}
	return fmt.Sprintf("GOGC=%d when idle, up to %d under load", gcIdle, gcBusy)
}

// Under load a collection at five times the live heap saves 7–10 % of the CPU;
// idle, it would let garbage pile up to no use. Collections that come one after
// the other are what load looks like.
//
// What a collection saves is garbage per live byte; so the more is alive, as in
// an embedded store with many touched streams, the less is let pile up: garbage
// of gcGarbage, or as much as is alive. It stays until the next collection,
// which, once the load has ended, may be two minutes away.
//
// While a partition is compacted garbage of gcThrifty is all that is let pile up, from
// its beginning on, however much is alive: reading a log of any size should not be seen
// in the memory beyond the budget for keys. Most of what is alive then are blocks of
// 8 MiB that an embedded store reads. It keeps them over two or three collections, so
// that the later those come the more blocks there are; and blocks have no pointers, so
// that a collection costs little.
const (
	gcThrifty   = 32 << 20
	gcLeast     = 25
	gcIdle      = 100
	gcBusy      = 400
	gcBusyEvery = 2 * time.Second
	gcGarbage   = 256 << 20
)

// busyPercent is GOGC under load with so many bytes alive.
func busyPercent(live uint64) int {
	return int(min(gcBusy, max(gcIdle, gcGarbage*100/max(live, 1))))
}

// thriftyPercent is GOGC while a partition is compacted with so many bytes alive.
func thriftyPercent(live uint64) int {
	return int(min(gcIdle, max(gcLeast, gcThrifty*100/max(live, 1))))
}

// liveBytes is what the last collection left.
func liveBytes() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(s)
	if s[0].Value.Kind() != metrics.KindUint64 {
		return 0
	}
	return s[0].Value.Uint64()
}

// apply sets the runtime's memory limit, and GOGC by load, and by what the tuner is
// told, until that is stopped: unless the user chose one, of which the tuner is nil.
func (m memoryLimit) apply() *gcTuner {
	if m.set > 0 {
		debug.SetMemoryLimit(m.set)
	}
	if m.gcSet {
		return nil
	}
	t := &gcTuner{last: time.Now(), percent: gcIdle, live: liveBytes, set: func(p int) { debug.SetGCPercent(p) }}
	t.arm()
	return t
}

// gcTuner is called after each garbage collection: it leaves an object without
// references behind, whose cleanup runs then. A nil one does nothing.
type gcTuner struct {
	live    func() uint64
	set     func(percent int)
	stopped atomic.Bool

	mu      sync.Mutex // guards: all below
	last    time.Time
	percent int
	thrifty bool // a partition is being compacted
}

func (t *gcTuner) stop() {
	if t != nil {
		t.stopped.Store(true)
	}
}

// compacting tells that a partition is being compacted from now on, or not any more.
// What was let pile up before, under load, is not waited for: that is much more than
// the whole run should take, and may be all of the garbage that it makes.
func (t *gcTuner) compacting(now bool) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.thrifty = now; now {
		t.change(thriftyPercent(t.live()))
	}
}

func (t *gcTuner) arm() {
	// 32 bytes and a pointer: not a tiny object, which may be kept alive by its
	// neighbours.
	canary := new(struct {
		_ [32]byte
		_ *int
	})
	runtime.AddCleanup(canary, func(t *gcTuner) {
		if t.stopped.Load() {
			return
		}
		t.collected(time.Now())
		t.arm()
	}, t)
}

// collected decides by the time since the collection before.
func (t *gcTuner) collected(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	percent := gcIdle
	switch {
	case t.thrifty:
		percent = thriftyPercent(t.live())
	case now.Sub(t.last) < gcBusyEvery:
		percent = busyPercent(t.live())
	}
	t.last = now
	t.change(percent)
}

// change sets it, unless for a small difference: that stops the world for a moment.
// mu is held.
func (t *gcTuner) change(percent int) {
	if off := percent - t.percent; percent == gcIdle && off != 0 || max(off, -off) > t.percent/8 {
		t.percent = percent
		t.set(percent)
	}
}
