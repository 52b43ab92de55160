package embedded

import "errors"

// Errors of Start, wrapped with what was tried.
var (
	// ErrLocked: another process uses the data folder.
	ErrLocked = errors.New("data folder is in use by another process")
	// ErrFolder: the data folder cannot be created or written.
	ErrFolder = errors.New("data folder cannot be used")
	// ErrListen: the address for NATS clients, or for the cluster, cannot be
	// listened on.
	ErrListen = errors.New("cannot listen for NATS")
	// ErrOtherUse: the data folder is of a server that stands alone, or of one in
	// a cluster, and this one is the other.
	ErrOtherUse = errors.New("data folder was used in another way")
)
