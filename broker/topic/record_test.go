package topic

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/types"
)

func TestRecordCarriesUnknownFields(t *testing.T) {
	t.Parallel()
	stored := `{"v":1,"name":"foo","id":"` + types.NewTopicID().String() + `","n":3,"bare":true,"state":"active","creator":"x","partitions":2,"replicas":1,"later":{"a":[1,2]},"also":null}`
	r, err := parseRecord(pubsub.Value{Key: "foo", Rev: 5, Data: []byte(stored)})
	if err != nil {
		t.Fatal(err)
	}
	b, err := r.with(deleting).encode()
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]json.RawMessage
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	if string(got["later"]) != `{"a":[1,2]}` || string(got["also"]) != "null" || string(got["state"]) != `"deleting"` || string(got["n"]) != "3" || len(got) != 11 {
		t.Errorf("written back: %s", b)
	}
}

func TestRecordRefusals(t *testing.T) {
	t.Parallel()
	id := types.NewTopicID().String()
	good := `{"v":1,"name":"foo","id":"` + id + `","n":3,"state":"active","partitions":2,"replicas":1}`
	for _, c := range []struct {
		old, new string
		format   bool // by a later version
	}{
		{`"v":1`, `"v":2`, true},
		{`"v":1`, `"v":0`, true},
		{`"active"`, `"frozen"`, true},
		{`"foo"`, `"bar"`, false},
		{`"n":3`, `"n":0`, false},
		{`"n":3`, `"n":6`, false},
		{`"partitions":2`, `"partitions":0`, false},
		{`"replicas":1`, `"replicas":0`, false},
		{`"partitions":2`, `"partitions":2,"growing":1`, false},
		{id, "x", false},
		{good, "{", false},
		{good, "", false},
		{good, "null", true},
	} {
		data := strings.Replace(good, c.old, c.new, 1)
		_, err := parseRecord(pubsub.Value{Key: "foo", Rev: 5, Data: []byte(data)})
		if err == nil || errors.Is(err, errFormat) != c.format {
			t.Errorf("%s: %v, unknown format should be %v", data, err, c.format)
		}
	}
	if _, err := parseRecord(pubsub.Value{Key: "foo", Rev: 5, Data: []byte(good)}); err != nil {
		t.Error(err)
	}
}

func TestRecordRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := &record{
			V: 1, Name: rapid.StringMatching(`[a-zA-Z0-9._-]{1,20}|n{249}`).Draw(t, "name"), ID: types.NewTopicID(),
			N: pubsub.Rev(rapid.Uint32Range(1, 9).Draw(t, "n")), Bare: rapid.Bool().Draw(t, "bare"),
			State:   rapid.SampledFrom([]state{creating, active, deleting}).Draw(t, "state"),
			Creator: "c", Partitions: rapid.Int32Range(1, 9).Draw(t, "partitions"), Replicas: 1,
			Configs: rapid.MapOf(rapid.String(), rapid.String()).Draw(t, "configs"),
		}
		b, err := r.encode()
		if err != nil {
			t.Fatal(err)
		}
		got, err := parseRecord(pubsub.Value{Key: pubsub.Token(r.Name), Rev: 9, Data: b})
		if err != nil {
			t.Fatal(err)
		}
		again, err := got.encode()
		if err != nil || string(again) != string(b) {
			t.Fatalf("%s became %s, %v", b, again, err)
		}
	})
}

func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"v":1,"name":"foo","id":"AAAAAAAAQACAAAAAAAAAAQ","n":3,"state":"active","partitions":2,"replicas":1,"x":1}`))
	f.Add([]byte(`{"v":1`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := parseRecord(pubsub.Value{Key: "foo", Rev: 5, Data: b})
		if err != nil {
			return
		}
		out, err := r.with(deleting).encode()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parseRecord(pubsub.Value{Key: "foo", Rev: 6, Data: out}); err != nil {
			t.Fatalf("%s was written back as %s: %v", b, out, err)
		}
	})
}
