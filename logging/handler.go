package logging

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"
)

// Formats of a log line.
const (
	JSON = "json"
	Text = "text"
)

// maxValue is where the handler cuts any string, message included, in bytes.
// Callers that log what a client chose use Value, which cuts much earlier.
const maxValue = 4096

// Options say how lines look and which are written.
type Options struct {
	Format string     // JSON (also if empty) or Text
	Level  slog.Level // lines below are dropped
	// Burst is how many lines of one kind (level, message, component) pass
	// within Window; 0 throttles nothing. Debug lines always pass.
	Burst  int
	Window time.Duration
	Now    func() time.Time // nil: time.Now
}

// DefaultBurst and DefaultWindow are what a server uses.
const (
	DefaultBurst  = 10
	DefaultWindow = 10 * time.Second
)

// New makes a logger that writes one line at a time to w. Strings and errors
// lose the user info of URLs and are cut at 4 KiB; times are UTC.
func New(w io.Writer, o Options) *slog.Logger {
	ho := &slog.HandlerOptions{Level: o.Level, ReplaceAttr: clean}
	var h slog.Handler
	if o.Format == Text {
		h = slog.NewTextHandler(w, ho)
	} else {
		h = slog.NewJSONHandler(w, ho)
	}
	if o.Burst > 0 {
		h = newThrottle(h, o)
	}
	return slog.New(h)
}

// Discard is a logger that writes nothing, for tests and optional loggers.
func Discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

// ParseLevel reads debug, info, warn or error.
func ParseLevel(s string) (slog.Level, error) {
	switch strings.ToLower(s) {
	case "debug":
		return slog.LevelDebug, nil
	case "info":
		return slog.LevelInfo, nil
	case "warn", "warning":
		return slog.LevelWarn, nil
	case "error":
		return slog.LevelError, nil
	}
	return 0, fmt.Errorf("log level %q: not one of debug, info, warn, error", s)
}

// clean is the last line of defence for every attribute.
func clean(_ []string, a slog.Attr) slog.Attr {
	switch a.Value.Kind() {
	case slog.KindString:
		if s := a.Value.String(); len(s) > maxValue || strings.Contains(s, "://") {
			a.Value = slog.StringValue(cut(RedactURLs(s), maxValue))
		}
	case slog.KindTime:
		a.Value = slog.TimeValue(a.Value.Time().UTC())
	case slog.KindAny:
		switch v := a.Value.Any().(type) {
		case error:
			a.Value = slog.StringValue(cut(RedactURLs(v.Error()), maxValue))
		case fmt.Stringer:
			a.Value = slog.StringValue(cut(RedactURLs(v.String()), maxValue))
		}
	}
	return a
}
