package embedded

import (
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// DefaultMaxPayload is the largest message, headers included, unless
// configured: it leaves room for Kafka's default batch limit of 1,048,588 bytes
// and is the highest value for which the server does not warn.
const DefaultMaxPayload = 8 << 20

// Config says how to run the server. Dir is required unless Memory is set.
type Config struct {
	// Dir holds JetStream's files and the lock file. It is created, with its
	// parents, if it does not exist.
	Dir string
	// Memory runs without the promise to keep anything: files live in a
	// temporary folder that Stop removes. For tests and trials.
	Memory bool
	// SyncAlways makes each write durable on disk (fsync) before its
	// acknowledgement; else files are synced every SyncInterval.
	SyncAlways bool
	// SyncInterval is the time between fsyncs without SyncAlways; 0 takes the
	// server's default of two minutes.
	SyncInterval time.Duration
	// Listen is the host:port for NATS clients of other processes; empty
	// listens on nothing, port 0 takes a free one (see Server.ClientURL).
	Listen string
	// MaxPayload is the largest message in bytes, headers included; 0 takes
	// DefaultMaxPayload. At most 64 MiB.
	MaxPayload int
	// ServerName names the server in logs and to NATS tools; "" takes "stream",
	// in a cluster a name of its own. There it is what the first start says, for
	// as long as the folder lives.
	ServerName string
	// Cluster is what the server is part of; nil: it stands alone.
	Cluster *Cluster
	// Logger receives the server's log lines; nil discards them.
	Logger *slog.Logger
}

func (c Config) validate() (host string, port int, err error) {
	var errs []error
	if c.Dir == "" && !c.Memory {
		errs = append(errs, errors.New("no data folder given"))
	}
	if c.MaxPayload < 0 || c.MaxPayload > 64<<20 {
		errs = append(errs, fmt.Errorf("max payload %d: not within 1 and %d bytes", c.MaxPayload, 64<<20))
	}
	if c.SyncInterval < 0 {
		errs = append(errs, fmt.Errorf("sync interval %v: negative", c.SyncInterval))
	}
	if c.Listen != "" {
		if host, port, err = hostPort(c.Listen); err != nil {
			errs = append(errs, fmt.Errorf("nats listen: %w", err))
		}
	}
	if c.Cluster != nil && c.Dir == "" {
		errs = append(errs, errors.New("a server of a cluster needs a data folder that stays"))
	}
	errs = append(errs, c.Cluster.validate())
	return host, port, errors.Join(errs...)
}
