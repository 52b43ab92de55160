package broker

import (
	"context"
	"errors"
	"log/slog"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/logging"
	"github.com/hanzoai/stream/pubsub"
)

// Code maps an error to the code that a client sees. A refusal (*kerr.Error)
// passes as it is. A failure is mapped and logged here, and nowhere else; group
// says that a coordinator API asks, whose clients know other codes. An error
// that nobody foresaw is UNKNOWN_SERVER_ERROR.
func (b *Broker) Code(err error, group bool) int16 {
	if err == nil {
		return 0
	}
	if k := (*kerr.Error)(nil); errors.As(err, &k) {
		return k.Code
	}
	k := code(err, group)
	level := slog.LevelWarn
	if k == kerr.UnknownServerError {
		level = slog.LevelError
	}
	b.logger.Log(context.Background(), level, "request failed in the store", logging.Error, err, "code", k.Message)
	return k.Code
}

func code(err error, group bool) *kerr.Error {
	if group {
		switch {
		case errors.Is(err, pubsub.ErrConflict):
			return kerr.NotCoordinator
		case errors.Is(err, pubsub.ErrTooLarge):
			return kerr.InvalidRequest
		case errors.Is(err, pubsub.ErrOutcomeUnknown), errors.Is(err, pubsub.ErrUnavailable), errors.Is(err, pubsub.ErrNotFound),
			errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
			return kerr.CoordinatorNotAvailable
		}
		return kerr.UnknownServerError
	}
	switch {
	case errors.Is(err, pubsub.ErrOutcomeUnknown):
		return kerr.RequestTimedOut
	case errors.Is(err, pubsub.ErrUnavailable), errors.Is(err, pubsub.ErrConflict): // whatever it took to find out
		return kerr.KafkaStorageError
	case errors.Is(err, pubsub.ErrTooLarge):
		return kerr.MessageTooLarge
	case errors.Is(err, pubsub.ErrNotFound): // the log is gone: our topic is stale
		return kerr.UnknownTopicOrPartition
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return kerr.RequestTimedOut
	}
	return kerr.UnknownServerError
}
