package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
)

// report is what one run found.
type report struct {
	date     time.Time
	load     float64 // average when it began
	args     []string
	versions map[string]string
	views    []viewResult
	// of -mode compaction
	cleanings []cleaningResult
}

type viewResult struct {
	view    view
	systems []systemResult
	rows    []rowResult
	raw     map[string]sample // JetStream's, by row
}

type systemResult struct {
	name    string
	started time.Duration
	idle    float64 // cores
	memory  int64   // high water, bytes
}

type rowResult struct {
	row     row
	samples map[string][]sample // by system, one for each counted round
}

// median of what f takes out of samples.
func median(all []sample, f func(sample) float64) float64 {
	var n []float64
	for _, s := range all {
		n = append(n, f(s))
	}
	return middle(n)
}

func middle(n []float64) float64 {
	if len(n) == 0 {
		return 0
	}
	n = slices.Sorted(slices.Values(n))
	if len(n)%2 == 1 {
		return n[len(n)/2]
	}
	return (n[len(n)/2-1] + n[len(n)/2]) / 2
}

// ratios compares two systems round by round: median, lowest, highest.
func ratios(us, them []sample, f func(sample) float64) (mid, low, high float64) {
	var all []float64
	for i := range min(len(us), len(them)) {
		if d := f(them[i]); d > 0 {
			all = append(all, f(us[i])/d)
		}
	}
	if len(all) == 0 {
		return 0, 0, 0
	}
	return middle(all), slices.Min(all), slices.Max(all)
}

func rate(s sample) float64       { return s.rate }
func perMillion(s sample) float64 { return s.perMillion() }

// markdown is a section for the file of results.
func (r report) markdown() string {
	var w strings.Builder
	p := func(f string, a ...any) { fmt.Fprintf(&w, f+"\n", a...) }
	p("\n## %s\n", r.date.UTC().Format("2006-01-02 15:04 UTC"))
	p("`go run ./test/bench %s`, load average %.2f at the start.\n", strings.Join(r.args, " "), r.load)
	var vs []string
	for _, k := range slices.Sorted(maps.Keys(r.versions)) {
		vs = append(vs, k+" "+r.versions[k])
	}
	p("%s.", strings.Join(vs, "; "))
	for _, v := range r.views {
		v.markdown(p)
	}
	for _, c := range r.cleanings {
		c.markdown(p)
	}
	return w.String()
}

func (v viewResult) markdown(p func(string, ...any)) {
	where := "clients and servers on both cores"
	if v.view.pinned {
		where = "clients on core " + clientCore + ", servers on core " + serverCore
	}
	flush := "flushed by the system (Kafka's default, `--sync 2m`)"
	if v.view.fsync {
		flush = "each on the disk before its ack (`log.flush.interval.messages=1`, `--sync always`)"
	}
	p("\n### %s: %s; %s\n", v.view.name, where, flush)
	for _, name := range []string{"stream", "other"} {
		if !slices.ContainsFunc(v.systems, func(s systemResult) bool { return s.name == name }) {
			continue
		}
		p("| %s : kafka | rate: ratio (lowest–highest) | floor | CPU: ratio | %s: rate, CPU s/M | kafka: rate, CPU s/M | others, cores |", name, name)
		p("|---|---|---|---|---|---|---|")
		for _, r := range v.rows {
			us, them := r.samples[name], r.samples["kafka"]
			mid, low, high := ratios(us, them, rate)
			cpu, _, _ := ratios(us, them, perMillion)
			floor := "–"
			if r.row.floor > 0 && v.view.pinned && !v.view.fsync {
				floor = fmt.Sprintf("%.1f", r.row.floor)
				if len(them) > 0 && mid < r.row.floor {
					floor += " **missed**"
				}
			}
			p("| %s | %.2f (%.2f–%.2f) | %s | %.2f | %s, %.2f | %s, %.2f | %.2f |", r.row.name, mid, low, high, floor, cpu,
				count(median(us, rate)), median(us, perMillion), count(median(them, rate)), median(them, perMillion),
				max(median(us, func(s sample) float64 { return s.foreign }), median(them, func(s sample) float64 { return s.foreign })))
			mean := func(s sample) float64 { return s.times.mean }
			if median(us, mean) > 0 {
				m := func(all []sample) string {
					return fmt.Sprintf("mean %.2f ms, p50 %.2f ms, p99 %.2f ms", median(all, mean),
						median(all, func(s sample) float64 { return s.times.p50 }), median(all, func(s sample) float64 { return s.times.p99 }))
				}
				mean, low, high := ratios(us, them, mean)
				p("| … its time | %.2f (%.2f–%.2f), lower is better | – | – | %s | %s | |", mean, low, high, m(us), m(them))
			}
		}
		p("")
	}
	if len(v.raw) > 0 {
		p("| JetStream alone | messages/s | MB/s | CPU s per million |")
		p("|---|---|---|---|")
		for _, r := range rawRows {
			m := v.raw[r.name]
			p("| %s | %s | %.0f | %.2f |", r.name, count(m.rate), m.bytes/1e6, m.perMillion())
		}
		p("")
	}
	p("| | start, s | idle, cores | most memory, MB |")
	p("|---|---|---|---|")
	for _, s := range v.systems {
		p("| %s | %.2f | %.3f | %d |", s.name, s.started.Seconds(), s.idle, s.memory>>20)
	}
}

// count writes a rate for people.
func count(n float64) string {
	switch {
	case n >= 1e6:
		return fmt.Sprintf("%.2f M/s", n/1e6)
	case n >= 1e3:
		return fmt.Sprintf("%.0f k/s", n/1e3)
	}
	return fmt.Sprintf("%.0f/s", n)
}

func latencyText(s sample) string {
	if s.times.mean == 0 {
		return ""
	}
	return fmt.Sprintf(", mean %.2f ms, p50 %.2f ms, p99 %.2f ms", s.times.mean, s.times.p50, s.times.p99)
}

// preamble begins a new file of results.
const preamble = `# Benchmarks

Runs of ` + "`test/bench`" + `, appended by the program. Compare ratios within one run; rates of
different runs or machines say nothing about each other. CPU is the server's, in
seconds per million records. "Others" is what the rest of the machine used meanwhile:
much of it makes a row worthless.
`

func appendFile(path, text string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if st.Size() == 0 {
		text = preamble + text
	}
	if _, err := f.WriteString(text); err != nil {
		return err
	}
	return f.Close()
}
