package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/hanzoai/stream/test/testkit"
)

// cleaningPlan is what one round of -mode compaction does to each system: a log is
// filled while compaction is kept away from it, load runs for a while, then the log
// is compacted under that load, and what is left is read and checked.
type cleaningPlan struct {
	records int           // that fill the log
	keys    int           // they have
	batch   int           // bytes of the fillers' batches at most
	rate    int           // records a second of each of the two loads
	calm    time.Duration // of load before compaction
	args    []string      // more flags of stream
}

const (
	// cleanedSize is what key and value of a record have together.
	cleanedSize = 1024
	// warmShare of the records are in the log of rounds that do not count.
	warmShare = 8
	// calmAfter is how long the load goes on: what was replaced is being deleted.
	calmAfter = 5 * time.Second
	// calmWarm is the beginning of a load that does not count.
	calmWarm = 2 * time.Second
	// cleaningLimit bounds one run of a cleaner.
	cleaningLimit = 5 * time.Minute
)

// cleaningSample is one round on one system.
type cleaningSample struct {
	records, keys, left int
	cleaner             cleanerRun
	waited              time.Duration // from when compaction was allowed to its end
	cpu, cpuCalm        float64       // the server's, cores: during it and before
	// Resident bytes: when compaction was allowed, most before that under the same
	// load, most until it had ended.
	before, mostBefore, most int64
	// mapped are those of files, at both moments: the program and what it maps.
	mappedBefore, mapped int64
	other, same          [3]spread // produce to another topic and to this one: without, during and after
	foreign              float64   // cores used by others meanwhile
}

// cleaning runs -mode compaction in one view.
func (b *bench) cleaning(v view, p cleaningPlan) cleaningResult {
	start := len(b.t.cleanups)
	if v.pinned {
		b.pinSelf()
	}
	b.plan = &p
	b.servers = nil
	res := cleaningResult{view: v, plan: p, samples: map[string][]cleaningSample{}, configs: map[string]map[string]string{}}
	for _, name := range b.systems {
		if name == "nats" {
			continue
		}
		s := b.start(v, name)
		b.servers = append(b.servers, s)
		res.systems = append(res.systems, name)
		res.configs[name] = b.cleanerConfigs(s)
	}
	for round := range b.warm + b.rounds {
		for i := range b.servers {
			s := b.servers[(round+i)%len(b.servers)]
			p := p
			if round < b.warm {
				p.records, p.calm = max(p.records/warmShare, 2*p.keys), 0
			}
			m := b.clean(v, s, p)
			b.t.Logf("%s: %s: round %d: %s", v.name, s.name, round-b.warm+1, m)
			if round >= b.warm {
				res.samples[s.name] = append(res.samples[s.name], m)
			}
		}
	}
	for i := len(b.t.cleanups) - 1; i >= start; i-- {
		b.t.cleanups[i]()
	}
	b.t.cleanups = b.t.cleanups[:start]
	return res
}

// pinSelf moves this process, which is the client of -mode compaction, to the
// clients' core.
func (b *bench) pinSelf() {
	if err := command(b.t.Context(), "", "taskset", "-a", "-p", "-c", clientCore, strconv.Itoa(syscall.Getpid())); err != nil {
		b.t.Fatal(err)
	}
}

// cleanerConfigs are those of the broker that say what its cleaner may take.
func (b *bench) cleanerConfigs(s *server) map[string]string {
	ctx, cancel := context.WithTimeout(b.t.Context(), 20*time.Second)
	defer cancel()
	m := map[string]string{}
	rs, err := kadm.NewClient(s.cl).DescribeBrokerConfigs(ctx, 1)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, r := range rs {
		for _, c := range r.Configs {
			if strings.HasPrefix(c.Key, "log.cleaner.") {
				m[c.Key] = c.MaybeValue()
			}
		}
	}
	return m
}

