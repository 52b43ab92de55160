package main

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hanzoai/stream/test/testkit"
)

// cleanerRun is one run of a cleaner, by its own log.
type cleanerRun struct {
	began, ended time.Time
	words        string // what it says of it
}

func (r cleanerRun) took() time.Duration { return r.ended.Sub(r.began) }

// cleaned waits until a topic is compacted up to an offset at least.
func (b *bench) cleaned(s *server, topic string, to int64) (r cleanerRun) {
	testkit.Poll(b.t, cleaningLimit, "compaction of "+topic+" on "+s.name, func() error {
		select {
		case <-s.process.Exited():
			b.t.Fatalf("%s has ended:\n%s", s.name, s.process.Log())
		default:
		}
		parse := streamRun
		if s.name == "kafka" {
			parse = kafkaRun
		}
		var ok bool
		var err error
		if r, ok, err = parse(s.process.Log(), topic+"-0", to); err != nil {
			b.t.Fatal(err)
		}
		if !ok {
			return fmt.Errorf("its log does not tell that it has ended")
		}
		return nil
	})
	return r
}

const kafkaTime = "2006-01-02 15:04:05,000"

var kafkaLine = regexp.MustCompile(`(?m)^\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3})\] \w+ `)

// kafkaRun finds a run in what LogCleaner and Cleaner log: from the first line of it
// to the one that counts what was done.
func kafkaRun(log, partition string, to int64) (r cleanerRun, ok bool, err error) {
	begin := "Beginning cleaning of log " + partition
	end := regexp.MustCompile(`cleaned log ` + regexp.QuoteMeta(partition) + ` \(dirty section = \[\d+, (\d+)\]\)`)
	at := kafkaLine.FindAllStringSubmatchIndex(log, -1)
	for i, m := range at {
		next := len(log)
		if i+1 < len(at) {
			next = at[i+1][0]
		}
		text := log[m[0]:next]
		when, err := time.ParseInLocation(kafkaTime, log[m[2]:m[3]], time.Local)
		if err != nil {
			return r, false, err
		}
		if r.began.IsZero() && strings.Contains(text, begin) {
			r.began = when
		}
		if m := end.FindStringSubmatch(text); m != nil {
			if n, err := strconv.ParseInt(m[1], 10, 64); err != nil || n < to {
				return r, false, fmt.Errorf("kafka has cleaned up to %s instead of %d (%v): %s", m[1], to, err, text)
			}
			r.ended, r.words = when, strings.Join(strings.Fields(text), " ")
			return r, !r.began.IsZero(), nil
		}
	}
	return r, false, nil
}

var streamLine = regexp.MustCompile(`(?m)^time=(\S+) .*msg=compacted .*partition=(\S+) upto=(\d+) .*took=(\S+)`)

// streamRun finds a run in stream's log.
func streamRun(log, partition string, to int64) (r cleanerRun, ok bool, err error) {
	for _, m := range streamLine.FindAllStringSubmatch(log, -1) {
		if m[2] != partition {
			continue
		}
		when, err := time.Parse(time.RFC3339Nano, m[1])
		if err != nil {
			return r, false, err
		}
		took, err := time.ParseDuration(m[4])
		if err != nil {
			return r, false, err
		}
		if n, err := strconv.ParseInt(m[3], 10, 64); err != nil || n < to {
			return r, false, fmt.Errorf("stream has compacted up to %s instead of %d: %v", m[3], to, err)
		}
		return cleanerRun{began: when.Add(-took), ended: when, words: m[0]}, true, nil
	}
	return r, false, nil
}

// watched is what a server was at at a moment.
type watched struct {
	at       time.Time
	own      time.Duration // its CPU time
	all      time.Duration // of all servers and of this process
	busy     time.Duration // the machine's
	resident int64         // bytes
	most     int64         // since the mark before
	mapped   int64         // of the resident ones: of files, which the system can take back
}

// watch looks at a server all the time.
type watch struct {
	b    *bench
	s    *server
	end  chan struct{}
	gone chan struct{}

	mu  sync.Mutex // guards: all
	all []watched
}

const watchEvery = 100 * time.Millisecond

func (b *bench) watch(s *server) *watch {
	w := &watch{b: b, s: s, end: make(chan struct{}), gone: make(chan struct{})}
	go func() {
		defer close(w.gone)
		t := time.NewTicker(watchEvery)
		defer t.Stop()
		for {
			select {
			case <-w.end:
				return
			case <-t.C:
				if x, err := w.look(); err == nil {
					w.mu.Lock()
					w.all = append(w.all, x)
					w.mu.Unlock()
				}
			}
		}
	}()
	return w
}

func (w *watch) stop() {
	close(w.end)
	<-w.gone
}

func (w *watch) look() (x watched, err error) {
	x.at = time.Now()
	for _, s := range w.b.servers {
		d, err := cpuOf(s.process.Pid())
		if err != nil {
			return x, err
		}
		if x.all += d; s == w.s {
			x.own = d
		}
	}
	d, err := cpuOf(os.Getpid())
	if err != nil {
		return x, err
	}
	x.all += d
	if x.busy, err = busyCPU(); err != nil {
		return x, err
	}
	if x.resident, err = memoryLine(w.s.process.Pid(), "VmRSS:"); err != nil {
		return x, err
	}
	if x.mapped, err = memoryLine(w.s.process.Pid(), "RssFile:"); err != nil {
		return x, err
	}
	x.most, err = highWater(w.s.process.Pid())
	return x, err
}

// mark looks at this moment, and has the kernel begin anew with the most memory.
func (w *watch) mark() watched {
	x, err := w.look()
	if err == nil {
		err = os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", w.s.process.Pid()), []byte("5"), 0)
	}
	if err != nil {
		w.b.t.Fatalf("look at %s, which may have ended: %v\n%s", w.s.name, err, w.s.process.Log())
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, x)
	return x
}

// over gives the first and the last look within a span, one around it.
func (w *watch) over(from, to time.Time) (a, z watched) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, x := range w.all {
		if a.at.IsZero() || !x.at.After(from) {
			a = x
		}
		if z = x; !x.at.Before(to) {
			break
		}
	}
	return a, z
}

// cores is what the server used in a span.
func (w *watch) cores(from, to time.Time) float64 {
	a, z := w.over(from, to)
	return (z.own - a.own).Seconds() / max(z.at.Sub(a.at), watchEvery).Seconds()
}

// foreign is what others than the servers and their clients used.
func (w *watch) foreign(from, to time.Time) float64 {
	a, z := w.over(from, to)
	return max(0, ((z.busy-a.busy)-(z.all-a.all)).Seconds()) / max(z.at.Sub(a.at), watchEvery).Seconds()
}
