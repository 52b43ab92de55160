package protocol

import (
	"errors"
	"fmt"
	"runtime/debug"
	"time"
)

// Config is the package's section of the configuration: what one client, and
// all together, may cost. Every field must be set; start from DefaultConfig.
type Config struct {
	// Listener names the listener in logs and to handlers, as in Kafka's
	// listener.security.protocol.map.
	Listener string
	// MaxRequestBytes is the largest frame; a longer one closes the connection
	// before anything is allocated (socket.request.max.bytes). It must leave
	// room for the largest batch and 64 KiB.
	MaxRequestBytes int
	// QueuedMaxRequestBytes bounds the bytes of all requests that were read and
	// not yet answered; beyond it sockets are not read (queued.max.request.bytes).
	QueuedMaxRequestBytes int64
	// MaxElements is the most array elements of one request, because valid
	// frames decode to many times their size (max.request.elements).
	MaxElements int
	// MaxConnections and MaxConnectionsPerIP close what is above them at
	// accept; 0 switches the second off (max.connections, max.connections.per.ip).
	MaxConnections, MaxConnectionsPerIP int
	// MaxConnectionRate is the number of connections accepted per second, with
	// bursts of as many; 0 is no limit (max.connection.creation.rate).
	MaxConnectionRate int
	// FrameTimeout is the time from a frame's first byte to its last; a frame
	// may take longer while FrameMinRate bytes per second arrive (frame.timeout).
	FrameTimeout time.Duration
	FrameMinRate int
	// WriteTimeout closes a connection whose client takes nothing of an answer
	// for that long (write.timeout).
	WriteTimeout time.Duration
	// IdleTimeout closes a connection without requests; one whose request is
	// being worked on is not idle (connections.max.idle.ms).
	IdleTimeout time.Duration
	// MaxInflight is the number of requests read ahead per connection
	// (max.inflight.per.connection).
	MaxInflight int
	// FetchMaxBytes caps one fetch answer, whatever the client asks for
	// (fetch.max.bytes). The first batch passes whole all the same.
	FetchMaxBytes int
	// FetchHeldBytes bounds the records of all fetch answers that are not
	// written out yet; beyond it answers carry one batch each.
	FetchHeldBytes int64
	// FetchMaxWait caps the time a fetch waits (fetch.max.wait); an early empty
	// answer is legal.
	FetchMaxWait time.Duration
	// FetchSessions is the number of fetch sessions that are kept; 0 keeps none
	// (max.incremental.fetch.session.cache.slots).
	FetchSessions int
	// GoneGrace is how long the requests of a client that closed its connection
	// may still take, those excepted that only wait for records.
	GoneGrace time.Duration
}

// DefaultConfig gives the defaults. Byte budgets follow the
// process's memory limit (GOMEMLIMIT), or 2 GiB where there is none.
func DefaultConfig() Config {
	memory := debug.SetMemoryLimit(-1)
	if memory <= 0 || memory > 1<<40 {
		memory = 2 << 30
	}
	return Config{
		Listener:              "PLAINTEXT",
		MaxRequestBytes:       16 << 20,
		QueuedMaxRequestBytes: max(memory/4, 16<<20),
		MaxElements:           100_000,
		MaxConnections:        10_000,
		MaxConnectionRate:     500,
		FrameTimeout:          30 * time.Second,
		FrameMinRate:          16 << 10,
		WriteTimeout:          30 * time.Second,
		IdleTimeout:           10 * time.Minute,
		MaxInflight:           16,
		FetchMaxBytes:         55 << 20,
		FetchHeldBytes:        max(memory/4, 64<<20),
		FetchMaxWait:          time.Minute,
		FetchSessions:         1000,
		GoneGrace:             5 * time.Second,
	}
}

// Validate reports every value out of range at once.
func (c Config) Validate() error {
	var errs []error
	check := func(ok bool, key string, value any, want string) {
		if !ok {
			errs = append(errs, fmt.Errorf("%s is %v: it must be %s", key, value, want))
		}
	}
	check(c.MaxRequestBytes >= 128<<10 && c.MaxRequestBytes <= 1<<30, "socket.request.max.bytes", c.MaxRequestBytes, "131072 to 1073741824")
	check(c.QueuedMaxRequestBytes >= int64(c.MaxRequestBytes), "queued.max.request.bytes", c.QueuedMaxRequestBytes, "at least socket.request.max.bytes")
	check(c.MaxElements >= 1000, "max.request.elements", c.MaxElements, "at least 1000")
	check(c.MaxConnections >= 1, "max.connections", c.MaxConnections, "at least 1")
	check(c.MaxConnectionsPerIP >= 0, "max.connections.per.ip", c.MaxConnectionsPerIP, "0 (off) or more")
	check(c.MaxConnectionRate >= 0, "max.connection.creation.rate", c.MaxConnectionRate, "0 (off) or more")
	check(c.FrameTimeout > 0, "frame.timeout", c.FrameTimeout, "above 0")
	check(c.FrameMinRate >= 1, "frame.min.rate", c.FrameMinRate, "at least 1")
	check(c.WriteTimeout > 0, "write.timeout", c.WriteTimeout, "above 0")
	check(c.IdleTimeout > 0, "connections.max.idle.ms", c.IdleTimeout, "above 0")
	check(c.MaxInflight >= 5 && c.MaxInflight <= 64, "max.inflight.per.connection", c.MaxInflight, "5 to 64")
	check(c.FetchMaxBytes >= 1<<10, "fetch.max.bytes", c.FetchMaxBytes, "at least 1024")
	check(c.FetchHeldBytes >= 1, "fetch.held.bytes", c.FetchHeldBytes, "at least 1")
	check(c.FetchSessions >= 0 && c.FetchSessions <= 1<<20, "max.incremental.fetch.session.cache.slots", c.FetchSessions, "from 0 to 1048576")
	check(c.FetchMaxWait > 0, "fetch.max.wait", c.FetchMaxWait, "above 0")
	check(c.GoneGrace >= 0, "gone.grace", c.GoneGrace, "0 or more")
	return errors.Join(errs...)
}
