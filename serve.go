package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/hanzoai/stream/admin"
	"github.com/hanzoai/stream/broker/partition"
	"github.com/hanzoai/stream/logging"
	"github.com/hanzoai/stream/pubsub"
)

func serveCommand(cmd *cobra.Command, environ []string) error {
	l, err := loadConfig(cmd, environ)
	check, _ := cmd.Flags().GetBool("check-config")
	if err != nil || check {
		for _, w := range l.warnings {
			fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s\n", oneLine(w))
		}
		if err == nil {
			fmt.Fprintln(cmd.OutOrStdout(), "configuration ok")
		}
		return err
	}
	level, err := logging.ParseLevel(l.LogLevel)
	if err != nil {
		return usageError(err.Error(), "")
	}
	logger := logging.New(cmd.ErrOrStderr(), logging.Options{
		Format: l.LogFormat, Level: level, Burst: logging.DefaultBurst, Window: logging.DefaultWindow,
	})
	ctx, stop := untilSignal(cmd.Context(), logger)
	defer stop()
	mem := readMemory()
	l.resolve(mem)
	tuner := mem.apply()
	defer tuner.stop()
	b := readBuild()
	s := &server{
		config: l, build: b, logger: logger, stdout: cmd.OutOrStdout(),
		registry: admin.NewRegistry(b.Version, b.Commit, b.GoVersion),
	}
	s.open = func(ctx context.Context, l *loaded, logger *slog.Logger, reg prometheus.Registerer) (opened, error) {
		return openStore(ctx, l, logger, reg, s.waitsFor)
	}
	s.gateway = func(ctx context.Context, l *loaded, store pubsub.Store, a advertised, logger *slog.Logger, reg prometheus.Registerer) (gateway, error) {
		return openGateway(ctx, l, store, a, logger, reg, s.waitsFor, tuner.compacting)
	}
	return s.run(ctx)
}

// sameSignal is how close to the first a signal is still the same one: timeout
// and some supervisors send one to the process and one to its group.
const sameSignal = 250 * time.Millisecond

// untilSignal ends the context at the first SIGINT or SIGTERM and the process
// at the second.
func untilSignal(ctx context.Context, logger *slog.Logger) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	done := make(chan struct{})
	go func() {
		var first time.Time
		for {
			select {
			case <-done:
				return
			case s := <-signals:
				switch {
				case first.IsZero():
					first = time.Now()
					logger.Info("stopping", "signal", s.String())
					cancel()
				case time.Since(first) > sameSignal:
					logger.Error("stopped by a second signal", "signal", s.String())
					os.Exit(exitFailed)
				}
			}
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(done)
		cancel()
	}
}

// gateway is the Kafka side on an open store.
type gateway interface {
	// Serve takes connections from l until Shutdown, then returns nil.
	Serve(ctx context.Context, l net.Listener) error
	// Leaving tells other gateways, and through them clients, to send nothing new
	// here. It still serves.
	Leaving(ctx context.Context)
	// Shutdown closes listeners, answers long polls early, finishes produces
	// and hands over what this gateway owns.
	Shutdown(ctx context.Context)
	// Close ends what is left.
	Close(ctx context.Context)
	// Failed delivers the error of a part that cannot go on.
	Failed() <-chan error
	// Ready reports whether everything can be served, or why not.
	Ready() (ok bool, reasons []string)
	// Facts are what status shows.
	Facts() facts
	Topics(ctx context.Context, name string) ([]admin.Topic, error)
	Offsets(ctx context.Context, group, topic string) ([]admin.Offset, error)
	Cleaner(ctx context.Context) admin.Compaction
	Compaction(ctx context.Context, topic string) (admin.TopicCompaction, error)
	Compact(ctx context.Context, topic string) (admin.TopicCompaction, error)
}

// facts are what a running gateway knows about itself.
type facts struct {
	ClusterID string
	NodeID    int32
	Gateways  []admin.Gateway
	Late      []admin.LateTransaction
}

