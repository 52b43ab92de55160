package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/hanzoai/stream/logging"
	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/pubsub/embedded"
	"github.com/hanzoai/stream/pubsub/jetstream"
)

// openStore starts the embedded NATS server, or none, and connects. A node of a
// cluster waits for a majority, as long as ctx lasts, and says so to waitsFor.
func openStore(ctx context.Context, l *loaded, logger *slog.Logger, reg prometheus.Registerer, waitsFor func(string)) (o opened, err error) {
	var srv *embedded.Server
	if !l.external() {
		if srv, err = startEmbedded(ctx, l, logger); err != nil {
			return opened{}, err
		}
		if err = srv.AwaitMajority(ctx, waitsFor); err != nil {
			srv.Stop()
			return opened{}, err
		}
	}
	store, err := connect(ctx, l, srv, logger, reg)
	for l.clustered() && errors.Is(err, jetstream.ErrUnreachable) && ctx.Err() == nil {
		waitsFor("waiting for the cluster: " + err.Error()) // it lost its leader again
		store, err = connect(ctx, l, srv, logger, reg)
	}
	if err != nil {
		if srv != nil {
			srv.Stop()
		}
		return opened{}, err
	}
	o = opened{store: store, warnings: store.Warnings(), close: func() {
		store.Close()
		if srv != nil {
			srv.Stop()
		}
	}}
	if srv != nil {
		o.natsURL = srv.ClientURL()
		if l.clustered() {
			o.lacks = srv.Waiting
		}
	}
	return o, nil
}

// openForTools opens the store for a command that looks at it. Of logs only
// warnings are shown.
func openForTools(ctx context.Context, l *loaded, stderr io.Writer) (st *jetstream.Store, stop func(), err error) {
	level := slog.LevelWarn
	if l.isSet("log-level") {
		if level, err = logging.ParseLevel(l.LogLevel); err != nil {
			return nil, nil, usageError(err.Error(), "")
		}
	}
	logger := logging.New(stderr, logging.Options{Format: "text", Level: level})
	if l.clustered() {
		return nil, nil, &exitError{code: exitStore, err: errors.New("a cluster is looked at while its nodes run"),
			hint: "start a node with --nats-listen 127.0.0.1:4222 and name it here with --pubsub-url nats://127.0.0.1:4222, without --cluster-listen and --cluster-peers"}
	}
	var srv *embedded.Server
	if !l.external() {
		if srv, err = startEmbedded(ctx, l, logger); err != nil {
			if errors.Is(err, embedded.ErrLocked) {
				err = &exitError{code: exitStore, err: err,
					hint: "stop that server first, or start it with --nats-listen 127.0.0.1:4222 and name it here with --pubsub-url nats://127.0.0.1:4222"}
			}
			return nil, nil, err
		}
	}
	if st, err = connect(ctx, l, srv, logger, nil); err != nil {
		if srv != nil {
			srv.Stop()
		}
		return nil, nil, err
	}
	return st, func() {
		st.Close()
		if srv != nil {
			srv.Stop()
		}
	}, nil
}

// opened is a store that is ready.
type opened struct {
	store    pubsub.Store
	natsURL  string // for NATS clients of the embedded server; "" if it does not listen
	warnings []string
	// lacks is what a node of a cluster waits for to take part in it, "" if nothing;
	// nil without a cluster.
	lacks func() string
	close func() // ends the connection and the embedded server
}

