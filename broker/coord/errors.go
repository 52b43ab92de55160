package coord

import "errors"

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
