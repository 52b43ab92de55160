package jetstream

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/hanzoai/stream/pubsub"
)

func TestErrorMap(t *testing.T) {
	none := errors.New("none")
	for code, want := range map[int]error{
		10071: pubsub.ErrConflict, 10164: pubsub.ErrConflict,
		10008: pubsub.ErrUnavailable, 10167: pubsub.ErrUnavailable, 10210: pubsub.ErrUnavailable, 10158: pubsub.ErrUnavailable,
		10023: pubsub.ErrFull, 10047: pubsub.ErrFull, 10077: pubsub.ErrFull, 10002: pubsub.ErrFull,
		10060: pubsub.ErrNotFound, 10059: pubsub.ErrNotFound, 10037: pubsub.ErrNotFound,
		10097: pubsub.ErrTooLarge, 10054: pubsub.ErrTooLarge,
		10058: pubsub.ErrExists, 10065: pubsub.ErrExists,
		10003: none, 10074: none, 10174: none, 10176: none,
	} {
		all := []error{pubsub.ErrConflict, pubsub.ErrOutcomeUnknown, pubsub.ErrUnavailable, pubsub.ErrFull, pubsub.ErrNotFound, pubsub.ErrTooLarge, pubsub.ErrExists}
		for _, f := range []func(error) error{readError, writeError} {
			err := f(&apiError{Code: 400, ErrCode: code, Description: "x"})
			for _, s := range all {
				is := s == want || want == pubsub.ErrFull && s == pubsub.ErrUnavailable
				if errors.Is(err, s) != is {
					t.Errorf("%d: %v: errors.Is %v is %v", code, err, s, !is)
				}
			}
		}
		if got := isConflict(&apiError{ErrCode: code}); got != (want == pubsub.ErrConflict) {
			t.Errorf("isConflict(%d) = %v", code, got)
		}
	}
	for _, c := range []struct{ err, read, write error }{
		{errNotSent, pubsub.ErrUnavailable, pubsub.ErrUnavailable},
		{errNoAnswer, pubsub.ErrUnavailable, pubsub.ErrOutcomeUnknown},
		{errNoResponders, pubsub.ErrUnavailable, pubsub.ErrOutcomeUnknown},
		{errors.Join(errNotSent, nats.ErrMaxPayload), pubsub.ErrUnavailable, pubsub.ErrTooLarge},
		{errors.Join(errNotSent, context.Canceled), pubsub.ErrUnavailable, context.Canceled},
	} {
		if err := readError(c.err); !errors.Is(err, c.read) {
			t.Errorf("readError(%v) = %v", c.err, err)
		}
		if err := writeError(c.err); !errors.Is(err, c.write) {
			t.Errorf("writeError(%v) = %v", c.err, err)
		}
	}
}

func TestVersions(t *testing.T) {
	minimum, err := parseVersion(MinVersion)
	if err != nil {
		t.Fatal(err)
	}
	for s, want := range map[string]struct{ tooOld, warn, bad bool }{
		"2.9.25": {tooOld: true, warn: true}, "2.10.22": {tooOld: true, warn: true},
		"2.10.23": {warn: true}, "2.10.29": {warn: true}, "v2.11.17": {warn: true},
		"2.12.11": {warn: true}, "2.12.12": {}, "2.13.9": {warn: true}, "2.14.2": {warn: true},
		"2.14.3": {}, "2.15.0-RC.1": {}, "3.0.0": {}, "": {bad: true}, "2.x.1": {bad: true},
	} {
		v, err := parseVersion(s)
		if (err != nil) != want.bad {
			t.Errorf("parse %q: %v", s, err)
		}
		if err == nil && (v.less(minimum) != want.tooOld || v.belowFloor() != want.warn) {
			t.Errorf("%q: too old %v, warned %v", s, v.less(minimum), v.belowFloor())
		}
	}
}

func TestShownURL(t *testing.T) {
	for in, want := range map[string]string{
		"nats://a:4222":                        "nats://a:4222",
		"nats://me:secret@a:4222, tls://tok@b": "nats://a:4222,tls://b",
		"me:secret@a:4222":                     "a:4222",
		"localhost":                            "localhost",
	} {
		if got := shownURL(Config{URL: in}); got != want {
			t.Errorf("%q is shown as %q, want %q", in, got, want)
		}
	}
}

func TestPosition(t *testing.T) {
	for reply, ok := range map[string]bool{
		"$JS.ACK.s.c.1.7.3.1700000000000000001.9":          true,
		"$JS.ACK._.hash.s.c.1.7.3.1700000000000000001.9":   true,
		"$JS.ACK.d.hash.s.c.1.7.3.1700000000000000001.9.t": true,
		"$JS.ACK.s.c.1.7.3.9":                              false,
		"_INBOX.x.1":                                       false,
		"$JS.ACK.s.c.1.x.3.1700000000000000001.9":          false,
	} {
		p, got := parsePosition(reply)
		if got != ok || ok && (p.seq != 7 || p.count != 3 || p.pending != 9 || p.time.UnixNano() != 1700000000000000001) {
			t.Errorf("%s: %+v, %v", reply, p, got)
		}
	}
}

