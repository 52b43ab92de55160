package coord

import (
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
)

// Sentinel errors of Do and of State.Drop. Failures of the store come wrapped
// with the sentinels of pubsub instead.
var (
	// ErrNotOwner: another gateway owns the record, or this one let go of it.
	ErrNotOwner = errors.New("not the owner of the record")
	// ErrStale: this gateway cannot prove at the moment that it still owns the
	// record, because the store is away or a renewal is overdue.
	ErrStale = errors.New("ownership cannot be proven at the moment")
	// ErrLoading: the record was taken over and is not read yet.
	ErrLoading = errors.New("the record is being loaded")
	// errInUse: the record cannot go to another gateway at the moment.
	errInUse = errors.New("the record is in use")
	// ErrVersion: the record was written in a format that is not known here. It
	// is left alone.
	ErrVersion = errors.New("stored in an unknown format version")
)

// Refusal turns what the runtime says into what clients are told; failures of
// the store stay as they are.
func Refusal(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrNotOwner):
		return kerr.NotCoordinator
	case errors.Is(err, ErrLoading):
		return kerr.CoordinatorLoadInProgress
	case errors.Is(err, ErrStale), errors.Is(err, ErrVersion):
		return kerr.CoordinatorNotAvailable
	}
	return err
}