// server is one run of the process, from sockets to the end of the drain.
type server struct {
	config   *loaded
	build    build
	logger   *slog.Logger
	stdout   io.Writer
	registry *prometheus.Registry
	// open and gateway make the parts below; they differ in tests only.
	open    func(context.Context, *loaded, *slog.Logger, prometheus.Registerer) (opened, error)
	gateway func(context.Context, *loaded, pubsub.Store, advertised, *slog.Logger, prometheus.Registerer) (gateway, error)

	started     time.Time
	kafka, http []net.Listener

	mu       sync.Mutex // guards: the rest
	store    pubsub.Store
	gw       gateway
	durable  durability
	warnings []string
	lacks    func() string // see opened
	waiting  string        // what the start waits for; "" if for nothing in particular
	draining bool
}

// run opens sockets first, so that a taken port costs nothing; then the store,
// the gateway and the wire; then it waits for ctx or a failure and drains.
func (s *server) run(ctx context.Context) (err error) {
	s.started = time.Now()
	for _, w := range s.config.warnings {
		s.warn(w)
	}
	if s.kafka, err = listenAll(ctx, "bind", "port", s.config.Bind, s.config.Port); err != nil {
		return err
	}
	for i, l := range s.kafka {
		s.kafka[i] = newWaitingRoom(l, startHold)
	}
	defer closeAll(s.kafka)
	failed := make(chan error, 8)
	var serving sync.WaitGroup
	defer serving.Wait()
	serve := func(f func() error) {
		serving.Go(func() {
			if err := f(); err != nil {
				failed <- err
			}
		})
	}
	if s.config.AdminPort != 0 {
		if s.http, err = listenAll(ctx, "admin-bind", "admin-port", s.config.AdminBind, s.config.AdminPort); err != nil {
			return err
		}
		// Probes are answered from the start: recovery of a large store may
		// take minutes.
		web := admin.New(admin.Config{
			MaxHeaderBytes: int(s.config.AdminHeader), MaxBodyBytes: int64(s.config.AdminBody), Timeout: s.config.AdminTime,
		}, s, s.registry, s.logger)
		for _, l := range s.http {
			serve(func() error { return web.Serve(l) })
		}
		defer func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			if err := web.Shutdown(ctx); err != nil {
				s.logger.Debug("http connections were cut", logging.Error, err)
			}
		}()
	}

	o, err := s.open(ctx, s.config, s.logger, s.registry)
	if err != nil {
		return s.unlessStopped(ctx, err)
	}
	defer o.close()
	for _, w := range o.warnings {
		s.warn(w)
	}
	store := o.store
	s.mu.Lock()
	s.lacks = o.lacks
	s.store = store
	s.durable = durabilityOf(s.config, store.Info().MaxReplicas)
	s.mu.Unlock()
	s.fitMessageSize(store.Info())

	gw, err := s.gateway(ctx, s.config, store, s.config.advertise(portOf(s.kafka[0])), s.logger, s.registry)
	if err != nil {
		return s.unlessStopped(ctx, err)
	}
	s.mu.Lock()
	s.gw = gw
	s.mu.Unlock()
	wire := context.WithoutCancel(ctx)
	for _, l := range s.kafka {
		serve(func() error { return gw.Serve(wire, l) })
	}
	openCluster := ""
	if s.config.ClusterSecret.IsZero() && s.config.ClusterSecretFile == "" {
		openCluster = s.config.ClusterListen
	}
	for _, w := range openWarnings(s.kafka, s.http, s.config.NATSListen, openCluster) {
		s.warn(w)
	}
	if err := s.announce(o.natsURL); err != nil {
		s.logger.Warn("banner not written", logging.Error, err)
	}

	select {
	case <-ctx.Done():
	case err = <-failed:
	case err = <-gw.Failed():
		err = brokerError(err)
	}
	if err != nil {
		s.logger.Error("stopping after a failure", logging.Error, err)
	}
	s.drain(gw)
	return err
}

// unlessStopped makes a start that was interrupted by a signal a clean end.
func (s *server) unlessStopped(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		s.logger.Info("stopped while starting", logging.Error, err)
		return nil
	}
	return err
}

// aloneFor is how long a node of a cluster that stops may be without a majority:
// then nobody is left to hand anything over to, as when all nodes are stopped.
const aloneFor = 2 * time.Second

