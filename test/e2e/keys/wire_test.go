package keys

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/test/e2e/raw"
)

// wire is one connection of a test, which ends with the first error.
type wire struct {
	*raw.Conn
	t testing.TB
}

func dial(t testing.TB, addr string) *wire {
	t.Helper()
	c, err := raw.Dial(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return &wire{c, t}
}

// ask sends a request in a version and reads its answer.
func ask[R kmsg.Response](w *wire, version int16, req kmsg.Request) R {
	w.t.Helper()
	return raw.Ask[R](w.t, w.Conn, version, req)
}

func ptr[T any](v T) *T { return &v }
