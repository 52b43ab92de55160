package client

import (
	"bytes"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func TestFormat(t *testing.T) {
	t.Parallel()
	full := &kgo.Record{Topic: "t", Partition: 2, Offset: 7, Timestamp: time.UnixMilli(1700000000123), Key: []byte("k"), Value: []byte("a\xff\n"),
		Headers: []kgo.RecordHeader{{Key: "x", Value: []byte("1")}, {Key: "y"}}}
	for s, want := range map[string]string{
		"":                      "",
		`%v\n`:                  "a\xff\n\n",
		`%t/%p:%o %T %d`:        "t/2:7 1700000000123 2023-11-14T22:13:20.123Z",
		`%k=%s %K %V %S`:        "k=a\xff\n 1 3 3",
		`[%h]`:                  "[x=1,y=-]",
		`100%%\t\r\0\\\x41\xff`: "100%\t\r\x00\\A\xff",
	} {
		f, err := parseFormat(s, "-")
		if err != nil {
			t.Errorf("%q: %v", s, err)
			continue
		}
		var b bytes.Buffer
		for _, part := range f {
			part(&b, full)
		}
		if b.String() != want {
			t.Errorf("%q: %q, want %q", s, b.String(), want)
		}
	}
	f, err := parseFormat("%k|%v|%K|%V|%h", "NULL")
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	for _, part := range f {
		part(&b, &kgo.Record{})
	}
	if b.String() != "NULL|NULL|-1|-1|" {
		t.Errorf("nulls: %q", b.String())
	}
	for _, s := range []string{"%", "%q", "x%", `\`, `\q`, `\x`, `\x4`, `\xzz`, `%v\x4`} {
		if _, err := parseFormat(s, ""); err == nil {
			t.Errorf("%q is taken", s)
		}
	}
}
