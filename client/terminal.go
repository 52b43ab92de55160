package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// terminal says that a person is at the other end of f.
func terminal(f any) bool {
	file, ok := f.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// confirm asks before something that cannot be taken back. Without a terminal
// there is nobody to ask.
func confirm(ctx context.Context, cmd *cobra.Command, yes bool, question string) error {
	if yes {
		return nil
	}
	if !terminal(cmd.InOrStdin()) || !terminal(cmd.ErrOrStderr()) {
		return &Error{Code: Usage, Err: errors.New("this cannot be taken back, and there is no terminal to ask on"), Hint: "say --yes"}
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s [y/N] ", question)
	answer := make(chan string, 1)
	go func() { // ends with the process: a terminal's read cannot be stopped
		s, _ := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
		answer <- s
	}()
	select {
	case s := <-answer:
		switch strings.ToLower(strings.TrimSpace(s)) {
		case "y", "yes":
			return nil
		}
		return failed("", "nothing was done")
	case <-ctx.Done():
		fmt.Fprintln(cmd.ErrOrStderr())
		return failed("", "nothing was done")
	}
}

// yesFlag is for commands that ask.
func yesFlag(cmd *cobra.Command, yes *bool) {
	cmd.Flags().BoolVar(yes, "yes", false, "do not ask")
}

// progress is a line on a terminal that is written again and again.
type progress struct {
	w    io.Writer // nil: nobody looks
	last time.Time
	long int
}

// newProgress writes to stderr if that is a terminal, and stdout is not: lines
// there are progress enough.
func newProgress(cmd *cobra.Command) *progress {
	if terminal(cmd.ErrOrStderr()) && !terminal(cmd.OutOrStdout()) {
		return &progress{w: cmd.ErrOrStderr(), last: time.Now()}
	}
	return &progress{}
}

// show says how far it is, at most a few times a second.
func (p *progress) show(format string, args ...any) {
	if p.w == nil || time.Since(p.last) < 200*time.Millisecond {
		return
	}
	p.last = time.Now()
	s := fmt.Sprintf(format, args...)
	fmt.Fprintf(p.w, "\r%-*s", p.long, s)
	p.long = max(p.long, len(s))
}

// clear takes the line away.
func (p *progress) clear() {
	if p.long > 0 {
		fmt.Fprintf(p.w, "\r%*s\r", p.long, "")
		p.long = 0
	}
}
