package pubsub

import "context"

// LogConfig describes a log to create. Everything in it is fixed for the life
// of the log.
type LogConfig struct {
	Name     string
	Subject  string
	Replicas int
	Memory   bool              // memory storage instead of file
	Metadata map[string]string // facts that never change
}

// LogInfo is a log as listed.
type LogInfo struct {
	LogConfig
	Bounds Bounds
}

// TableConfig describes a table to open or create.
type TableConfig struct {
	Name     string
	Replicas int
	Memory   bool
}

// Info is what a store is. It is fixed for a connection's life.
type Info struct {
	Version     string // NATS server version, e.g. 2.15.2
	URL         string // without user info; "embedded" if in process
	MaxPayload  int    // bytes of one message, headers included
	MaxReplicas int    // how many replicas a stream can have: 1 unless clustered
}

// Space is how much fits into a store, in bytes; -1: no limit is known.
type Space struct {
	Dir   string // the folder it is kept in; "" if that is not on this machine
	Total int64
	Free  int64 // never below 0 if known
}

// Store makes logs and tables. Safe for concurrent use.
type Store interface {
	Info() Info
	// Connected reports whether the connection is up at this moment.
	Connected() bool
	// OnConnection registers fn to be called, in order, on each loss (false)
	// and return (true) of the connection.
	OnConnection(fn func(up bool))
	// Ping makes one round trip to JetStream itself.
	Ping(ctx context.Context) error
	// Space asks how much fits: of files, or of memory.
	Space(ctx context.Context, memory bool) (Space, error)

	// CreateLog creates a log. If one of that name with the same config and
	// metadata exists already it succeeds. ErrExists: the name or the subject
	// is taken by something else. Unknown outcomes are resolved inside.
	CreateLog(ctx context.Context, c LogConfig) error
	// DeleteLog deletes exactly the named log. ErrNotFound if it is gone.
	DeleteLog(ctx context.Context, name string) error
	// Log is a handle; nothing is sent.
	Log(name, subject string) Log
	// FindLog asks the leader for one log by name. ErrNotFound.
	FindLog(ctx context.Context, name string) (LogInfo, error)
	// Logs lists the logs whose subject matches filter (wildcards allowed).
	// missing names logs that exist but could not answer: never absence.
	Logs(ctx context.Context, filter string) (logs []LogInfo, missing []string, err error)

	// Table opens a table, created if it does not exist.
	Table(ctx context.Context, c TableConfig) (Table, error)

	// Serve answers requests of other processes on a subject, each in a
	// goroutine of its own, and at least 10,000 at a time. cancel waits for
	// running handlers.
	Serve(subject string, fn func(ctx context.Context, request []byte) []byte) (cancel func(), err error)
	// Request asks whoever serves the subject. ErrNotFound: nobody does (no
	// responders). ErrOutcomeUnknown: no answer before ctx ended.
	Request(ctx context.Context, subject string, request []byte) ([]byte, error)

	// Close ends the connection and all follows and watches.
	Close()
}
