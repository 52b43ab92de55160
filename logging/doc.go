// Package logging is what every log line shares: the slog handler, the
// attribute keys, redaction and throttling of repeats. It has no logging
// functions of its own: callers use log/slog with a logger passed in.
//
// Start reading at handler.go; keys.go lists the attribute keys, secret.go and
// redact.go what must never be shown, throttle.go what happens to repeats.
package logging
