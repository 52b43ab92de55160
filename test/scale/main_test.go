package scale

import (
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/hanzoai/stream/test/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The promises.
const (
	promisedTime   = time.Second
	promisedMemory = 150 << 20
)

// full is whether to take the promised sizes.
func full() bool { return os.Getenv("STREAM_SCALE") == "full" }

// sized chooses by STREAM_SCALE.
func sized(small, large int) int {
	if full() {
		return large
	}
	return small
}

// startNATS starts the server to measure on: the first of
// STREAM_TEST_NATS_VERSIONS, else the version that the product embeds.
func startNATS(t *testing.T) *testkit.NATSServer {
	t.Helper()
	var o testkit.NATSOptions
	if vs := testkit.NATSVersions(); len(vs) > 0 {
		o.Version = vs[0]
	}
	return testkit.StartNATS(t, o)
}

// promise reports a time and, where times count, holds it against the promise.
func promise(t *testing.T, what string, took time.Duration, note string) {
	t.Helper()
	t.Logf("%-44s %8.1f ms  %s", what, float64(took.Microseconds())/1000, note)
	if os.Getenv("STREAM_SCALE_STRICT") == "1" && took > promisedTime {
		t.Errorf("%s took %v; promised is %v", what, took, promisedTime)
	}
}

// promiseMemory does the same for memory.
func promiseMemory(t *testing.T, what string, bytes int) {
	t.Helper()
	t.Logf("%-44s %8.1f MB", what, float64(bytes)/1e6)
	if os.Getenv("STREAM_SCALE_STRICT") == "1" && bytes > promisedMemory {
		t.Errorf("%s is %d MB; promised is %d MB", what, bytes>>20, promisedMemory>>20)
	}
}
