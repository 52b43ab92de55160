package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hanzoai/stream/client"
	"github.com/hanzoai/stream/logging"
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Environ(), os.Stdout, os.Stderr))
}

// run is the whole program; it returns the exit code.
func run(ctx context.Context, args, environ []string, stdout, stderr io.Writer) int {
	root := newRoot(environ)
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	return report(stderr, root.ExecuteContext(ctx))
}

func newRoot(environ []string) *cobra.Command {
	root := &cobra.Command{
		Use:   "stream",
		Short: "A Kafka server that stores everything in NATS JetStream",
		Long: "stream speaks the Kafka protocol on :9092, HTTP on :9093, and stores topics, records, groups\n" +
			"and offsets in NATS JetStream: an embedded server by default, yours with --pubsub-url.\n" +
			"Without a command it serves, as `stream serve`.",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          noArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return serveCommand(cmd, environ) },
	}
	bindServe(root)
	serve := &cobra.Command{
		Use:   "serve",
		Short: "Start the server (the default)",
		Args:  noArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return serveCommand(cmd, environ) },
	}
	bindServe(serve)
	version := &cobra.Command{
		Use:   "version",
		Short: "Print version, commit and Go version",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b := readBuild()
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "stream %s (commit %s, %s)\n", b.Version, b.Commit, b.GoVersion)
			return err
		},
	}
	root.AddCommand(serve, repairCommand(environ), doctorCommand(environ), configCommand(environ), version)
	for _, c := range client.Commands(readBuild().Version, environ) {
		onlySubcommands(c)
		root.AddCommand(c)
	}
	root.SetFlagErrorFunc(flagError)
	return root
}

func bindServe(cmd *cobra.Command) {
	bindFlags(cmd)
	cmd.Flags().Bool("check-config", false, "print every problem of the configuration and exit 0 or 2")
}

// onlySubcommands makes a command that only holds others show its help, and
// refuse what it does not know with the nearest name.
func onlySubcommands(cmd *cobra.Command) {
	if cmd.HasSubCommands() {
		cmd.Args = noArgs
		cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	}
	for _, c := range cmd.Commands() {
		onlySubcommands(c)
	}
}

// noArgs refuses arguments and names the nearest command.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	arg := logging.Printable(args[0])
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	if len(names) == 0 {
		return usageError(fmt.Sprintf("unexpected argument %q", arg), helpHint(cmd))
	}
	return usageError(fmt.Sprintf("unknown command %q for %s", arg, cmd.CommandPath()),
		fmt.Sprintf("did you mean %q? %s", nearest(arg, names), helpHint(cmd)))
}

// loadConfig reads the configuration of a command and prints its warnings. All
// problems make one error.
func loadConfig(cmd *cobra.Command, environ []string) (*loaded, error) {
	l := load(cmd.Flags(), environ)
	if len(l.problems) == 0 {
		return l, nil
	}
	for _, p := range l.problems {
		fmt.Fprintf(cmd.ErrOrStderr(), "stream: %s\n", oneLine(p))
	}
	n := fmt.Sprintf("%d problems", len(l.problems))
	if len(l.problems) == 1 {
		n = "1 problem"
	}
	return l, usageError("configuration: "+n, "every key is explained in docs/config.md and by stream serve --help")
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