func TestFilters(t *testing.T) {
	tb := &table{root: "$KV.b."}
	for _, c := range []struct{ patterns, filters, match []string }{
		{nil, []string{"$KV.b.>"}, nil},
		{[]string{"g", "g.>"}, []string{"$KV.b.g", "$KV.b.g.>"}, nil},
		{[]string{"g.a", "g.*"}, []string{"$KV.b.g.*"}, nil},
		{[]string{"g.a", "g.a"}, []string{"$KV.b.g.a"}, nil},
		{[]string{">", "g.a"}, []string{"$KV.b.>"}, nil},
		{[]string{"*.a", "g.*"}, []string{"$KV.b.>"}, []string{"*.a", "g.*"}},
		{[]string{"*.a.>", "g.>"}, []string{"$KV.b.>"}, []string{"*.a.>", "g.>"}},
	} {
		f, m := tb.filterSubjects(c.patterns)
		if !slices.Equal(f, c.filters) || !slices.Equal(m, c.match) {
			t.Errorf("%v: %v, %v", c.patterns, f, m)
		}
	}
}

func TestBudget(t *testing.T) {
	b := newBudget(10)
	if n, err := b.take(t.Context(), 50); n != 10 || err != nil {
		t.Fatalf("take of more than there is: %d, %v", n, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	big, small := make(chan error, 1), make(chan error, 1)
	waits := func(n int) {
		for {
			b.mu.Lock()
			got := len(b.queue)
			b.mu.Unlock()
			if got == n {
				return
			}
		}
	}
	go func() { _, err := b.take(ctx, 8); big <- err }()
	waits(1)
	go func() { _, err := b.take(t.Context(), 1); small <- err }()
	waits(2)
	b.give(3)
	waits(2) // the small one does not pass the big one
	cancel()
	if err := <-big; !errors.Is(err, context.Canceled) {
		t.Errorf("take: %v", err)
	}
	if err := <-small; err != nil {
		t.Errorf("take: %v", err)
	}
	if b.used != 8 || len(b.queue) != 0 {
		t.Errorf("%d used, %d waiting", b.used, len(b.queue))
	}
}

func TestLoginOptions(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", dir)
	write := func(path, text string) string {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("nats/context/prod.json", `{"description":"x","url":"nats://a:4222","user":"u","password":"pw","inbox_prefix":"_IN"}`)
	path := write("other.json", `{"url":"nats://b:4222","token":"tok"}`)
	write("nats/context/bad.json", `{"password":"secret" oops`)
	write("nats/context/nsc.json", `{"nsc":"nsc://x"}`)
	write("nats/context/hub.json", `{"url":"nats://a:4222","jetstream_domain":"hub"}`)
	write("nats/context/many.json", `{"url":"nats://a:4222","jetstream_domain":"hub.>"}`)
	creds := write("u.creds", "x")

	apply := func(l Login) (nats.Options, string) {
		t.Helper()
		a, err := LoginOptions(l)
		if err != nil {
			t.Fatalf("%+v: %v", l, err)
		}
		o := nats.GetDefaultOptions()
		for _, f := range a.Options {
			if err := f(&o); err != nil {
				t.Fatal(err)
			}
		}
		return o, a.URL
	}
	if o, url := apply(Login{Context: "prod"}); url != "nats://a:4222" || o.User != "u" || o.Password != "pw" || o.InboxPrefix != "_IN" {
		t.Errorf("context by name: %s %+v", url, o)
	}
	if o, _ := apply(Login{Context: "prod", User: "me", Password: "mine"}); o.User != "me" || o.Password != "mine" {
		t.Errorf("user beside a context: %s", o.User)
	}
	if o, url := apply(Login{Context: path}); url != "nats://b:4222" || o.Token != "tok" {
		t.Errorf("context by path: %s %+v", url, o)
	}
	if o, url := apply(Login{Creds: creds}); url != "" || o.UserJWT == nil {
		t.Errorf("credentials: %s %+v", url, o)
	}
	if a, err := LoginOptions(Login{Context: "hub"}); err != nil || a.Domain != "hub" {
		t.Errorf("context with a domain: %+v, %v", a, err)
	}
	if o, _ := apply(Login{}); o.User != "" || o.UserJWT != nil || o.Secure {
		t.Errorf("no login: %+v", o)
	}
	for _, l := range []Login{
		{Context: "absent"}, {Context: "../prod"}, {Context: "bad"}, {Context: "nsc"}, {Context: "many"}, {Creds: filepath.Join(dir, "absent")},
		{NKey: creds}, {TLSCert: creds}, {TLSCA: filepath.Join(dir, "absent")},
	} {
		if _, err := LoginOptions(l); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%+v: %v", l, err)
		}
	}
}
