package clients

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/hanzoai/stream/test/testkit"
)

// table is what one run has shown: docs/clients.md.
type table struct {
	kind string

	mu      sync.Mutex
	rows    map[string]map[string]string // by scenario and library: ok, n/a, FAILED
	release map[string]string            // by library
	used    map[string]string            // versions, by library
	reasons map[string]string            // by library and scenario
	failed  bool
}

func newTable(kind string) *table {
	return &table{kind: kind, rows: map[string]map[string]string{}, release: map[string]string{}, used: map[string]string{}, reasons: map[string]string{}}
}

func (tab *table) library(lib library, version string) {
	tab.mu.Lock()
	defer tab.mu.Unlock()
	tab.release[lib.name] = version
}

func (tab *table) set(lib library, scenario, what string) {
	if tab.rows[scenario] == nil {
		tab.rows[scenario] = map[string]string{}
	}
	tab.rows[scenario][lib.name] = what
}

func (tab *table) cell(lib library, scenario string, ok bool) {
	tab.mu.Lock()
	defer tab.mu.Unlock()
	if ok {
		tab.set(lib, scenario, "ok")
	} else {
		tab.set(lib, scenario, "FAILED")
		tab.failed = true
	}
}

func (tab *table) lacks(lib library, scenario, reason string) {
	tab.mu.Lock()
	defer tab.mu.Unlock()
	tab.set(lib, scenario, "n/a")
	tab.reasons[lib.name+" "+scenario] = reason
}

func (tab *table) versions(r *recorder) {
	for _, lib := range libraries {
		tab.used[lib.name] = r.versions(lib.name)
	}
}

// print writes the closing lines: per client what it really negotiated.
func (tab *table) print() {
	for _, lib := range libraries {
		n, na := 0, 0
		for _, row := range tab.rows {
			switch row[lib.name] {
			case "ok":
				n++
			case "n/a":
				na++
			}
		}
		if n > 0 {
			closing = append(closing, fmt.Sprintf("%s: %s %s: %d ok, %d n/a; %s", tab.kind, lib.name, tab.release[lib.name], n, na, tab.used[lib.name]))
		}
	}
}

// closing are the lines printed after all tests.
var closing []string

func TestMain(m *testing.M) {
	code := m.Run()
	for _, line := range closing {
		fmt.Println(line)
	}
	os.Exit(code)
}

// markdown is docs/clients.md.
func (tab *table) markdown() string {
	var b strings.Builder
	b.WriteString(`# Clients

Every scenario runs with every client in CI. The same run passes on Apache Kafka 4.3.1 (` + "`make e2e-clients BROKERS=kafka`" + `). It writes this page (` + "`make docs-clients`" + `), is compared with it, and closes with the versions of the protocol that each client used. "n/a": the client itself cannot do it; the reasons are below the table.

| Client | Language | Version |
|---|---|---|
`)
	for _, lib := range libraries {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", lib.name, lib.language, tab.release[lib.name])
	}
	b.WriteString("\n| Scenario |")
	for _, lib := range libraries {
		b.WriteString(" " + lib.name + " |")
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(libraries)) + "\n")
	for _, s := range scenarios {
		fmt.Fprintf(&b, "| %s |", s.name)
		for _, lib := range libraries {
			b.WriteString(" " + tab.rows[s.name][lib.name] + " |")
		}
		b.WriteString("\n")
	}
	b.WriteString("\n## What the scenarios check\n\n")
	for _, s := range scenarios {
		fmt.Fprintf(&b, "- %s: %s\n", s.name, s.what)
	}
	b.WriteString("\n## Why n/a\n\n")
	for _, lib := range libraries {
		for _, s := range scenarios {
			if r := tab.reasons[lib.name+" "+s.name]; r != "" {
				fmt.Fprintf(&b, "- %s, %s: %s\n", lib.name, s.name, r)
			}
		}
	}
	b.WriteString("\n## What else a client does not do\n\nIts scenarios leave this out.\n\n")
	for _, lib := range libraries {
		if notes := lib.limits.notes(); len(notes) > 0 {
			fmt.Fprintf(&b, "- %s: %s\n", lib.name, strings.Join(notes, "; "))
		}
	}
	return b.String()
}

// check compares docs/clients.md with what a whole run on stream has shown, or
// writes it with STREAM_E2E_WRITE=true.
func (tab *table) check(t *testing.T) {
	t.Helper()
	if tab.kind != "embedded" || tab.failed {
		return
	}
	for _, s := range scenarios {
		if len(tab.rows[s.name]) != len(libraries) {
			t.Logf("not a whole run: docs/clients.md is not compared")
			return
		}
	}
	path := filepath.Join(testkit.Root(), "docs/clients.md")
	got := tab.markdown()
	if os.Getenv("STREAM_E2E_WRITE") == "true" {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Error(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil || string(want) != got {
		t.Errorf("docs/clients.md is not what this run has shown (%v): make docs-clients", err)
	}
}
