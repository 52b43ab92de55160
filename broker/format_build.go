//go:build !nextformat

package broker

import (
	"time"

	"github.com/hanzoai/stream/broker/cluster"
)

// builtFormats are the versions of what is stored that this build reads; it
// writes whichever is in force.
var builtFormats = cluster.Formats{Oldest: 1, Newest: 3}

// formatHold is how long only gateways that know a format must have lived before
// it comes in force: one that is being restarted in the middle of an upgrade is
// not locked out.
const formatHold = time.Minute
