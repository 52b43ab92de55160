//go:build nextformat

package broker

import (
	"time"

	"github.com/hanzoai/stream/broker/cluster"
)

// The build after this one, for tests of upgrades: it knows a format more, which
// differs in nothing but its number.
var builtFormats = cluster.Formats{Oldest: 1, Newest: 4}

const formatHold = 2 * time.Second
