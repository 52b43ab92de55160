package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"strings"
	"time"

	"github.com/hanzoai/stream/test/testkit"
)

// view is a set of servers and how they and their clients run.
type view struct {
	name   string
	pinned bool // clients and servers on cores of their own
	fsync  bool // each record is on the disk before it is acknowledged
}

var views = map[string]view{
	"pinned":   {name: "pinned", pinned: true},
	"unpinned": {name: "unpinned"},
	"fsync":    {name: "fsync", pinned: true, fsync: true},
}

// bench is one run of the program.
type bench struct {
	t        *tb
	tools    loadTools
	dir      string
	other    string // path of a second stream binary
	long     bool
	rounds   int // counted ones
	warm     int // discarded ones
	scale    float64
	rows     *regexp.Regexp
	systems  []string
	versions map[string]string
	servers  []*server
	plan     *cleaningPlan // of -mode compaction; nil in the others
}

// disturbed is how many cores others may use during a sample before it is taken
// again, retries how often.
const (
	disturbed = 0.2
	retries   = 2
)

func main() {
	os.Exit(run())
}

func run() (code int) {
	mode := flag.String("mode", "short", "short (three minutes), long, or compaction")
	viewList := flag.String("views", "", "pinned, unpinned, fsync; empty: pinned, in long mode all")
	rowPattern := flag.String("rows", ".", "regular expression on names of rows")
	systems := flag.String("systems", "kafka,stream,nats", "systems, in turn")
	other := flag.String("other", "", "a second stream binary, to compare builds in one run")
	rounds := flag.Int("rounds", 0, "counted rounds; 0: 3, in long mode 5")
	warm := flag.Int("warm", 0, "discarded rounds; 0: 1, in long mode 2")
	scale := flag.Float64("scale", 1, "factor on the number of records")
	out := flag.String("out", "docs/benchmarks.md", "file to append results to; empty: none")
	dir := flag.String("dir", "", "folder for data; empty: a temporary one")
	size := flag.Int("size", 2048, "compaction: MiB of the partition")
	keys := flag.Int("keys", 100_000, "compaction: keys")
	batch := flag.Int("batch", 16384, "compaction: largest batch of what fills it, bytes (the default of Kafka's Java client)")
	loadRate := flag.Int("load", 500, "compaction: records a second of each of the two loads")
	calm := flag.Duration("calm", 20*time.Second, "compaction: load before it")
	streamArgs := flag.String("stream-args", "", "compaction: more flags of stream, with spaces between")
	quiet := flag.Duration("quiet", 3*time.Minute, "longest wait for a load average below 1")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	b := &bench{
		t: &tb{ctx: ctx}, other: *other, long: *mode == "long", rounds: *rounds, warm: *warm, scale: *scale,
		systems: strings.Split(*systems, ","), versions: map[string]string{},
	}
	defer b.t.cleanup()
	defer func() {
		switch p := recover().(type) {
		case nil:
		case failure:
			fmt.Fprintln(os.Stderr, "bench:", string(p))
			code = 1
		default:
			panic(p)
		}
	}()
	if b.rounds == 0 {
		b.rounds = 3
		if b.long {
			b.rounds = 5
		}
	}
	if b.warm == 0 {
		b.warm = 1
		if b.long {
			b.warm = 2
		}
	}
	if b.long {
		b.scale *= 2
	}
	if *viewList == "" {
		switch {
		case b.long:
			*viewList = "pinned,unpinned,fsync"
		case *mode == "compaction":
			*viewList = "unpinned" // a cleaner is a thread of its own
		default:
			*viewList = "pinned"
		}
	}
	if *other != "" {
		b.systems = append(b.systems, "other")
	}
	var err error
	if b.rows, err = regexp.Compile(*rowPattern); err != nil {
		b.t.Fatal(err)
	}
	var picked []view
	for name := range strings.SplitSeq(*viewList, ",") {
		v, ok := views[name]
		if !ok {
			b.t.Fatalf("no view is named %q", name)
		}
		picked = append(picked, v)
	}
	if b.tools, err = setup(ctx); err != nil {
		b.t.Fatal(err)
	}
	testkit.Binary(b.t) // builds before anything is measured
	if b.dir, err = os.MkdirTemp(*dir, "stream-bench-"); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { os.RemoveAll(b.dir) })
	b.findVersions()

	r := report{date: time.Now(), load: waitQuiet(ctx, *quiet), args: os.Args[1:], versions: b.versions}
	for _, v := range picked {
		if *mode == "compaction" {
			r.cleanings = append(r.cleanings, b.cleaning(v, cleaningPlan{
				records: *size << 20 / cleanedSize, keys: *keys, batch: *batch, rate: *loadRate, calm: *calm, args: strings.Fields(*streamArgs),
			}))
			continue
		}
		r.views = append(r.views, b.view(v))
	}
	text := r.markdown()
	fmt.Print(text)
	if *out != "" {
		if err := appendFile(*out, text); err != nil {
			b.t.Fatal(err)
		}
	}
	return 0
}

