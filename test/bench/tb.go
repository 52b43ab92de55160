package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// tb lets a program use testkit, which speaks to a test. What fails ends the
// program by a panic with a failure, which main catches; cleanups run then.
type tb struct {
	testing.TB // only what is below may be called

	ctx      context.Context
	cleanups []func()
	failed   bool
}

// failure is the reason that Fatal gave.
type failure string

func (t *tb) Helper()                  {}
func (t *tb) Name() string             { return "bench" }
func (t *tb) Context() context.Context { return t.ctx }
func (t *tb) Failed() bool             { return t.failed }
func (t *tb) Cleanup(f func())         { t.cleanups = append(t.cleanups, f) }
func (t *tb) Logf(f string, a ...any)  { fmt.Fprintf(os.Stderr, f+"\n", a...) }

func (t *tb) Errorf(f string, a ...any) {
	t.failed = true
	t.Logf(f, a...)
}

func (t *tb) Fatalf(f string, a ...any) {
	t.failed = true
	panic(failure(fmt.Sprintf(f, a...)))
}

func (t *tb) Fatal(a ...any) { t.Fatalf("%s", strings.TrimSuffix(fmt.Sprintln(a...), "\n")) }

// cleanup runs what was registered, the newest first.
func (t *tb) cleanup() {
	for _, f := range slices.Backward(t.cleanups) {
		f()
	}
	t.cleanups = nil
}