// unlessAlone cuts the grace period short for a node that stays without a majority.
func (s *server) unlessAlone(stopped <-chan struct{}, cut func()) {
	s.mu.Lock()
	lacks := s.lacks
	s.mu.Unlock()
	if lacks == nil {
		return
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for since := time.Now(); time.Since(since) < aloneFor; {
		select {
		case <-stopped:
			return
		case <-tick.C:
			if lacks() == "" {
				since = time.Now()
			}
		}
	}
	s.logger.Info("stopping at once: "+lacks(), "alone_for", aloneFor.String())
	cut()
}

// drain ends the gateway within the grace period.
func (s *server) drain(gw gateway) {
	began := time.Now()
	s.mu.Lock()
	s.draining = true
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), s.config.ShutdownGrace)
	defer cancel()
	stopped := make(chan struct{})
	defer close(stopped)
	go s.unlessAlone(stopped, cancel)
	gw.Leaving(ctx)
	if s.config.ShutdownDelay > 0 {
		delay := time.NewTimer(s.config.ShutdownDelay)
		defer delay.Stop()
		select {
		case <-delay.C:
		case <-ctx.Done():
		}
	}
	gw.Shutdown(ctx)
	closeAll(s.kafka) // also one whose Serve had not begun
	gw.Close(ctx)
	level := slog.LevelInfo
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		level = slog.LevelWarn
	}
	s.logger.Log(context.Background(), level, "stopped", "within_grace", ctx.Err() == nil, "took", time.Since(began).Round(time.Millisecond).String())
}

// waitsFor keeps what the start waits for, for the probes, and logs it; "" when it
// goes on.
func (s *server) waitsFor(what string) {
	what = logging.RedactURLs(what)
	s.mu.Lock()
	s.waiting = what
	s.mu.Unlock()
	if what != "" {
		s.logger.Info(what)
	}
}

// warn keeps a warning for status and banner and logs it.
func (s *server) warn(w string) {
	s.mu.Lock()
	s.warnings = append(s.warnings, w)
	s.mu.Unlock()
	s.logger.Warn(w)
}

// fitMessageSize lowers message.max.bytes to what the store can take.
func (s *server) fitMessageSize(info pubsub.Info) {
	if most := byteSize(info.MaxPayload - partition.StorageRoom); info.MaxPayload > 0 && s.config.MaxMessage > most {
		s.warn(fmt.Sprintf("message.max.bytes is %d instead of %d: the NATS server takes messages of %d bytes (max_payload); 8 MiB is a good value there",
			most, int64(s.config.MaxMessage), info.MaxPayload))
		s.config.MaxMessage = max(most, 0)
	}
}

// announce prints the banner and logs the same facts.
func (s *server) announce(natsURL string) error {
	s.mu.Lock()
	b := banner{version: s.build.Version, durability: s.durable, warnings: s.warnings}
	info := s.store.Info()
	s.mu.Unlock()
	a := s.config.advertise(portOf(s.kafka[0]))
	b.bootstrap = []string{a.here(s.kafka[0])}
	if len(s.http) > 0 {
		b.http = "http://" + reachable(s.http[0], cmp.Or(a.Host, "localhost")) + "/v1/stream/"
	}
	b.store = fmt.Sprintf("NATS %s at %s, streams %s-*", info.Version, logging.RedactURLs(info.URL), s.config.Prefix)
	if !s.config.external() {
		where := s.config.DataDir
		if s.config.Storage == "memory" && !s.config.clustered() {
			where = "memory"
		}
		b.store = fmt.Sprintf("embedded NATS %s, %s", info.Version, where)
		if s.config.clustered() {
			b.store = fmt.Sprintf("embedded NATS %s, one of %d nodes of cluster %s, %s", info.Version, s.config.clusterSize(), s.config.ClusterName, where)
		}
		b.nats = natsURL
	}
	s.logger.Info("serving", "version", b.version, "commit", s.build.Commit, "bootstrap.servers", b.bootstrap[0], "http", b.http,
		"store", b.store, "durability", b.durability.Level, "durability_sentence", b.durability.Sentence,
		"message.max.bytes", int64(s.config.MaxMessage), "max_payload", info.MaxPayload,
		"start_ms", time.Since(s.started).Milliseconds())
	return b.write(s.stdout)
}
