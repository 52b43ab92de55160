package pubsub_test

import (
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/hanzoai/stream/pubsub"
)

func TestTokenExamples(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"foo":             "foo",
		"Foo_bar-1":       "Foo_bar-1",
		"a.b":             "a=2Eb",
		"a_b":             "a_b",
		"a=2Eb":           "a=3D2Eb",
		"":                "=",
		"=":               "=3D",
		">":               "=3E",
		"*":               "=2A",
		" ":               "=20",
		"ü":               "=C3=BC",
		"a\r\nPUB x":      "a=0D=0APUB=20x",
		"$JS.API":         "=24JS=2EAPI",
		"..":              "=2E=2E",
		"\x00":            "=00",
		"h0123":           "h0123",
		"consumer.offset": "consumer=2Eoffset",
	} {
		if got := pubsub.Token(name); got != want {
			t.Errorf("Token(%q) = %q, want %q", name, got, want)
		}
		if got, ok := pubsub.Name(want); !ok || got != name {
			t.Errorf("Name(%q) = %q, %v, want %q", want, got, ok, name)
		}
	}
}

func TestTokenHashed(t *testing.T) {
	t.Parallel()
	long := []string{
		strings.Repeat("n", 201), strings.Repeat("n", 249), strings.Repeat("n", 248) + "m",
		strings.Repeat(".", 67), strings.Repeat("a", 199) + ".", strings.Repeat("\xff", 64<<10),
	}
	seen := map[string]string{}
	for _, name := range long {
		tok := pubsub.Token(name)
		if len(tok) != 66 || !strings.HasPrefix(tok, "=h") {
			t.Errorf("token of %d bytes is %q, want the hash form", len(name), tok)
		}
		if other, ok := seen[tok]; ok {
			t.Errorf("%.20q and %.20q share a token", name, other)
		}
		seen[tok] = name
		if got, ok := pubsub.Name(tok); ok {
			t.Errorf("Name(%q) = %.20q: a hash has no inverse", tok, got)
		}
	}
	for _, name := range []string{strings.Repeat("n", 200), strings.Repeat(".", 66), strings.Repeat(".", 66) + "ab"} {
		tok := pubsub.Token(name)
		if got, ok := pubsub.Name(tok); len(tok) > 200 || !ok || got != name {
			t.Errorf("%.20q of %d bytes: token %.20q of %d, back %v", name, len(name), tok, len(tok), ok)
		}
	}
}

func TestNameRefuses(t *testing.T) {
	t.Parallel()
	for _, tok := range []string{
		"", "a.b", "*", ">", "a b", "=2", "=2e", "=2G", "a=", "==", "=41", "=5F", "=2D", "=h", "=h00",
		"=h" + strings.Repeat("0", 64), strings.Repeat("n", 201), "ü",
	} {
		if name, ok := pubsub.Name(tok); ok {
			t.Errorf("Name(%q) = %q, want refused", tok, name)
		}
	}
}

// asToken is what NATS takes as one literal token in subjects, stream names
// and keys alike.
var asToken = regexp.MustCompile(`^[A-Za-z0-9_=-]{1,200}$`)

// names that are likely to collide if anything does.
var tricky = rapid.OneOf(
	rapid.String(),
	rapid.StringOfN(rapid.SampledFrom([]rune{'.', '_', '=', '-', '2', 'E', 'e', '*', '>', ' ', 'h', '\x00', 'ü'}), 0, 6, -1),
	rapid.Custom(func(t *rapid.T) string { return string(rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "bytes")) }),
	rapid.Custom(func(t *rapid.T) string {
		return strings.Repeat(rapid.SampledFrom([]string{"a", ".", "=", "=2E"}).Draw(t, "unit"), rapid.IntRange(0, 250).Draw(t, "n"))
	}),
)

func TestC08TokenProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, b := tricky.Draw(t, "a"), tricky.Draw(t, "b")
		ta, tb := pubsub.Token(a), pubsub.Token(b)
		if !asToken.MatchString(ta) {
			t.Fatalf("Token(%q) = %q is no token", a, ta)
		}
		if (a == b) != (ta == tb) {
			t.Fatalf("%q and %q: tokens %q and %q", a, b, ta, tb)
		}
		if name, ok := pubsub.Name(ta); ok && name != a || !ok && !strings.HasPrefix(ta, "=h") {
			t.Fatalf("Name(Token(%q)) = %q, %v", a, name, ok)
		}
		// What Name accepts is exactly what Token makes.
		if name, ok := pubsub.Name(b); ok && pubsub.Token(name) != b {
			t.Fatalf("Name(%q) = %q, whose token is %q", b, name, pubsub.Token(name))
		}
	})
}

func FuzzToken(f *testing.F) {
	for _, s := range []string{"", "foo", "a.b", "=2E", "=h", "ü", ">", strings.Repeat(".", 100)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		tok := pubsub.Token(s)
		if !asToken.MatchString(tok) {
			t.Fatalf("Token(%q) = %q is no token", s, tok)
		}
		if name, ok := pubsub.Name(tok); ok && name != s || !ok && len(tok) != 66 {
			t.Fatalf("Name(Token(%q)) = %q, %v", s, name, ok)
		}
		if name, ok := pubsub.Name(s); ok && pubsub.Token(name) != s {
			t.Fatalf("Name(%q) = %q, whose token is %q", s, name, pubsub.Token(name))
		}
	})
}