func connect(ctx context.Context, l *loaded, srv *embedded.Server, logger *slog.Logger, reg prometheus.Registerer) (*jetstream.Store, error) {
	c := jetstream.Config{
		Prefix: l.Prefix, Logger: logger.With(logging.Component, "jetstream"), Registerer: reg,
		MaxAPIInflight: l.MaxAPIInflight,
	}
	if srv != nil {
		c.InProcess, c.Disk, c.Alone = srv, srv.Disk, srv.Alone()
		if l.clustered() {
			// The other nodes' disks count as much as ours.
			c.Servers = l.clusterSize()
		} else {
			c.HasRoom = srv.HasRoom
		}
	} else {
		in, err := login(l)
		if err != nil {
			return nil, &exitError{code: exitUsage, err: err}
		}
		c.URL, c.Options, c.Domain = in.URL, in.Options, in.Domain
	}
	store, err := jetstream.Connect(ctx, c)
	if err == nil {
		return store, nil
	}
	e := &exitError{code: exitFailed, err: err}
	if start := (*jetstream.StartError)(nil); errors.As(err, &start) {
		e.code, e.hint = exitStore, start.Hint
		e.err = fmt.Errorf("%w at %s", start.Reason, start.URL)
		if start.Detail != "" {
			e.err = fmt.Errorf("%w: %s", e.err, start.Detail)
		}
	}
	return nil, e
}

// login makes URL and options of the connection to an external server.
func login(l *loaded) (jetstream.Access, error) {
	in := jetstream.Login{
		Creds: l.PubsubCreds, NKey: l.NATSNKey, TLSCA: l.NATSTLSCA, TLSCert: l.NATSTLSCert, TLSKey: l.NATSTLSKey, Context: l.NATSContext,
	}
	if l.NATSPasswordFile == "" {
		in.User, in.Password = l.NATSUser, l.NATSPassword.Reveal()
	}
	a, err := jetstream.LoginOptions(in)
	if err != nil {
		return jetstream.Access{}, err
	}
	if l.NATSPasswordFile != "" {
		if _, err := readSecret("nats-password-file", l.NATSPasswordFile); err != nil {
			return jetstream.Access{}, err
		}
		// Read at every connect: a changed password needs no restart.
		a.Options = append(a.Options, nats.UserInfoHandler(func() (string, string) {
			password, _ := readSecret("nats-password-file", l.NATSPasswordFile) // the server refuses an empty one
			return l.NATSUser, password
		}))
	}
	if l.PubsubURL != "" {
		a.URL = l.PubsubURL
	}
	if a.URL == "" {
		return jetstream.Access{}, fmt.Errorf("nats-context %s names no URL: set pubsub-url", l.NATSContext)
	}
	return a, nil
}

// readSecret reads a file that holds one secret and perhaps a line end.
func readSecret(key, path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("%s: %w", key, err)
	}
	defer func() { _ = f.Close() }() // only read from
	b, err := io.ReadAll(io.LimitReader(f, 64<<10))
	if err != nil {
		return "", fmt.Errorf("%s: %w", key, err)
	}
	return strings.TrimRight(string(b), "\r\n"), nil
}

func startEmbedded(ctx context.Context, l *loaded, logger *slog.Logger) (*embedded.Server, error) {
	c, err := l.cluster()
	if err != nil {
		return nil, &exitError{code: exitUsage, err: err}
	}
	name := ""
	if c != nil && l.NodeID > 0 {
		name = fmt.Sprintf("stream-%d", l.NodeID)
	}
	srv, err := embedded.Start(ctx, embedded.Config{
		Dir:          l.DataDir,
		Memory:       l.Storage == "memory" && !l.isSet("data-dir") && c == nil,
		ServerName:   name,
		Cluster:      c,
		SyncAlways:   l.Sync.Always,
		SyncInterval: l.Sync.Interval,
		Listen:       l.NATSListen,
		Logger:       logger,
	})
	if err == nil {
		return srv, nil
	}
	e := &exitError{code: exitFailed, err: err}
	switch {
	case errors.Is(err, embedded.ErrLocked):
		e.hint = "stop that process, or give this one a folder of its own with --data-dir"
	case errors.Is(err, embedded.ErrFolder):
		e.hint = "make the folder writable for this user, or choose another with --data-dir"
	case errors.Is(err, embedded.ErrListen):
		e.hint = "choose another address with --nats-listen or --cluster-listen"
	case errors.Is(err, embedded.ErrOtherUse):
		e.hint = "give this server a folder of its own with --data-dir, or start it as it was: with --cluster-listen and --cluster-peers, or without"
	}
	return nil, e
}
