package main

import (
	"errors"
	"math"
	"runtime"
	"slices"
	"testing"
	"time"
)

func TestFindMemory(t *testing.T) {
	t.Parallel()
	const meminfo = "MemTotal:        8388608 kB\nMemFree: 1 kB\n"
	for _, c := range []struct {
		name   string
		files  map[string]string
		given  bool
		limit  int64
		want   byteSize
		origin string
		set    int64
	}{
		{"given", map[string]string{"/proc/meminfo": meminfo}, true, 1 << 30, 1 << 30, "GOMEMLIMIT", 0},
		{"given off", map[string]string{"/proc/meminfo": meminfo}, true, math.MaxInt64, 6 << 30, "75 % of the machine's memory", 0},
		{"machine", map[string]string{"/proc/meminfo": meminfo}, false, math.MaxInt64, 6 << 30, "75 % of the machine's memory", 6 << 30},
		{"v2", map[string]string{"/proc/meminfo": meminfo, "/proc/self/cgroup": "0::/a/b\n", "/sys/fs/cgroup/a/b/memory.max": "max\n", "/sys/fs/cgroup/a/memory.max": "1000000000\n", "/sys/fs/cgroup/memory.max": "2000000000\n"},
			false, math.MaxInt64, 900000000, "90 % of the control group's limit", 900000000},
		{"v1", map[string]string{"/proc/self/cgroup": "5:cpu,memory:/x\n1:pids:/\n", "/sys/fs/cgroup/memory/x/memory.limit_in_bytes": "1000000000\n"},
			false, math.MaxInt64, 900000000, "90 % of the control group's limit", 900000000},
		{"v1 without limit", map[string]string{"/proc/meminfo": meminfo, "/proc/self/cgroup": "5:memory:/\n", "/sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"},
			false, math.MaxInt64, 6 << 30, "75 % of the machine's memory", 6 << 30},
		{"nothing known", nil, false, math.MaxInt64, 1 << 30, "assumed", 0},
	} {
		m := findMemory(func(p string) ([]byte, error) {
			if s, ok := c.files[p]; ok {
				return []byte(s), nil
			}
			return nil, errors.New("no such file")
		}, c.given, c.limit)
		if m.Limit != c.want || m.Origin != c.origin || m.set != c.set {
			t.Errorf("%s: %+v, want %d %q %d", c.name, m, c.want, c.origin, c.set)
		}
	}
}

func TestGCFollowsLoad(t *testing.T) {
	t.Parallel()
	now := time.Unix(100, 0)
	var sets []int
	g := &gcTuner{last: now, percent: gcIdle, live: func() uint64 { return 10 << 20 }, set: func(p int) { sets = append(sets, p) }}
	for _, after := range []time.Duration{time.Minute, time.Second, time.Second, time.Minute, time.Minute} {
		now = now.Add(after)
		g.collected(now)
	}
	if len(sets) != 2 || sets[0] != gcBusy || sets[1] != gcIdle {
		t.Errorf("GOGC was set to %v, want busy, then idle", sets)
	}
}

// TestGCWhileCompacting: nothing is let pile up from the beginning of a run on, without
// a collection that says so: under load that would come when the memory has grown.
func TestGCWhileCompacting(t *testing.T) {
	t.Parallel()
	now := time.Unix(100, 0)
	var sets []int
	g := &gcTuner{last: now, percent: gcIdle, live: func() uint64 { return 64 << 20 }, set: func(p int) { sets = append(sets, p) }}
	collect := func(want ...int) {
		t.Helper()
		now = now.Add(time.Second)
		if g.collected(now); !slices.Equal(sets, want) {
			t.Errorf("GOGC was set to %v, want %v", sets, want)
		}
		sets = nil
	}
	collect(gcBusy)
	g.compacting(true)
	collect(50)
	collect()
	g.compacting(true)
	g.compacting(false)
	collect(gcBusy)
	g.compacting(true)
	g.compacting(false)
	now = now.Add(time.Minute)
	collect(50, gcIdle)

	for live, want := range map[uint64]int{0: gcIdle, 32 << 20: gcIdle, 64 << 20: 50, 128 << 20: gcLeast, 4 << 30: gcLeast} {
		if got := thriftyPercent(live); got != want {
			t.Errorf("with %d MiB alive GOGC is %d, want %d", live>>20, got, want)
		}
	}
	g = memoryLimit{gcSet: true}.apply()
	g.compacting(true) // the user's choice stays
	g.stop()
}

// TestGCWithMuchAlive: what is let pile up under load is bounded by what is alive.
func TestGCWithMuchAlive(t *testing.T) {
	t.Parallel()
	for live, want := range map[uint64]int{0: gcBusy, 20 << 20: gcBusy, 64 << 20: gcBusy, 128 << 20: 200, 256 << 20: gcIdle, 4 << 30: gcIdle} {
		if got := busyPercent(live); got != want {
			t.Errorf("with %d MiB alive GOGC is %d, want %d", live>>20, got, want)
		}
	}
	runtime.GC()
	if live := liveBytes(); live == 0 {
		t.Error("the runtime does not tell how much is alive")
	}
	now, live := time.Unix(100, 0), uint64(60<<20)
	var sets []int
	g := &gcTuner{last: now, percent: gcIdle, live: func() uint64 { return live }, set: func(p int) { sets = append(sets, p) }}
	for range 50 {
		now, live = now.Add(time.Second), live+4<<20
		g.collected(now)
	}
	if n := len(sets); n < 4 || n > 12 || sets[0] != gcBusy || sets[n-1] != gcIdle {
		t.Errorf("while more and more is alive GOGC is set to %v", sets)
	}
}

func TestResolve(t *testing.T) {
	t.Parallel()
	l := loadWith(t, []string{"--message-max-bytes", "20MiB", "--bind", "127.0.0.1:7,127.0.0.1:8,[::1]:9"}, nil)
	why := l.resolve(memoryLimit{Limit: 80 << 20})
	if l.MaxRequest != 20<<20+64<<10 || l.QueuedRequests != l.MaxRequest || l.FetchCache != 10<<20 {
		t.Errorf("request %s, queued %s, cache %s", l.MaxRequest, l.QueuedRequests, l.FetchCache)
	}
	if len(l.AdminBind) != 2 || l.AdminBind[0] != "127.0.0.1" || l.AdminBind[1] != "::1" {
		t.Errorf("admin-bind %q", l.AdminBind)
	}
	for _, id := range []string{"queued-max-request-bytes", "fetch-cache-bytes", "socket-request-max-bytes", "admin-bind", "data-dir", "fetch-held-bytes"} {
		if why[id] == "" {
			t.Errorf("no reason for %s", id)
		}
	}
}
