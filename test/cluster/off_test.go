package cluster

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hanzoai/stream/test/testkit"
)

// TestKillPointsAreNothing: in the usual build the compiler puts nothing in the
// place of a kill point, wherever records pass.
func TestKillPointsAreNothing(t *testing.T) {
	t.Parallel()
	for _, dir := range []string{"protocol", "broker/partition", "pubsub/jetstream"} {
		points := 0
		files, err := filepath.Glob(filepath.Join(testkit.Root(), dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if strings.HasSuffix(f, "_test.go") {
				continue
			}
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			points += bytes.Count(b, []byte("killpoint.At"))
		}
		cmd := exec.CommandContext(t.Context(), "go", "build", "-gcflags=-m", "./"+dir)
		cmd.Dir = testkit.Root()
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("build %s: %v\n%s", dir, err, out)
		}
		if inlined := bytes.Count(out, []byte("inlining call to killpoint.At")); points == 0 || inlined < points {
			t.Errorf("%s: %d of %d kill points are inlined", dir, inlined, points)
		}
	}
}
