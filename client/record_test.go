package client

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"
	"pgregory.net/rapid"
)

// Every record goes through JSON and back without a change.
func TestJSONRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		data := rapid.OneOf(rapid.Just([]byte(nil)), rapid.SliceOfN(rapid.Byte(), 0, 20), rapid.Map(rapid.String(), func(s string) []byte { return []byte(s) }))
		in := &kgo.Record{Topic: "t", Partition: 3, Offset: 9, Key: data.Draw(t, "key"), Value: data.Draw(t, "value"),
			Timestamp: time.UnixMilli(rapid.Int64Range(0, 253402300799999).Draw(t, "timestamp"))}
		for range rapid.IntRange(0, 3).Draw(t, "headers") {
			in.Headers = append(in.Headers, kgo.RecordHeader{Key: string(data.Draw(t, "name")), Value: data.Draw(t, "header")})
		}
		var b bytes.Buffer
		jsonLine(&b, in)
		line := b.Bytes()
		if bytes.IndexByte(line, '\n') != len(line)-1 || !json.Valid(line) {
			t.Fatalf("not one line of JSON: %q", line)
		}
		out, err := parseJSON(bytes.TrimSuffix(line, []byte("\n")))
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if !out.Timestamp.Equal(in.Timestamp) || !same(in.Key, out.Key) || !same(in.Value, out.Value) || len(in.Headers) != len(out.Headers) {
			t.Fatalf("%s\n%+v", line, out)
		}
		for i, h := range in.Headers {
			if g := out.Headers[i]; g.Key != h.Key || !same(g.Value, h.Value) {
				t.Fatalf("header %d of %s: %+v", i, line, g)
			}
		}
	})
}

// same knows that null is not empty.
func same(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }

func TestYAML(t *testing.T) {
	t.Parallel()
	type doc struct {
		Name  string            `json:"name"`
		N     int64             `json:"n"`
		Null  *string           `json:"null_value"`
		List  []string          `json:"list"`
		Empty []string          `json:"empty"`
		Map   map[string]string `json:"map"`
	}
	var b bytes.Buffer
	if err := writeYAML(&b, []doc{{Name: "86400000", N: 7, List: []string{"true", "a: b", "x\x7f\u0085\n", "<&>"}, Empty: []string{}, Map: map[string]string{"k": "v"}}}); err != nil {
		t.Fatal(err)
	}
	want := `- name: "86400000"
  n: 7
  null_value: null
  list:
    - "true"
    - 'a: b'
    - "x\x7F\N\n"
    - <&>
  empty: []
  map:
    k: v
`
	if d := cmp.Diff(want, b.String()); d != "" {
		t.Error(d)
	}
}
