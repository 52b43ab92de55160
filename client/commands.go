package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/hanzoai/stream/logging"
)

// Variable names the servers for commands without -b.
const Variable = "STREAM_BOOTSTRAP_SERVERS"

const defaultServers = "localhost:9092"

// Commands are topic, group, produce, consume and status. version is what
// brokers are told of the client's version; environ has entries of the form
// name=value, as os.Environ does.
func Commands(version string, environ []string) []*cobra.Command {
	servers := defaultServers
	for _, e := range environ {
		if v, ok := strings.CutPrefix(e, Variable+"="); ok && v != "" {
			servers = v
		}
	}
	o := &options{version: version, fallback: servers}
	return []*cobra.Command{topicCommand(o), groupCommand(o), produceCommand(o), consumeCommand(o), statusCommand(o)}
}

// options are what all commands share.
type options struct {
	version  string
	fallback string // servers if none are named
	servers  string
	timeout  time.Duration
	output   string
}

// conn is a connection to a cluster that has answered.
type conn struct {
	cl      *kgo.Client
	adm     *kadm.Client
	seeds   []string
	base    []kgo.Opt // of cl
	reached bool      // a broker has answered
	astray  astray
}

// action is what a command does with a cluster. ctx ends with Ctrl-C.
type action func(ctx context.Context, c *conn, cmd *cobra.Command, args []string) error

// bind gives cmd the flags of all commands that ask a server and lets it run
// do, which checks what was typed and says what to do. Commands that answer
// with one document also get -o.
func (o *options) bind(cmd *cobra.Command, document bool, do func(cmd *cobra.Command, args []string) (action, error)) {
	o.bare(cmd, document, func(cmd *cobra.Command, args []string) (func(context.Context) error, error) {
		do, err := do(cmd, args)
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context) error {
			c, err := o.connect(ctx, cmd)
			if err != nil {
				return err
			}
			defer c.cl.Close()
			return c.classify(do(ctx, c, cmd, args))
		}, nil
	})
}

// bare is bind for a command that does not speak Kafka's protocol.
func (o *options) bare(cmd *cobra.Command, document bool, do func(cmd *cobra.Command, args []string) (func(ctx context.Context) error, error)) {
	fs := cmd.Flags()
	fs.StringVarP(&o.servers, "bootstrap-server", "b", "", "`host:port` of the server, several separated by commas (variable "+Variable+", default "+defaultServers+")")
	fs.DurationVar(&o.timeout, "timeout", 30*time.Second, "how long the server may take to answer")
	if document {
		fs.StringVarP(&o.output, "output", "o", "table", "table, json or yaml")
		complete(cmd, "output", "table", "json", "yaml")
	}
	fs.SortFlags = false
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if document && !slices.Contains([]string{"table", "json", "yaml"}, o.output) {
			return usage(cmd, "-o %q: table, json or yaml is wanted", logging.Printable(o.output))
		}
		if o.timeout <= 0 {
			return usage(cmd, "--timeout %v: more than nothing is wanted", o.timeout)
		}
		do, err := do(cmd, args)
		if err != nil {
			return err
		}
		// Else a write to a closed pipe kills the process: head would look like
		// a failure.
		signal.Ignore(syscall.SIGPIPE)
		ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		defer context.AfterFunc(ctx, stop)() // a second Ctrl-C ends at once
		err = do(ctx)
		switch {
		case closedPipe(err):
			return nil
		case err != nil && ctx.Err() != nil && errors.Is(err, context.Canceled):
			return failed("", "interrupted")
		}
		return err
	}
}

// connect makes a client and has a broker answer.
func (o *options) connect(ctx context.Context, cmd *cobra.Command) (*conn, error) {
	c := &conn{seeds: o.seeds()}
	if len(c.seeds) == 0 {
		return nil, usage(cmd, "no server is named")
	}
	for _, s := range c.seeds {
		if !address(s) {
			return nil, usage(cmd, "%q is no host:port", logging.Printable(s))
		}
	}
	c.base = []kgo.Opt{
		kgo.SeedBrokers(c.seeds...),
		kgo.ClientID("stream"),
		kgo.SoftwareNameAndVersion("stream", o.version),
		kgo.RetryTimeout(o.timeout),
		kgo.MetadataMinAge(250 * time.Millisecond), // what is new is looked for soon
		kgo.DialTimeout(min(o.timeout, 10*time.Second)),
		kgo.WithHooks(&c.astray),
	}
	cl, err := kgo.NewClient(c.base...)
	if err != nil {
		return nil, usage(cmd, "%w", err)
	}
	c.cl, c.adm = cl, kadm.NewClient(cl)
	c.adm.SetTimeoutMillis(int32(min(o.timeout.Milliseconds(), 1<<30)))
	ping, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	if err := cl.Ping(ping); err != nil {
		cl.Close()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		// Whatever it was: nobody there spoke Kafka.
		return nil, &Error{Code: Unreachable, Err: fmt.Errorf("no answer from %s: %w", strings.Join(c.seeds, ","), cause(err)), Hint: c.hint(err)}
	}
	c.reached = true
	return c, nil
}

// client makes another client of the same cluster, to produce or consume with.
func (c *conn) client(opts ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append(slices.Clone(c.base), opts...)...)
}

func (o *options) seeds() []string {
	servers := o.servers
	if servers == "" {
		servers = o.fallback
	}
	return strings.FieldsFunc(servers, func(r rune) bool { return r == ',' || r == ' ' })
}

// address takes host, host:port and [IPv6]:port.
func address(s string) bool {
	if !strings.Contains(s, ":") || net.ParseIP(s) != nil {
		return true
	}
	host, port, err := net.SplitHostPort(s)
	n, perr := strconv.ParseUint(port, 10, 16)
	return err == nil && perr == nil && host != "" && n > 0
}

// within bounds questions that end by themselves.
func (o *options) within(do action) action {
	return func(ctx context.Context, c *conn, cmd *cobra.Command, args []string) error {
		ctx, cancel := context.WithTimeout(ctx, o.timeout)
		defer cancel()
		return do(ctx, c, cmd, args)
	}
}

// ask is bind for a command that needs no more than its flags.
func (o *options) ask(cmd *cobra.Command, do action) {
	o.bind(cmd, true, func(*cobra.Command, []string) (action, error) { return o.within(do), nil })
}

// names wants at least one argument, or no more than most if that is not 0.
func names(what string, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) == 0:
			return usage(cmd, "the name of a %s is missing", what)
		case most > 0 && len(args) > most:
			return usage(cmd, "unexpected argument %q", logging.Printable(args[most]))
		case slices.Contains(args, ""):
			return usage(cmd, "a %s with an empty name", what)
		}
		return nil
	}
}

func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usage(cmd, "unexpected argument %q", logging.Printable(args[0]))
	}
	return nil
}
