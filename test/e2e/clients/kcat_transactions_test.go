package clients

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"syscall"

	"github.com/hanzoai/stream/test/e2e/tools"
)

// kcatTransactor is a run of kcat for each transaction: it commits at the end of
// its input and aborts at a signal.
type kcatTransactor struct {
	k   kcat
	id  string
	cmd *exec.Cmd // of the open transaction
	in  io.WriteCloser
	log *bytes.Buffer
}

func (k kcat) transactor(_ context.Context, id string) (transactor, error) {
	return &kcatTransactor{k: k, id: id}, nil
}

func (x *kcatTransactor) send(ctx context.Context, topic string, rs []record) error {
	if x.cmd == nil {
		run := x.k.run("-P", "-t", topic, "-p", fmt.Sprint(rs[0].Partition), "-K", `\t`, "-X", "transactional.id="+x.id, "-X", "linger.ms=5")
		for _, h := range rs[0].Headers {
			run.Args = append(run.Args, "-H", h.Key+"="+string(h.Value))
		}
		x.cmd, x.log = exec.CommandContext(ctx, run.Path, run.Args...), &bytes.Buffer{}
		x.cmd.Stderr = x.log
		in, err := x.cmd.StdinPipe()
		if err != nil {
			return err
		}
		if x.in = in; x.cmd.Start() != nil {
			return fmt.Errorf("kcat does not start: %s", run.Path)
		}
	}
	var b strings.Builder
	for _, r := range rs {
		fmt.Fprintf(&b, "%s\t%s\n", r.Key, r.Value)
	}
	// It reads a kilobyte at a time and leaves out empty lines.
	b.WriteString(strings.Repeat("\n", 1024-b.Len()%1024))
	_, err := io.WriteString(x.in, b.String())
	return err
}

func (x *kcatTransactor) end(_ context.Context, commit bool) error {
	cmd := x.cmd
	x.cmd = nil
	if !commit {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			return err
		}
	}
	_ = x.in.Close() // the reading end may be gone
	err := cmd.Wait()
	if commit && err != nil {
		return kcatError(tools.Result{Stderr: x.log.String(), Code: cmd.ProcessState.ExitCode()}, err)
	}
	return nil // an abort has an exit code too
}

func (x *kcatTransactor) close(context.Context) error {
	if x.cmd == nil {
		return nil
	}
	_ = x.cmd.Process.Kill()
	_ = x.cmd.Wait()
	return nil
}

func (kcat) pipe(context.Context, pipe) error { return errLacks }
