package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/hanzoai/stream/client"
	"github.com/hanzoai/stream/logging"
)

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1 // it was tried and failed
	exitUsage  = 2 // wrong flags or configuration
	exitStore  = 3 // NATS unreachable, too old, without JetStream, or not ours; for a client command: no broker answers
)

// exitError is an error with the exit code and the remedy.
type exitError struct {
	code int
	err  error
	hint string // what to do next; may be empty
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

func usageError(msg, hint string) error {
	return &exitError{code: exitUsage, err: errors.New(msg), hint: hint}
}

// report writes err for a person and returns the exit code: one line that says
// what is wrong, one that says what to do.
func report(stderr io.Writer, err error) int {
	if err == nil {
		return exitOK
	}
	code, hint := exitFailed, ""
	if e := (*exitError)(nil); errors.As(err, &e) {
		code, hint = e.code, e.hint
	}
	if e := (*client.Error)(nil); errors.As(err, &e) {
		code, hint = e.Code, e.Hint
	}
	oneLine := func(s string) string {
		return logging.RedactURLs(strings.Join(strings.Fields(s), " "))
	}
	if msg := oneLine(err.Error()); msg != "" {
		fmt.Fprintf(stderr, "stream: %s\n", msg)
	}
	if hint != "" {
		fmt.Fprintf(stderr, "hint: %s\n", oneLine(hint))
	}
	return code
}
