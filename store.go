package main

import (
	"context"
	"errors"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/pubsub/embedded"
)

// openStore starts the embedded NATS server, or none, and connects. stop ends
// both.
func openStore(ctx context.Context, l *loaded, logger *slog.Logger, reg prometheus.Registerer) (store pubsub.Store, stop func(), err error) {
	var srv *embedded.Server
	if !l.external() {
		if srv, err = startEmbedded(ctx, l, logger); err != nil {
			return nil, nil, err
		}
	}
	store, err = connect(ctx, l, srv, logger, reg)
	if err != nil {
		if srv != nil {
			srv.Stop()
		}
		return nil, nil, err
	}
	return store, func() {
		store.Close()
		if srv != nil {
			srv.Stop()
		}
	}, nil
}

func startEmbedded(ctx context.Context, l *loaded, logger *slog.Logger) (*embedded.Server, error) {
	srv, err := embedded.Start(ctx, embedded.Config{
		Dir:          l.DataDir,
		Memory:       l.Storage == "memory" && !l.isSet("data-dir"),
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
		e.hint = "choose another address with --nats-listen, or leave it out"
	}
	return nil, e
}
