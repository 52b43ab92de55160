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
	s := testkit.StartNATS(t, testkit.NATSOptions{Version: version})
	t.Logf("nats-server %s", s.Version)
	return s.URL
}
