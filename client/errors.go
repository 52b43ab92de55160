package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/hanzoai/stream/logging"
)

// Exit codes.
const (
	Failed      = 1 // it was tried and failed, wholly or in part
	Usage       = 2 // wrong flags or arguments: nothing was tried
	Unreachable = 3 // no broker answers
)

// Error is how a command ends that was not done.
type Error struct {
	Code int    // Failed, Usage or Unreachable
	Err  error  // what is wrong, one line
	Hint string // what to do about it, may be empty
}

// Error implements error.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap gives errors.Is and errors.As what is wrong.
func (e *Error) Unwrap() error { return e.Err }

// usage is wrong use; cmd is where help is to be had.
func usage(cmd *cobra.Command, format string, args ...any) *Error {
	return &Error{Code: Usage, Err: fmt.Errorf(format, args...), Hint: "see " + cmd.CommandPath() + " --help"}
}

// failed is something that was tried.
func failed(hint, format string, args ...any) *Error {
	return &Error{Code: Failed, Err: fmt.Errorf(format, args...), Hint: hint}
}

// refusal puts what a broker said into one line: Kafka's name of the error, and
// the broker's own words where it sent some.
func refusal(err error, message string) string {
	k := (*kerr.Error)(nil)
	if !errors.As(err, &k) {
		return err.Error()
	}
	if message = strings.TrimSpace(message); message != "" {
		return k.Message + ": " + logging.Printable(message)
	}
	return k.Message + ": " + k.Description
}

// classify makes the error of a request into the error of a command.
func (c *conn) classify(err error) error {
	own, k := (*Error)(nil), (*kerr.Error)(nil)
	switch {
	case err == nil || errors.As(err, &own):
		return err
	case errors.As(err, &k):
		return failed("", "%s", refusal(err, ""))
	case unreachable(err):
		return &Error{Code: Unreachable, Err: fmt.Errorf("no answer from %s: %w", strings.Join(c.seeds, ","), cause(err)), Hint: c.hint(err)}
	}
	return failed("", "%w", err)
}

// partly lets what some brokers have answered stand, with the reason why others
// have not; any other error is returned.
func partly(err error) (missing string, _ error) {
	s := (*kadm.ShardErrors)(nil)
	if !errors.As(err, &s) || s.AllFailed || len(s.Errs) == 0 {
		return "", err
	}
	return fmt.Sprintf("no answer from %d of the brokers, first %d: %s", len(s.Errs), s.Errs[0].Broker.NodeID, refusal(s.Errs[0].Err, "")), nil
}

// cause picks one of the errors of several brokers: they make no readable line
// together.
func cause(err error) error {
	if s := (*kadm.ShardErrors)(nil); errors.As(err, &s) && len(s.Errs) > 0 {
		return s.Errs[0].Err
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return errors.New("timed out")
	}
	return err
}

func unreachable(err error) bool {
	op, dns := (*net.OpError)(nil), (*net.DNSError)(nil)
	eof := (*kgo.ErrFirstReadEOF)(nil)
	return errors.As(err, &op) || errors.As(err, &dns) || errors.As(err, &eof) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// hint tells a server that is not there from one that sends its clients to an
// address where it is not.
func (c *conn) hint(err error) string {
	op := (*net.OpError)(nil)
	if !errors.As(err, &op) && errors.Is(err, context.DeadlineExceeded) {
		op = c.astray.last.Load() // the time was over while it was tried again
	}
	if c.reached && op != nil && op.Op == "dial" {
		return "the server answers, but tells its clients to connect to " + addrOf(op) + ", which cannot be reached from here: see its --host and --advertised-address"
	}
	return "is the server running there? name it with -b host:port or STREAM_BOOTSTRAP_SERVERS"
}

// astray remembers whether the last connection to a broker, as the cluster names
// it, could not be opened.
type astray struct{ last atomic.Pointer[net.OpError] }

// OnBrokerConnect implements kgo.HookBrokerConnect.
func (a *astray) OnBrokerConnect(m kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	if m.NodeID < 0 {
		return // a server that the user has named
	}
	op := (*net.OpError)(nil)
	if errors.As(err, &op) && errors.Is(err, context.Canceled) {
		return // we have given up, not the server
	}
	a.last.Store(op)
}

func addrOf(op *net.OpError) string {
	if op.Addr == nil {
		return "another address"
	}
	return op.Addr.String()
}

// closedPipe says that the reader of stdout has gone, as head does: there is
// nobody to tell.
func closedPipe(err error) bool {
	return errors.Is(err, syscall.EPIPE) || errors.Is(err, io.ErrClosedPipe)
}
