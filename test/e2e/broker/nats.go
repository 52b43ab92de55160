package broker

import (
	"strings"
	"testing"

	"github.com/hanzoai/stream/test/testkit"
)

// pubsubURL starts the NATS server that a kind names (nats-VERSION) and returns
// its URL; embedded needs none.
func pubsubURL(t testing.TB, kind string) string {
	t.Helper()
	if kind == Embedded {
		return ""
	}
	version, ok := strings.CutPrefix(kind, "nats-")
	if !ok {
		t.Fatalf("no such broker: %q", kind)
	}
	// The newest takes batches of ten megabytes, the others NATS's own default.
	o := testkit.NATSOptions{Version: version, MaxPayload: 1 << 20}
	if kind == NATS {
		o.MaxPayload = 16 << 20
	}
	s := testkit.StartNATS(t, o)
	t.Logf("nats-server %s", s.Version)
	return s.URL
}
