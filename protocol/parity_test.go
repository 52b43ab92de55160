package protocol

import (
	"fmt"
	"os"
	"regexp"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestParityTable compares docs/parity.md with the table of APIs, both ways.
func TestParityTable(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/parity.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^\| *(\d+) *\| *(\w+) *\| *(\d+–\d+) *\|`).FindAllStringSubmatch(string(text), -1) {
		if documented[m[1]] != "" {
			t.Errorf("key %s is there twice", m[1])
		}
		documented[m[1]] = m[2] + " " + m[3]
	}
	for _, a := range apis {
		name := kmsg.NameForKey(a.key)
		switch name { // as Kafka spells it
		case "InitProducerID":
			name = "InitProducerId"
		case "AlterPartitionAssignments":
			name = "AlterPartitionReassignments"
		}
		key, want := fmt.Sprint(a.key), fmt.Sprintf("%s %d–%d", name, a.min, a.max)
		if documented[key] != want {
			t.Errorf("key %s: documented as %q, served as %q", key, documented[key], want)
		}
		delete(documented, key)
	}
	for key, what := range documented {
		t.Errorf("key %s is documented as %q and not served", key, what)
	}
}
