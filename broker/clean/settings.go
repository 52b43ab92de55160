package clean

import "time"

// Settings are what is in force of the cleaner's configuration; they may change at
// any time.
type Settings struct {
	// Enabled is log.cleaner.enable: without it this gateway compacts nothing.
	Enabled bool
	// Memory is what the map of keys may take, in bytes
	// (log.cleaner.dedupe.buffer.size times its load factor).
	Memory int
	// Rate bounds what is read and written together, in bytes a second
	// (log.cleaner.io.max.bytes.per.second); 0: no limit.
	Rate float64
	// Share is the part of the time in which it works, above 0 to 1: it never takes
	// more than that of one core. 0 is 1.
	Share float64
	// Backoff is how long it rests when nothing is to be done
	// (log.cleaner.backoff.ms), at least a second.
	Backoff time.Duration
}
