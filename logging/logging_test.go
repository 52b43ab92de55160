package logging

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func lines(t *testing.T, b *bytes.Buffer) []map[string]any {
	t.Helper()
	var out []map[string]any
	for l := range strings.Lines(b.String()) {
		var m map[string]any
		if err := json.Unmarshal([]byte(l), &m); err != nil {
			t.Fatalf("line %q: %v", l, err)
		}
		out = append(out, m)
	}
	return out
}

func TestSecretNeverPrints(t *testing.T) {
	t.Parallel()
	const planted = "hunter2-planted"
	s := NewSecret(planted)
	type inner struct{ s Secret }
	type outer struct {
		Public Secret
		hidden inner
		p      *Secret
	}
	o := outer{s, inner{s}, &s}
	var out strings.Builder
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		fmt.Fprintf(&out, verb+" "+verb+" "+verb+"\n", s, o, &o)
	}
	j, err := json.Marshal(map[string]any{"a": s, "b": o, "c": &s})
	if err != nil {
		t.Fatal(err)
	}
	out.Write(j)
	var log bytes.Buffer
	for _, f := range []string{JSON, Text} {
		l := New(&log, Options{Format: f})
		l.Info("m", "a", s, "b", o, "c", &o, "d", fmt.Errorf("wrap %v", s), slog.Group("g", "x", s))
	}
	out.Write(log.Bytes())
	if strings.Contains(out.String(), planted) || strings.Contains(out.String(), fmt.Sprintf("%x", planted)) {
		t.Fatalf("secret shown:\n%s", out.String())
	}
	if s.Reveal() != planted || s.String() != Mask || NewSecret("").String() != "" || !NewSecret("").IsZero() {
		t.Fatal("Reveal or String is wrong")
	}
}

func TestRedactURLs(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"nats://u:p@h:4222":                        "nats://***@h:4222",
		"nats://tok@h":                             "nats://***@h",
		"nats://u:p@ss@h:1,tls://a:b@c":            "nats://***@h:1,tls://***@c",
		`dial "nats://u:p@h": refused`:             `dial "nats://***@h": refused`,
		"nats://h:4222/x@y":                        "nats://h:4222/x@y",
		"mail a@b":                                 "mail a@b",
		"connect nats://u:p@h and http://v:w@i/x ": "connect nats://***@h and http://***@i/x ",
	} {
		if got := RedactURLs(in); got != want {
			t.Errorf("RedactURLs(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestHandlerCleansEverything(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	l := New(&b, Options{}).With("bound", "nats://u:pw@h")
	l.Info("to nats://u:pw@h", "err", errors.New("x nats://u:pw@h"), "long", strings.Repeat("é", maxValue),
		slog.Group("g", "u", "nats://u:pw@h"))
	if strings.Contains(b.String(), "pw@") {
		t.Fatalf("user info shown: %s", b.String())
	}
	m := lines(t, &b)[0]
	if s := m["long"].(string); len(s) > maxValue+40 || !strings.HasSuffix(s, "bytes more)") {
		t.Errorf("not cut: %d bytes", len(s))
	}
	if !strings.HasSuffix(m["time"].(string), "Z") {
		t.Errorf("time is not UTC: %v", m["time"])
	}
}

func TestPrintable(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"plain ü": "plain ü",
		"a\r\nb":  `a\r\nb`,
		"\xff\"":  `\xff"`,
		"":        "",
	} {
		if got := Printable(in); got != want {
			t.Errorf("Printable(%q) = %q, want %q", in, got, want)
		}
	}
	if got := Printable(strings.Repeat("\x00", 1<<20)); len(got) > 4*maxPrintable+40 {
		t.Errorf("%d bytes left", len(got))
	}
}

func TestThrottle(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	now := time.Unix(1000, 0)
	l := New(&b, Options{Level: slog.LevelDebug, Burst: 2, Window: time.Minute, Now: func() time.Time { return now }})
	a, c := l.With(Component, "a"), l.With(Component, "c")
	for range 5 {
		a.Warn("same")
		c.Warn("same")
		a.Debug("detail")
	}
	if got := len(lines(t, &b)); got != 2+2+5 {
		t.Fatalf("%d lines, want 9", got)
	}
	b.Reset()
	now = now.Add(time.Minute)
	a.Warn("same")
	a.Warn("same")
	ls := lines(t, &b)
	if len(ls) != 2 || ls[0][Suppressed] != float64(3) || ls[1][Suppressed] != nil {
		t.Fatalf("after the window: %v", ls)
	}
}

func TestThrottleIsBounded(t *testing.T) {
	t.Parallel()
	s := newThrottle(slog.DiscardHandler, Options{Burst: 1}).shared
	for i := range 10 * maxKinds {
		s.admit(kind{msg: fmt.Sprint(i)})
	}
	if len(s.kinds) > maxKinds {
		t.Fatalf("%d kinds remembered", len(s.kinds))
	}
}

func TestParseLevel(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]slog.Level{"debug": -4, "INFO": 0, "warn": 4, "error": 8} {
		if got, err := ParseLevel(in); err != nil || got != want {
			t.Errorf("ParseLevel(%q) = %v, %v", in, got, err)
		}
	}
	if _, err := ParseLevel("loud"); err == nil {
		t.Error("loud accepted")
	}
}
