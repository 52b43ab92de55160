package main

import (
	"context"
	"errors"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hanzoai/stream/pubsub"
)

var errUnwired = errors.New("not wired yet")

func openGateway(context.Context, *loaded, pubsub.Store, advertised, *slog.Logger, prometheus.Registerer) (gateway, error) {
	return nil, errUnwired
}