// waitQuiet waits until the machine is idle, or the limit, and returns the load.
func waitQuiet(ctx context.Context, limit time.Duration) float64 {
	deadline := time.Now().Add(limit)
	for load() >= 1 && time.Now().Before(deadline) && ctx.Err() == nil {
		time.Sleep(2 * time.Second)
	}
	return load()
}

// view starts the systems, runs all rows and stops the systems.
func (b *bench) view(v view) viewResult {
	start := len(b.t.cleanups)
	res := viewResult{view: v, raw: map[string]sample{}}
	b.servers = nil
	var kafkaish []*server
	var nats *server
	for _, name := range b.systems {
		s := b.start(v, name)
		b.servers = append(b.servers, s)
		if name == "nats" {
			nats = s
		} else {
			kafkaish = append(kafkaish, s)
		}
		res.systems = append(res.systems, systemResult{name: name, started: s.started})
	}
	b.prepare(v, kafkaish)
	for i, s := range b.servers {
		res.systems[i].idle = b.idleCPU(s)
	}
	if nats != nil {
		b.raw(v, nats)
		res.raw = b.raw(v, nats)
	}
	for _, r := range rows {
		if !b.rows.MatchString(r.name) || r.long && !b.long || v.fsync && !r.fsync {
			continue
		}
		res.rows = append(res.rows, b.row(v, r, kafkaish))
	}
	for i, s := range b.servers {
		n, err := highWater(s.process.Pid())
		if err != nil {
			b.t.Fatalf("memory of %s, which may have ended: %v\n%s", s.name, err, s.process.Log())
		}
		res.systems[i].memory = n
	}
	for i := len(b.t.cleanups) - 1; i >= start; i-- {
		b.t.cleanups[i]()
	}
	b.t.cleanups = b.t.cleanups[:start]
	for _, s := range b.servers {
		os.RemoveAll(s.dir)
	}
	return res
}

// prepare makes the topics that are read cold: nobody reads them while they are
// written, so that nothing of them is in a cache but the system's.
func (b *bench) prepare(v view, servers []*server) {
	made := map[int]bool{}
	for _, r := range rows {
		if r.read == 0 || made[r.read] || !b.rows.MatchString(r.name) || v.fsync && !r.fsync {
			continue
		}
		made[r.read] = true
		for _, s := range servers {
			topic := coldTopic(r)
			b.create(s, topic)
			if _, err := b.produceAll(v, s, topic, 1, r.read, b.count(r), nil); err != nil {
				b.t.Fatalf("prepare %s on %s: %v", topic, s.name, err)
			}
		}
	}
}

func coldTopic(r row) string { return fmt.Sprintf("cold-%d", r.read) }

func (b *bench) count(r row) int { return max(int(float64(r.count)*b.scale), 1000) }

