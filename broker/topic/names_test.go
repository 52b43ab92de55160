package topic

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"pgregory.net/rapid"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/pubsub/memory"
)

// badNames reach no store.
var badNames = []string{
	"", ".", "..", "a/b", "a b", "a>", "*", ">", "a.>", "a\r\nPUB x 1\r\n", "$JS.API", "ü", "a=b", "\x00", "a:b",
	strings.Repeat("n", 250), strings.Repeat("n", 100_000),
}

func TestC08Row21CheckName(t *testing.T) {
	t.Parallel()
	for _, name := range badNames {
		wantCode(t, "name "+name[:min(len(name), 20)], CheckName(name), kerr.InvalidTopicException)
	}
	for _, name := range []string{"a", "cs.a", "cs_a", "cs-a", ".cs", "cs..a", "CS.A", "...", "-", "_", strings.Repeat("n", 249), "__x"} {
		wantCode(t, "name "+name, CheckName(name), nil)
	}
}

func TestC08Row21BadNamesReachNoStore(t *testing.T) {
	t.Parallel()
	var calls counting
	g := newCluster(memory.Config{}).gateway(t, "a", calls.faults(), nil)
	before := calls.calls.Load()
	for _, name := range badNames {
		_, err := g.Get(t.Context(), name)
		wantCode(t, "Get", err, kerr.InvalidTopicException)
		_, err = g.Create(t.Context(), spec(name))
		wantCode(t, "Create", err, kerr.InvalidTopicException)
	}
	for _, name := range []string{"__consumer_offsets", "__transaction_state"} {
		_, err := g.Get(t.Context(), name)
		wantCode(t, "Get "+name, err, kerr.UnknownTopicOrPartition)
		_, err = g.Create(t.Context(), spec(name))
		wantCode(t, "Create "+name, err, kerr.InvalidTopicException)
	}
	if n := calls.calls.Load() - before; n != 0 {
		t.Errorf("%d store calls for names that can never be", n)
	}
}

func TestLogNameAndSubject(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		topic   string
		p       int32
		n       pubsub.Rev
		bare    bool
		log     string
		subject string
	}{
		{"foo", 0, 7, true, "kafka-foo-0", "kafka.foo.0"},
		{"foo", 12, 7, false, "kafka-foo-12=r7", "kafka.foo.12"},
		{"a.b", 0, 1, true, "kafka-a=2Eb-0", "kafka.a=2Eb.0"},
		{"a_b", 0, 1, true, "kafka-a_b-0", "kafka.a_b.0"},
	} {
		if got := LogName("kafka", c.topic, c.p, c.n, c.bare); got != c.log {
			t.Errorf("LogName is %q, want %q", got, c.log)
		}
		if got := Subject("kafka", c.topic, c.p); got != c.subject {
			t.Errorf("Subject is %q, want %q", got, c.subject)
		}
	}
}

func TestC08LogNamesNeverCollide(t *testing.T) {
	t.Parallel()
	type id struct {
		topic string
		p     int32
		n     pubsub.Rev
		bare  bool
	}
	gen := rapid.Custom(func(t *rapid.T) id {
		return id{
			rapid.StringMatching(`[a-zA-Z0-9._=r-]{1,8}`).Draw(t, "topic") + strings.Repeat(".", rapid.SampledFrom([]int{0, 0, 1, 80}).Draw(t, "dots")),
			rapid.Int32Range(0, 200).Draw(t, "p"), pubsub.Rev(rapid.Uint32Range(1, 50).Draw(t, "n")), rapid.Bool().Draw(t, "bare"),
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b := gen.Draw(t, "a"), gen.Draw(t, "b")
		if a.bare {
			a.n = 0
		}
		if b.bare {
			b.n = 0
		}
		la, lb := LogName("kafka", a.topic, a.p, a.n, a.bare), LogName("kafka", b.topic, b.p, b.n, b.bare)
		if (a == b) != (la == lb) {
			t.Fatalf("%+v is %s, %+v is %s", a, la, b, lb)
		}
		if len(la) > 255 || strings.ContainsAny(la, ".*> \t\r\n/\\") {
			t.Fatalf("%q is no stream name", la)
		}
		if (a.topic == b.topic && a.p == b.p) != (Subject("kafka", a.topic, a.p) == Subject("kafka", b.topic, b.p)) {
			t.Fatalf("subjects of %+v and %+v", a, b)
		}
	})
}
