package jetstream

import (
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"runtime"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
)

// Config says where the store is and how hard to use it. Either URL or
// InProcess is required; zero values take the defaults named.
type Config struct {
	// URL holds one or more server URLs, comma separated.
	URL string
	// InProcess connects to an embedded server instead.
	InProcess nats.InProcessConnProvider
	// Alone says that nobody but this Store can append: an embedded server that
	// no other process can reach. Streams then send no news, see news.go.
	Alone bool
	// Servers is how many servers form the cluster, if that is known; 0: the
	// server is asked, which cannot always tell.
	Servers int
	// HasRoom reports whether writes are allowed; without room they are refused
	// with pubsub.ErrFull before anything is sent. nil: always.
	HasRoom func() bool
	// Disk tells the folder of an embedded server, the bytes of its disk and how
	// many of them may still be written. nil: the account's limits count.
	Disk func() (dir string, total, free int64, err error)
	// Options are logins and TLS, see LoginOptions.
	Options []nats.Option
	// Domain is the JetStream domain, "" for none.
	Domain string
	// Name is shown by NATS tools beside our connections; default "stream".
	Name string
	// Prefix ([A-Za-z0-9_]+, default "kafka") separates several users of one
	// account; here it only names the subjects of news.
	Prefix string
	// Logger receives connection losses and async errors; nil discards them.
	Logger *slog.Logger
	// Registerer receives the stream_nats_* metrics; nil keeps none.
	Registerer prometheus.Registerer

	// AckTimeout is how long an append or a set waits for its acknowledgement
	// (default 5 s).
	AckTimeout time.Duration
	// APITimeout bounds each JetStream API call beside ctx (default 5 s; lists
	// and creations, which a cluster may answer late, get three times as long).
	APITimeout time.Duration
	// ReadTimeout is the longest silence within a read (default 5 s).
	ReadTimeout time.Duration
	// MaxAPIInflight caps concurrent JetStream API calls (default 512): the
	// server drops its whole queue when that overflows.
	MaxAPIInflight int
	// ReadBudget caps the bytes asked for and not yet received, per read
	// connection (default 32 MiB).
	ReadBudget int
	// AppendConns and ReadConns are numbers of connections, since one is served
	// by one loop in the server (default: half of GOMAXPROCS, 1 to 4).
	AppendConns, ReadConns int
}

var prefixRE = regexp.MustCompile(`^[A-Za-z0-9_]+$`)

func (c Config) withDefaults() (Config, error) {
	def := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	def(&c.AckTimeout, 5*time.Second)
	def(&c.APITimeout, 5*time.Second)
	def(&c.ReadTimeout, 5*time.Second)
	conns := min(4, max(1, runtime.GOMAXPROCS(0)/2))
	for _, n := range []struct {
		p *int
		v int
	}{{&c.MaxAPIInflight, 512}, {&c.ReadBudget, 32 << 20}, {&c.AppendConns, conns}, {&c.ReadConns, conns}} {
		if *n.p <= 0 {
			*n.p = n.v
		}
	}
	if c.Name == "" {
		c.Name = "stream"
	}
	if c.Prefix == "" {
		c.Prefix = "kafka"
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	var errs []error
	if !prefixRE.MatchString(c.Prefix) {
		errs = append(errs, fmt.Errorf("prefix %q: only letters, digits and _ are allowed", c.Prefix))
	}
	if (c.URL == "") == (c.InProcess == nil) {
		errs = append(errs, errors.New("give either a URL or an in-process server"))
	}
	return c, errors.Join(errs...)
}

// newsRoot is prepended to a log's subject to get the subject of its news. The
// prefix is part of it because two users of one account may exist.
func (c Config) newsRoot() string { return c.Prefix + "-news." }

// apiPrefix is what JetStream API subjects begin with.
func (c Config) apiPrefix() string {
	if c.Domain != "" {
		return "$JS." + c.Domain + ".API."
	}
	return "$JS.API."
}