// row runs one row on all systems, the first of a round being another each time.
func (b *bench) row(v view, r row, servers []*server) rowResult {
	res := rowResult{row: r, samples: map[string][]sample{}}
	for round := range b.warm + b.rounds {
		for i := range servers {
			s := servers[(round+i)%len(servers)]
			m := b.try(v, r, s)
			if round >= b.warm {
				res.samples[s.name] = append(res.samples[s.name], m)
			}
			b.t.Logf("%s: %s: %s: round %d: %.0f/s, %.3f CPU s/M, others %.2f cores%s", v.name, r.name, s.name, round-b.warm+1, m.rate, m.perMillion(), m.foreign, latencyText(m))
		}
	}
	return res
}

// try takes a sample, again if others were busy, and keeps the quietest.
func (b *bench) try(v view, r row, s *server) sample {
	var best sample
	for i := range retries + 1 {
		topic := coldTopic(r)
		if r.read == 0 {
			topic = fmt.Sprintf("bench-%x", rand.Uint64())
			b.create(s, topic)
		}
		m := b.measure(s, func() (result, error) { return r.run(b, v, s, topic, b.count(r)) })
		if r.read == 0 {
			b.remove(s, topic)
		}
		if i == 0 || m.foreign < best.foreign {
			best = m
		}
		if best.foreign < disturbed {
			break
		}
	}
	return best
}

// measure runs f and reads what the server and others used meanwhile.
func (b *bench) measure(s *server, f func() (result, error)) sample {
	cpu := func(s *server) time.Duration {
		d, err := cpuOf(s.process.Pid())
		if err != nil {
			b.t.Fatalf("%s has ended: %v\n%s", s.name, err, s.process.Log())
		}
		return d
	}
	own := func() (sum time.Duration) {
		for _, s := range b.servers {
			sum += cpu(s)
		}
		return sum
	}
	busy := func() time.Duration {
		d, err := busyCPU()
		if err != nil {
			b.t.Fatal(err)
		}
		return d
	}
	begin, cpu0, own0, busy0 := time.Now(), cpu(s), own(), busy()
	res, err := f()
	if err != nil {
		b.t.Fatalf("%s: %v", s.name, err)
	}
	took, cpu1, own1, busy1 := time.Since(begin), cpu(s), own(), busy()
	return sample{
		rate: float64(res.records) / max(res.took, time.Millisecond).Seconds(), cpu: cpu1 - cpu0, records: res.records,
		times:   res.times,
		foreign: max(0, ((busy1-busy0)-(own1-own0)-res.cpu).Seconds()) / took.Seconds(),
	}
}

// idleCPU is what a server uses without load, in cores.
func (b *bench) idleCPU(s *server) float64 {
	const span = 2 * time.Second
	a, err1 := cpuOf(s.process.Pid())
	time.Sleep(span)
	z, err2 := cpuOf(s.process.Pid())
	if err1 != nil || err2 != nil {
		b.t.Fatalf("%s has ended:\n%s", s.name, s.process.Log())
	}
	return (z - a).Seconds() / span.Seconds()
}

// findVersions fills in what was compared.
func (b *bench) findVersions() {
	say := func(name, path string, args ...string) {
		cmd := exec.CommandContext(b.t.ctx, path, args...)
		cmd.Dir = testkit.Root()
		out, err := cmd.CombinedOutput()
		if err != nil {
			b.versions[name] = "unknown"
			return
		}
		b.versions[name] = strings.TrimSpace(strings.SplitN(string(out), "\n", 2)[0])
	}
	say("stream", "git", "describe", "--always", "--dirty")
	say("java", b.tools.java, "-version")
	say("go", "go", "env", "GOVERSION")
	say("kernel", "uname", "-sr")
	b.versions["kernel"], _, _ = strings.Cut(b.versions["kernel"], "-") // without the machine's own suffix
	b.versions["Apache Kafka"] = "4.3.1"
	b.versions["nats bench"] = natsCLI
	b.versions["rdkafka_performance"] = "of node-rdkafka " + nodeRdkafka
}
