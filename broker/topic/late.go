package topic

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
)

// ErrLate refuses a change that came to a gateway before others held it for dead:
// it was frozen or cut off. Whoever asked may have asked another one since, and have
// gone on: what the change names may be something else by now.
var ErrLate = refuse(kerr.RequestTimedOut, "This gateway stood still, or was cut off from the store, while it worked on the request; look at what has become of it, and repeat it if need be.")

// unbroken marks a moment. What is returned tells whether this gateway has lived on
// since, and is asked before a change is tried anew that somebody else's write has
// overtaken.
func (ts *Topics) unbroken() func(ctx context.Context) error {
	if ts.deps.Unbroken == nil {
		return func(context.Context) error { return nil }
	}
	lives := ts.deps.Unbroken()
	return func(ctx context.Context) error {
		if !lives(ctx) {
			return ErrLate
		}
		return nil
	}
}
