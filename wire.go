package main

import (
	"context"
	"errors"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/pubsub/embedded"
)

var errUnwired = errors.New("not wired yet")

func connect(context.Context, *loaded, *embedded.Server, *slog.Logger, prometheus.Registerer) (pubsub.Store, error) {
	return nil, errUnwired
}

func openGateway(context.Context, *loaded, pubsub.Store, advertised, *slog.Logger, prometheus.Registerer) (gateway, error) {
	return nil, errUnwired
}
