package keys

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/test/e2e/broker"
	"github.com/hanzoai/stream/test/testkit"
)

// recording says that what Apache Kafka answers is to be written to testdata.
var recording = os.Getenv("STREAM_RECORD") != ""

const answers = "answers.txt"

// same stands for the answer before.
const same = "the same"

// TestAnswers compares every answer with Apache Kafka's.
func TestAnswers(t *testing.T) {
	broker.Each(t, []string{broker.Embedded}, func(t *testing.T, b *broker.Broker) {
		got := run(t, b.Addr)
		path := filepath.Join("testdata", answers)
		if recording {
			if b.Kind != broker.Kafka {
				t.Fatalf("only Apache Kafka is recorded, not %s", b.Kind)
			}
			write(t, path, got)
			return
		}
		compare(t, b.Kind, got, read(t, path), differences)
	})
}

// apiVersions is what Apache Kafka serves, as a file of package protocol's tests.
const apiVersions = "protocol/testdata/kafka-4.3.1.txt"

// TestAPIVersions: what docs/parity.md says of both sides is what the running
// servers say.
func TestAPIVersions(t *testing.T) {
	broker.Each(t, []string{broker.Embedded}, func(t *testing.T, b *broker.Broker) {
		got := served(t, b.Addr)
		path := filepath.Join(testkit.Root(), apiVersions)
		if recording {
			if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
			return
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if b.Kind == broker.Kafka {
			if got != string(want) {
				t.Errorf("Apache Kafka serves\n%s\nrecorded is (make record)\n%s", got, want)
			}
			return
		}
		doc, err := os.ReadFile(filepath.Join(testkit.Root(), "docs/parity.md"))
		if err != nil {
			t.Fatal(err)
		}
		var documented strings.Builder
		for _, m := range regexp.MustCompile(`(?m)^\| (\d+) \| (\w+) \| [^|]* \| (\d+)–(\d+) \|`).FindAllStringSubmatch(string(doc), -1) {
			fmt.Fprintf(&documented, "%s %s %s %s\n", m[1], m[2], m[3], m[4])
		}
		for _, m := range regexp.MustCompile(`(?m)^\| (\S+) \| [^|]* \| (\d+)–(\d+) \((\S+)\) \|`).FindAllStringSubmatch(string(doc), -1) {
			fmt.Fprintf(&documented, "%s %s %s %s\n", m[1], m[2], m[3], m[4])
		}
		if got != documented.String() {
			t.Errorf("the server says\n%s\ndocs/parity.md says\n%s", got, documented.String())
		}
	})
}

// served is what a broker's ApiVersions says: key, name, versions; then
// features: name, supported levels, the level in force.
func served(t *testing.T, addr string) string {
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = "keys", "1"
	resp := ask[*kmsg.ApiVersionsResponse](dial(t, addr), 4, req)
	if resp.ErrorCode != 0 {
		t.Fatalf("ApiVersions: code %d", resp.ErrorCode)
	}
	slices.SortFunc(resp.ApiKeys, func(a, b kmsg.ApiVersionsResponseApiKey) int { return int(a.ApiKey - b.ApiKey) })
	var b strings.Builder
	for _, k := range resp.ApiKeys {
		fmt.Fprintf(&b, "%d %s %d %d\n", k.ApiKey, kafkaName(k.ApiKey), k.MinVersion, k.MaxVersion)
	}
	slices.SortFunc(resp.SupportedFeatures, func(a, b kmsg.ApiVersionsResponseSupportedFeature) int { return strings.Compare(a.Name, b.Name) })
	for _, f := range resp.SupportedFeatures {
		level := "-"
		for _, g := range resp.FinalizedFeatures {
			if g.Name == f.Name {
				level = fmt.Sprint(g.MaxVersionLevel)
			}
		}
		fmt.Fprintf(&b, "%s %d %d %s\n", f.Name, f.MinVersion, f.MaxVersion, level)
	}
	return b.String()
}

// kafkaName is the name of a key as Apache Kafka spells it.
func kafkaName(key int16) string {
	return strings.NewReplacer("ProducerID", "ProducerId", "PartitionAssignments", "PartitionReassignments",
		"SASL", "Sasl", "ACLs", "Acls", "SCRAM", "Scram").Replace(kmsg.NameForKey(key))
}

// compare fails for each answer that differs, unless differences has it. What it
// has must be different, so that the list shrinks.
func compare(t *testing.T, kind string, got, want []note, differences map[string]difference) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%d answers, recorded are %d: make record", len(got), len(want))
	}
	for i := range min(len(got), len(want)) {
		g, w := got[i], want[i]
		if g.name != w.name {
			t.Fatalf("answer %d is %q, recorded is %q: make record", i, g.name, w.name)
		}
		d, ok := differences[g.name]
		switch {
		case kind != broker.Kafka && ok && g.answer == w.answer:
			t.Errorf("%s: no difference any more, listed as: %s", g.name, d.why)
		case kind != broker.Kafka && ok:
			if g.answer != d.answer {
				t.Errorf("%s:\n got %s\nwant %s (unlike Kafka: %s)", g.name, g.answer, d.answer, d.why)
			}
		case g.answer != w.answer:
			t.Errorf("%s:\n got %s\nwant %s", g.name, g.answer, w.answer)
		}
	}
}

// difference is an answer of ours that is not Kafka's.
type difference struct{ answer, why string }

// differences, by the name of the request.
var differences = map[string]difference{
	"after all: offset at -3": {
		`{"Topics":[{"Partitions":[{"ErrorCode":0,"LeaderEpoch":-1,"Offset":-1,"OldStyleOffsets":null,"Partition":0,"Timestamp":-1}],"Topic":"keys-log"}]}`,
		"Kafka finds a record that was deleted, as long as its segment is there",
	},
	"DescribeTopicPartitions v0: empty name": {
		`{"NextCursor":null,"Topics":[{"AuthorizedOperations":3576,"ErrorCode":17,"IsInternal":false,"Partitions":null,"Topic":"","TopicID":"zero"},{"AuthorizedOperations":3576,"ErrorCode":0,"IsInternal":false,"Partitions":[{"EligibleLeaderReplicas":[],"ErrorCode":0,"ISR":[1],"LastKnownELR":[],"LeaderEpoch":0,"LeaderID":1,"OfflineReplicas":null,"Partition":0,"Replicas":[1]}],"Topic":"keys-a","TopicID":"set"}]}`,
		"Kafka fails as a whole, with −1 on each topic",
	},
}

func write(t *testing.T, path string, notes []note) {
	t.Helper()
	var b strings.Builder
	last := ""
	for _, n := range notes {
		b.WriteString(n.name + "\n")
		if n.answer == last {
			b.WriteString("  " + same + "\n")
			continue
		}
		b.WriteString("  " + n.answer + "\n")
		last = n.answer
	}
	if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) (notes []note) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimRight(string(b), "\n"), "\n")
	if len(lines)%2 != 0 {
		t.Fatalf("%s: odd number of lines", path)
	}
	last := ""
	for i := 0; i < len(lines); i += 2 {
		if answer := strings.TrimPrefix(lines[i+1], "  "); answer != same {
			last = answer
		}
		notes = append(notes, note{lines[i], last})
	}
	return notes
}