// clean runs one round on one system.
func (b *bench) clean(v view, s *server, p cleaningPlan) (m cleaningSample) {
	id := rand.Uint32()
	topic, other := fmt.Sprintf("compact-%08x", id), fmt.Sprintf("beside-%08x", id)
	// At a ratio of 1 neither system compacts a log, which never is above it.
	b.create(s, topic, "cleanup.policy=compact", "min.cleanable.dirty.ratio=1")
	b.create(s, other)
	h := newHistory(p)
	began := time.Now()
	b.fill(s, topic, h)
	b.t.Logf("%s: %s: %d records in %.1f s", v.name, s.name, p.records, time.Since(began).Seconds())
	b.roll(s, topic, p.records)
	syscall.Sync() // what the system writes back from now on is not the filling's

	w := b.watch(s)
	defer w.stop()
	here, beside := b.steady(s, topic, p.rate), b.steady(s, other, p.rate)
	b.pause(calmWarm)
	calm := w.mark()
	b.pause(p.calm)
	allowed := w.mark()
	b.alter(s, topic, kadm.AlterConfig{Op: kadm.DeleteConfig, Name: "min.cleanable.dirty.ratio"})
	m.cleaner = b.cleaned(s, topic, int64(p.records))
	ended := w.mark()
	if p.calm > 0 {
		b.pause(calmAfter)
	}
	here.stop()
	beside.stop()

	m.records, m.keys = p.records, p.keys
	m.waited = m.cleaner.ended.Sub(allowed.at)
	m.cpu, m.cpuCalm = w.cores(m.cleaner.began, m.cleaner.ended), w.cores(calm.at, allowed.at)
	m.foreign = w.foreign(calm.at, ended.at)
	m.before, m.mostBefore, m.most = allowed.resident, allowed.most, ended.most
	m.mappedBefore, m.mapped = allowed.mapped, ended.mapped
	for i, l := range []*steady{beside, here} {
		without, during := l.between(calm.at, allowed.at), l.between(m.cleaner.began, m.cleaner.ended)
		*[]*[3]spread{&m.other, &m.same}[i] = [3]spread{without, during, l.between(m.cleaner.ended, time.Now())}
	}
	m.left = b.check(s, topic, h, here)
	b.remove(s, topic)
	b.remove(s, other)
	return m
}

func (m cleaningSample) String() string {
	mb := func(n int64) int64 { return n >> 20 }
	return fmt.Sprintf("%.2f s (%.2f s after it was allowed), %.2f cores (%.2f before), %d to %d MB resident (most before: %d; of files: %d to %d), "+
		"beside: %v; same topic: %v; %d records left; others %.2f cores", m.cleaner.took().Seconds(), m.waited.Seconds(),
		m.cpu, m.cpuCalm, mb(m.before), mb(m.most), mb(m.mostBefore), mb(m.mappedBefore), mb(m.mapped), m.other, m.same, m.left, m.foreign)
}

// pause waits, unless the program is ended.
func (b *bench) pause(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-b.t.Context().Done():
		b.t.Fatal(b.t.Context().Err())
	}
}

// alter changes configs of a topic.
func (b *bench) alter(s *server, topic string, configs ...kadm.AlterConfig) {
	ctx, cancel := context.WithTimeout(b.t.Context(), 20*time.Second)
	defer cancel()
	rs, err := kadm.NewClient(s.cl).AlterTopicConfigs(ctx, configs, topic)
	if err == nil {
		for _, r := range rs {
			err = r.Err
		}
	}
	if err != nil {
		b.t.Fatalf("change %s on %s: %v", topic, s.name, err)
	}
}

// roll has Kafka, whose cleaner leaves the newest segment alone, begin a new one, so
// that all of a filled log can be cleaned. stream takes the settings and needs
// nothing of the kind.
func (b *bench) roll(s *server, topic string, records int) {
	ms := "1"
	b.alter(s, topic, kadm.AlterConfig{Op: kadm.SetConfig, Name: "segment.ms", Value: &ms})
	testkit.Poll(b.t, 30*time.Second, "a new segment of "+topic, func() error {
		b.one(s, topic, "roll")
		if s.name != "kafka" {
			return nil
		}
		all, err := filepath.Glob(filepath.Join(s.dir, "log", topic+"-0", "*.log"))
		if err != nil {
			return err
		}
		for _, name := range all {
			if base, err := strconv.Atoi(strings.TrimSuffix(filepath.Base(name), ".log")); err == nil && base >= records {
				return nil
			}
		}
		return fmt.Errorf("segments %v", all)
	})
	b.alter(s, topic, kadm.AlterConfig{Op: kadm.DeleteConfig, Name: "segment.ms"})
}
