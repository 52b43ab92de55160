package broker

import (
	"testing"
)

// pubsubURL starts the NATS server that a kind names; embedded needs none.
func pubsubURL(t testing.TB, kind string) string {
	t.Helper()
	switch kind {
	case Embedded:
		return ""
	}
	t.Fatalf("no such broker: %q", kind)
	return ""
}
