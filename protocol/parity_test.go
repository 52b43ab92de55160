package protocol

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

var rewrite = flag.Bool("rewrite", false, "write the tables of docs/parity.md anew")

const (
	parityDoc = "../docs/parity.md"
	// recordedKafka is what Apache Kafka's ApiVersions says; make record writes it.
	recordedKafka = "testdata/kafka-4.3.1.txt"
)

// span is what one side serves of a key, or supports of a feature.
type span struct {
	name     string
	min, max int
	level    string // of a feature: the level in force
}

func (s *span) String() string {
	if s == nil {
		return "–"
	}
	if s.level != "" {
		return fmt.Sprintf("%d–%d (%s)", s.min, s.max, s.level)
	}
	return fmt.Sprintf("%d–%d", s.min, s.max)
}

// TestParityTable compares docs/parity.md with the table of APIs and with what
// Apache Kafka serves. Where less is served than in Kafka the doc has a reason;
// more never is (C-02). The columns are generated, but for the last:
//
//	go test ./protocol -run TestParityTable -rewrite
func TestParityTable(t *testing.T) {
	kafkaKeys, kafkaFeatures := recorded(t)
	keys, features := ours(t)
	old, err := os.ReadFile(parityDoc)
	if err != nil {
		t.Fatal(err)
	}
	// A feature's row is found by its name, a key's by its number.
	text := string(old)
	text = generate(t, text, "| Key | API | Apache Kafka 4.3.1 | Here | Differences, or why not |\n|---|---|---|---|---|\n",
		"| Key |", kafkaKeys, keys, func(key string, k *span) string { return key + " | " + k.name })
	text = generate(t, text, "| Feature | Apache Kafka 4.3.1 | Here | Why not |\n|---|---|---|---|\n",
		"| Feature |", kafkaFeatures, features, func(name string, _ *span) string { return name })
	switch {
	case text == string(old):
	case *rewrite:
		if err := os.WriteFile(parityDoc, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("docs/parity.md is not up to date: go test ./protocol -run TestParityTable -rewrite")
	}
}

// generate writes one table of the doc anew and returns the doc. The last cell
// of each row stays.
func generate(t *testing.T, doc, head, begins string, kafka, here map[string]*span, first func(id string, k *span) string) string {
	t.Helper()
	start := strings.Index(doc, "\n"+begins) + 1
	if start == 0 {
		t.Fatalf("docs/parity.md has no table that begins with %q", begins)
	}
	end := start
	notes, absent := map[string]string{}, map[string]bool{}
	for line := range strings.Lines(doc[start:]) {
		if !strings.HasPrefix(line, "|") {
			break
		}
		end += len(line)
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		id, note := strings.TrimSpace(cells[0]), strings.TrimSpace(cells[len(cells)-1])
		// Of two rows the one that says that the key is served is the newer one.
		if not := strings.TrimSpace(cells[len(cells)-2]) == "–"; notes[id] == "" || !not {
			notes[id], absent[id] = note, not
		}
	}
	ids := make([]string, 0, len(kafka))
	for id := range kafka {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b string) int {
		na, _ := strconv.Atoi(a)
		nb, _ := strconv.Atoi(b)
		if na != nb {
			return na - nb
		}
		return strings.Compare(a, b)
	})
	var table strings.Builder
	table.WriteString(head)
	for _, id := range ids {
		k, o := kafka[id], here[id]
		if o != nil && absent[id] {
			notes[id] = "" // why it is not there
		}
		switch {
		case (o == nil || *o != *k) && notes[id] == "":
			t.Errorf("%s: Kafka serves %s, we %s: docs/parity.md has no reason", id, k, o)
		case o != nil && (o.min < k.min || o.max > k.max || o.name != k.name):
			t.Errorf("%s: Kafka serves %s %s, we %s %s", id, k.name, k, o.name, o)
		}
		fmt.Fprintf(&table, "| %s | %s | %s | %s |\n", first(id, k), k, o, notes[id])
	}
	for id := range here {
		if kafka[id] == nil {
			t.Errorf("%s is served and Kafka does not know it", id)
		}
	}
	return doc[:start] + strings.ReplaceAll(table.String(), "|  |", "| |") + doc[end:]
}

// recorded is what Apache Kafka serves, by key and by feature.
func recorded(t *testing.T) (keys, features map[string]*span) {
	t.Helper()
	text, err := os.ReadFile(recordedKafka)
	if err != nil {
		t.Fatal(err)
	}
	keys, features = map[string]*span{}, map[string]*span{}
	number := func(s string) int {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatalf("%s: %v", recordedKafka, err)
		}
		return n
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) != 4 {
			t.Fatalf("%s: %q", recordedKafka, line)
		}
		if regexp.MustCompile(`^\d+$`).MatchString(f[0]) {
			keys[f[0]] = &span{name: f[1], min: number(f[2]), max: number(f[3])}
		} else {
			features[f[0]] = &span{min: number(f[1]), max: number(f[2]), level: f[3]}
		}
	}
	return keys, features
}

// ours is what ApiVersions says here.
func ours(t *testing.T) (keys, features map[string]*span) {
	t.Helper()
	kafka, _ := recorded(t)
	h := &handler{backend: &stub{}, apis: map[int16]*api{keyAPIVersions: &apiVersionsAPI}, served: apis}
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = "parity", "1"
	req.SetVersion(4)
	answer, err := h.apiVersions(t.Context(), &request{Request: req, conn: &conn{}})
	if err != nil {
		t.Fatal(err)
	}
	resp := answer.(*kmsg.ApiVersionsResponse)
	keys, features = map[string]*span{}, map[string]*span{}
	for _, k := range resp.ApiKeys {
		id := fmt.Sprint(k.ApiKey)
		s := &span{min: int(k.MinVersion), max: int(k.MaxVersion)}
		if kafka[id] != nil {
			s.name = kafka[id].name
		}
		keys[id] = s
	}
	for _, f := range resp.SupportedFeatures {
		s := &span{min: int(f.MinVersion), max: int(f.MaxVersion), level: "-"}
		for _, g := range resp.FinalizedFeatures {
			if g.Name == f.Name {
				s.level = fmt.Sprint(g.MaxVersionLevel)
			}
		}
		features[f.Name] = s
	}
	return keys, features
}
