package jetstream

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/hanzoai/stream/pubsub"
)

// JetStream error codes (server/errors.json of nats-server) that mean something
// to us. Texts are never parsed.
const (
	codeAccountLimit      = 10002
	codeNoPeers           = 10005
	codeUnavailable       = 10008
	codeConsumerNotFound  = 10014
	codeResources         = 10023
	codeMaxConsumers      = 10026
	codeMaxStreams        = 10027
	codeMemoryFull        = 10028
	codeNoMessage         = 10037
	codeNotForAccount     = 10039
	codeStorageFull       = 10047
	codeCreateFailed      = 10049
	codeMessageTooLarge   = 10054
	codeNameTaken         = 10058
	codeStreamNotFound    = 10059
	codeOtherStream       = 10060
	codeSubjectTaken      = 10065
	codeWrongLast         = 10071
	codeNotEnabled        = 10076
	codeStoreFailed       = 10077
	codeHeadersTooLarge   = 10097
	codeStreamOffline     = 10118
	codeDuplicateInFlight = 10158
	codeWrongLastInFlight = 10164
	codeTooManyRequests   = 10167
	codeTooManyBatches    = 10210
)

// apiError is an error as JetStream answers it.
type apiError struct {
	Code        int    `json:"code"`
	ErrCode     int    `json:"err_code"`
	Description string `json:"description"`
}

func (e *apiError) Error() string {
	return fmt.Sprintf("jetstream: %s (%d)", e.Description, e.ErrCode)
}

// isConflict tells the two codes of a lost compare-and-append apart from all
// other errors. 10164 comes from a replicated stream whose subject is being
// written; it carries no sequence, so sequences in texts are of no use.
func isConflict(err error) bool { return hasCode(err, codeWrongLast, codeWrongLastInFlight) }

func hasCode(err error, codes ...int) bool {
	var e *apiError
	if !errors.As(err, &e) {
		return false
	}
	for _, c := range codes {
		if e.ErrCode == c {
			return true
		}
	}
	return false
}

// How a request can fail before there is an answer to interpret.
var (
	// errNotSent: nothing left this process.
	errNotSent = errors.New("not sent")
	// errNoAnswer: it was sent; timeout, end of ctx or loss of the connection
	// came before an answer.
	errNoAnswer = errors.New("no answer")
	// errNoResponders: the server knew of nobody who listens to the subject.
	errNoResponders = errors.New("no responders")
)

// refusal maps what JetStream answered, for reads and writes alike: an answered
// error always means that nothing was stored.
func refusal(e *apiError) error {
	var kind error
	switch e.ErrCode {
	case codeWrongLast, codeWrongLastInFlight:
		kind = pubsub.ErrConflict
	case codeMessageTooLarge, codeHeadersTooLarge:
		kind = pubsub.ErrTooLarge
	case codeStreamNotFound, codeOtherStream, codeNoMessage:
		kind = pubsub.ErrNotFound
	case codeNameTaken, codeSubjectTaken:
		kind = pubsub.ErrExists
	case codeAccountLimit, codeResources, codeMaxStreams, codeMemoryFull, codeStorageFull, codeStoreFailed:
		kind = pubsub.ErrFull
	case codeUnavailable, codeTooManyRequests, codeTooManyBatches, codeDuplicateInFlight, codeNoPeers, codeCreateFailed,
		codeNotEnabled, codeNotForAccount, codeStreamOffline, codeMaxConsumers, codeConsumerNotFound:
		kind = pubsub.ErrUnavailable
	default:
		// A bug or a misconfiguration of ours unless the server itself is in trouble.
		if e.Code == 503 || e.Code == 429 {
			kind = pubsub.ErrUnavailable
			break
		}
		return e
	}
	return fmt.Errorf("%w: %w", kind, e)
}

// readError maps the failure of a call that changes nothing.
func readError(err error) error {
	var e *apiError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &e):
		return refusal(e)
	case errors.Is(err, errNotSent), errors.Is(err, errNoAnswer), errors.Is(err, errNoResponders):
		return fmt.Errorf("%w: %w", pubsub.ErrUnavailable, err)
	}
	return err
}

// writeError maps the failure of a call that may have changed something. With
// no responders nothing can have been stored by this copy of the message, but a
// stream between two leaders looks the same, so it counts as unknown as well.
func writeError(err error) error {
	var e *apiError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &e):
		return refusal(e)
	case errors.Is(err, nats.ErrMaxPayload):
		return fmt.Errorf("%w: %w", pubsub.ErrTooLarge, err)
	case errors.Is(err, errNotSent):
		// A caller's own deadline stays recognisable and is no fault of the store.
		if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		return fmt.Errorf("%w: %w", pubsub.ErrUnavailable, err)
	case errors.Is(err, errNoAnswer), errors.Is(err, errNoResponders):
		return fmt.Errorf("%w: %w", pubsub.ErrOutcomeUnknown, err)
	}
	return err
}
