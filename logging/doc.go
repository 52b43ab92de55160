// Package logging is what every log line shares: the slog handler, the
// attribute keys, redaction and throttling of repeats. It has no logging
// functions of its own: callers use log/slog with a logger passed in.
package logging
