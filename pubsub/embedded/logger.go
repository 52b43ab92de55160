package embedded

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
)

// natsLogger gives the server's lines to slog, one level each. Fatal lines are
// kept: the server expects its logger to end the process, which an embedded one
// must not, so Start asks for them.
type natsLogger struct {
	log *slog.Logger
	// failed is called at every error line: something may be broken.
	failed func()

	mu    sync.Mutex // guards: fatal
	fatal string
}

func (l *natsLogger) line(level slog.Level, format string, v []any) {
	ctx := context.Background()
	if l.log.Enabled(ctx, level) {
		l.log.LogAttrs(ctx, level, fmt.Sprintf(format, v...))
	}
}

// Noticef implements server.Logger; notices are many and routine.
func (l *natsLogger) Noticef(format string, v ...any) { l.line(slog.LevelDebug, format, v) }

// Warnf implements server.Logger.
func (l *natsLogger) Warnf(format string, v ...any) { l.line(slog.LevelWarn, format, v) }

// Errorf implements server.Logger.
func (l *natsLogger) Errorf(format string, v ...any) {
	if l.failed != nil {
		l.failed()
	}
	l.line(slog.LevelError, format, v)
}

// Debugf implements server.Logger.
func (l *natsLogger) Debugf(format string, v ...any) { l.line(slog.LevelDebug-2, format, v) }

// Tracef implements server.Logger. Protocol traces carry payloads and are
// never switched on; a line that comes nevertheless is dropped.
func (l *natsLogger) Tracef(string, ...any) {}

// Fatalf implements server.Logger without ending the process.
func (l *natsLogger) Fatalf(format string, v ...any) {
	l.mu.Lock()
	if l.fatal == "" {
		l.fatal = fmt.Sprintf(format, v...)
	}
	l.mu.Unlock()
	l.line(slog.LevelError, format, v)
}

func (l *natsLogger) failure() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fatal
}
