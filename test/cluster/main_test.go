package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/hanzoai/stream/test/testkit"
)

// kept is where a failed run leaves histories and logs.
var kept = filepath.Join(testkit.Cache(), "chaos")

func TestMain(m *testing.M) {
	if os.Getenv("STREAM_TEST_LOGS") == "" {
		logs := filepath.Join(kept, "logs")
		if err := os.MkdirAll(logs, 0o755); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Setenv("STREAM_TEST_LOGS", logs)
	}
	goleak.VerifyTestMain(m)
}
