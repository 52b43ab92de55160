package broker

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/pubsub"
)

// TestCodeOfFailures: what a failure says of the store counts, and not how long it
// took to find out: REQUEST_TIMED_OUT says that a change may have been made.
func TestCodeOfFailures(t *testing.T) {
	for _, x := range []struct {
		err         error
		code, group *kerr.Error
	}{
		{fmt.Errorf("bounds: %w: %w", pubsub.ErrUnavailable, context.DeadlineExceeded), kerr.KafkaStorageError, kerr.CoordinatorNotAvailable},
		{fmt.Errorf("append: %w: %w", pubsub.ErrOutcomeUnknown, context.DeadlineExceeded), kerr.RequestTimedOut, kerr.CoordinatorNotAvailable},
		{fmt.Errorf("append: %w: %w", pubsub.ErrOutcomeUnknown, pubsub.ErrUnavailable), kerr.RequestTimedOut, kerr.CoordinatorNotAvailable},
		{context.DeadlineExceeded, kerr.RequestTimedOut, kerr.CoordinatorNotAvailable},
		{pubsub.ErrConflict, kerr.KafkaStorageError, kerr.NotCoordinator},
		{pubsub.ErrNotFound, kerr.UnknownTopicOrPartition, kerr.CoordinatorNotAvailable},
		{pubsub.ErrTooLarge, kerr.MessageTooLarge, kerr.InvalidRequest},
		{errors.New("?"), kerr.UnknownServerError, kerr.UnknownServerError},
	} {
		if got := code(x.err, false); got != x.code {
			t.Errorf("%v: %v, want %v", x.err, got, x.code)
		}
		if got := code(x.err, true); got != x.group {
			t.Errorf("%v, for groups: %v, want %v", x.err, got, x.group)
		}
	}
}
