package pubsub

import "errors"

// Sentinel errors. Implementations wrap them with what was tried; callers
// branch with errors.Is only. Anything else is a bug or a misconfiguration and
// is shown as such.
var (
	// ErrConflict: a compare-and-append or compare-and-set lost. Nothing of
	// this call was stored. The caller reads what is new and decides again.
	ErrConflict = errors.New("conflict: something else was written first")
	// ErrOutcomeUnknown: the write was sent and its acknowledgement did not
	// come. It may be stored, now or in a moment, or never.
	ErrOutcomeUnknown = errors.New("outcome unknown: no acknowledgement")
	// ErrUnavailable: the store refused or did not answer, and a write was
	// certainly not stored. Retry later.
	ErrUnavailable = errors.New("store unavailable")
	// ErrTooLarge: the entry can never be stored at its size.
	ErrTooLarge = errors.New("too large for the store")
	// ErrNotFound: the leader of the store says that it is not there. The only
	// error that means absent; see design rule 7 for when it may be believed.
	ErrNotFound = errors.New("not found")
	// ErrExists: a log of that name exists already, or its subject is taken.
	ErrExists = errors.New("exists already")
	// ErrFull: the store has no room (disk, account limit). Nothing stored.
	// It wraps ErrUnavailable.
	ErrFull error = fullError{}
)

type fullError struct{}

func (fullError) Error() string        { return "store is full" }
func (fullError) Is(target error) bool { return target == ErrUnavailable }
