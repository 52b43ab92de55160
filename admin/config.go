package admin

import "time"

// Config holds the limits of the HTTP side. Zero values take the defaults.
type Config struct {
	MaxHeaderBytes int           // 64 KiB; 431 above it
	MaxBodyBytes   int64         // 1 MiB; 413 above it
	Timeout        time.Duration // 30 s for a request and its answer
}

func (c Config) withDefaults() Config {
	if c.MaxHeaderBytes <= 0 {
		c.MaxHeaderBytes = 64 << 10
	}
	if c.MaxBodyBytes <= 0 {
		c.MaxBodyBytes = 1 << 20
	}
	if c.Timeout <= 0 {
		c.Timeout = 30 * time.Second
	}
	return c
}
