package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// What compaction must keep to: its time, to Apache Kafka's; resident memory, beyond
// what there was before, to the budget that is configured; the 99th percentile of
// produce latency, to that without compaction.
const (
	timeBound    = 2.0
	latencyBound = 2.0
	// enough latencies for a 99th percentile.
	enough = 500
)

// memoryBudget is the config that says how much memory a cleaner may take.
const memoryBudget = "log.cleaner.dedupe.buffer.size"

// cleaningResult is what -mode compaction found in one view.
type cleaningResult struct {
	view    view
	plan    cleaningPlan
	systems []string
	configs map[string]map[string]string // of brokers, by system
	samples map[string][]cleaningSample  // by system, one for each counted round
}

// numbers are one figure of all rounds.
func numbers(all []cleaningSample, f func(cleaningSample) float64) (ns []float64) {
	for _, s := range all {
		ns = append(ns, f(s))
	}
	return ns
}

func ranged(ns []float64, format string) string {
	if len(ns) == 0 {
		return "–"
	}
	text := fmt.Sprintf(format, middle(ns))
	if len(ns) > 1 {
		text += fmt.Sprintf(" ("+format+"–"+format+")", slices.Min(ns), slices.Max(ns))
	}
	return text
}

// each divides round by round.
func each(us, them []float64) (ns []float64) {
	for i := range min(len(us), len(them)) {
		if them[i] > 0 {
			ns = append(ns, us[i]/them[i])
		}
	}
	return ns
}

// grew is by how much a round's memory went beyond what there was, bytes.
func (m cleaningSample) grew() float64 { return max(0, float64(m.most-m.before)) }

func (r cleaningResult) markdown(p func(string, ...any)) {
	where := "clients and servers on both cores"
	if r.view.pinned {
		where = "clients on core " + clientCore + ", servers on core " + serverCore
	}
	p("\n### compaction, %s: %s\n", r.view.name, where)
	p("A partition of %s MB: %d records of %d bytes, batches of at most %d bytes, %d keys; meanwhile %d records a second to its topic and as many to another one.\n",
		strconv.Itoa(r.plan.records*cleanedSize/1e6), r.plan.records, cleanedSize, r.plan.batch, r.plan.keys, r.plan.rate)
	for _, name := range r.systems {
		var cs []string
		for _, k := range slices.Sorted(maps.Keys(r.configs[name])) {
			if slices.Contains([]string{memoryBudget, "log.cleaner.io.max.bytes.per.second", "log.cleaner.threads", "log.cleaner.io.buffer.size"}, k) {
				v := r.configs[name][k]
				if f, err := strconv.ParseFloat(v, 64); err == nil && f > 1e18 {
					v = "none"
				}
				cs = append(cs, k+" "+v)
			}
		}
		p("%s: %s.", name, strings.Join(cs, ", "))
	}
	for _, name := range r.systems {
		if name != "kafka" {
			r.table(p, name)
		}
	}
}

// table compares one system with Kafka.
func (r cleaningResult) table(p func(string, ...any), name string) {
	us, them := r.samples[name], r.samples["kafka"]
	budget, _ := strconv.ParseFloat(r.configs[name][memoryBudget], 64)
	const mb = 1 << 20
	line := func(what, format, bound string, f func(cleaningSample) float64) {
		p("| %s | %s | %s | %s | %s |", what, ranged(numbers(us, f), format), ranged(numbers(them, f), format), ranged(each(numbers(us, f), numbers(them, f)), "%.2f"), bound)
	}
	judge := func(limit string, kept bool) string {
		return limit + map[bool]string{true: ", kept", false: " **missed**"}[kept]
	}
	took := func(m cleaningSample) float64 { return m.cleaner.took().Seconds() }
	p("\n| | %s | kafka | ratio | bound of %s |", name, name)
	p("|---|---|---|---|---|")
	bound := "–"
	if len(them) > 0 {
		bound = judge(fmt.Sprintf("at most %.1f × kafka", timeBound), middle(each(numbers(us, took), numbers(them, took))) <= timeBound)
	}
	line("compaction, s", "%.2f", bound, took)
	line("log, MB a second", "%.0f", "–", func(m cleaningSample) float64 { return float64(m.records*cleanedSize) / 1e6 / took(m) })
	line("from when it was allowed to its end, s", "%.2f", "–", func(m cleaningSample) float64 { return m.waited.Seconds() })
	line("the server's CPU before, cores", "%.2f", "–", func(m cleaningSample) float64 { return m.cpuCalm })
	line("the server's CPU meanwhile, cores", "%.2f", "–", func(m cleaningSample) float64 { return m.cpu })
	line("what compaction adds, CPU s", "%.2f", "–", func(m cleaningSample) float64 { return max(0, m.cpu-m.cpuCalm) * took(m) })
	line("resident memory before, MB", "%.0f", "–", func(m cleaningSample) float64 { return float64(m.before) / mb })
	line("most of it meanwhile, MB", "%.0f", "–", func(m cleaningSample) float64 { return float64(m.most) / mb })
	line("of it files, before, MB", "%.0f", "–", func(m cleaningSample) float64 { return float64(m.mappedBefore) / mb })
	line("… at its end, MB", "%.0f", "–", func(m cleaningSample) float64 { return float64(m.mapped) / mb })
	line("more than before, MB", "%.0f", judge(fmt.Sprintf("at most %.0f (%s)", budget/mb, memoryBudget), len(us) > 0 && slices.Max(numbers(us, cleaningSample.grew)) <= budget),
		func(m cleaningSample) float64 { return m.grew() / mb })
	for _, x := range []struct {
		what string
		of   func(cleaningSample) [3]spread
	}{{"another topic", func(m cleaningSample) [3]spread { return m.other }}, {"the same topic", func(m cleaningSample) [3]spread { return m.same }}} {
		p99 := func(m cleaningSample) float64 { return x.of(m)[1].p99 / max(x.of(m)[0].p99, 0.001) }
		line("produce to "+x.what+" without: p50, ms", "%.2f", "–", func(m cleaningSample) float64 { return x.of(m)[0].p50 })
		line("… during: p50, ms", "%.2f", "–", func(m cleaningSample) float64 { return x.of(m)[1].p50 })
		line("… without: p99, ms", "%.2f", "–", func(m cleaningSample) float64 { return x.of(m)[0].p99 })
		line("… during: p99, ms", "%.2f", "–", func(m cleaningSample) float64 { return x.of(m)[1].p99 })
		line("… after: p99, ms", "%.2f", "–", func(m cleaningSample) float64 { return x.of(m)[2].p99 })
		verdict := judge(fmt.Sprintf("below %.1f", latencyBound), middle(numbers(us, p99)) < latencyBound)
		if few := func(m cleaningSample) bool { return x.of(m)[1].n < enough }; slices.ContainsFunc(us, few) {
			verdict += " (few latencies)"
		}
		line("… p99, during : without", "%.2f", verdict, p99)
	}
	line("keys left, their last values right", "%.0f", "–", func(m cleaningSample) float64 { return float64(m.keys) })
	line("records left, those of the loads too", "%.0f", "–", func(m cleaningSample) float64 { return float64(m.left) })
	line("used by others, cores", "%.2f", "–", func(m cleaningSample) float64 { return m.foreign })
	for _, s := range []string{name, "kafka"} {
		if all := r.samples[s]; len(all) > 0 {
			p("\nLast round, %s: %s", s, all[len(all)-1].cleaner.words)
		}
	}
}
