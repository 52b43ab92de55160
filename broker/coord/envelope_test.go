package coord

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"

	"github.com/hanzoai/stream/compress"
	"github.com/hanzoai/stream/pubsub"
)

type inner struct {
	A int `json:"a"`
	B string
}

type sample struct {
	inner
	C []byte `json:"c,omitempty"`
	D int    `json:"-"`
}

// What is not known is carried through, in a fixed order.
func TestMarshalUnknown(t *testing.T) {
	for _, in := range []string{
		`{"a":1,"B":"x","c":"AA=="}`,
		`{"a":1,"B":"x","later":{"y":[1,2,{}]},"z\"":null}`,
		`{"a":0,"B":"","D":3}`,
	} {
		var s sample
		extra, err := Unmarshal([]byte(in), &s)
		if err != nil {
			t.Fatal(err)
		}
		out, err := Marshal(s, extra)
		if err != nil || string(out) != in {
			t.Errorf("%s became %s, %v", in, out, err)
		}
		if _, err := Unmarshal(out, &s); err != nil {
			t.Error(err)
		}
	}
	var empty struct{}
	extra, err := Unmarshal([]byte(`{"q":1}`), &empty)
	if out, merr := Marshal(empty, extra); err != nil || merr != nil || string(out) != `{"q":1}` {
		t.Errorf("%s, %v, %v", out, err, merr)
	}
	if _, err := Unmarshal([]byte(`[1]`), &empty); err == nil {
		t.Error("an array was read as an object")
	}
}

func TestPack(t *testing.T) {
	for _, n := range []int{0, 1, compressAbove, compressAbove + 1, 1 << 20} {
		body := append([]byte(`{"x":"`), bytes.Repeat([]byte("a"), n)...)
		packed, err := pack(body)
		if err != nil {
			t.Fatal(err)
		}
		if small := len(body) <= compressAbove; small != bytes.Equal(packed, body) {
			t.Errorf("%d bytes: readable %v", len(body), !small)
		}
		got, err := unpack(packed)
		if err != nil || !bytes.Equal(got, body) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	bomb, err := pack(make([]byte, maxUnpacked+1))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unpack(bomb); !errors.Is(err, compress.ErrLimit) {
		t.Error("a bomb was unpacked")
	}
	if _, err := unpack([]byte{0x28, 0xb5, 0x2f, 0xfd, 1, 2, 3}); err == nil {
		t.Error("rubbish was unpacked")
	}
}

func TestOpen(t *testing.T) {
	_, e, err := Open(pubsub.Value{Key: "k", Rev: 7, Data: []byte(`{"v":1,"owner":{"node":3,"incarnation":"x","term":2}}`)})
	if err != nil || e.Birth != 7 || e.Owner != (Owner{3, "x", 2}) {
		t.Errorf("%+v, %v", e, err)
	}
	if _, e, err = Open(pubsub.Value{Key: "k", Rev: 7, Data: []byte(`{"v":1,"birth":5}`)}); err != nil || e.Birth != 5 {
		t.Errorf("%+v, %v", e, err)
	}
	for _, in := range []string{`{"v":2}`, `{}`} {
		if _, _, err := Open(pubsub.Value{Data: []byte(in)}); !errors.Is(err, ErrVersion) {
			t.Errorf("%s: %v", in, err)
		}
	}
	if _, _, err := Open(pubsub.Value{Data: []byte(`x`)}); err == nil {
		t.Error("rubbish was opened")
	}
}

func TestHeaders(t *testing.T) {
	e := Envelope{Owner: Owner{-1, "abc", 1 << 60}}
	for _, released := range []bool{false, true} {
		e.Released = released
		o, r, ok := ownerOf(header(e, pubsub.Header{"X": {"y"}}))
		if o != e.Owner || r != released || !ok {
			t.Errorf("%+v, %v, %v", o, r, ok)
		}
	}
	for _, h := range []pubsub.Header{nil, {ownerHeader: {"1 x"}}, {ownerHeader: {"x x 1"}}, {ownerHeader: {"1 x x"}}} {
		if _, _, ok := ownerOf(h); ok {
			t.Errorf("%v has an owner", h)
		}
	}
}

func TestIndex(t *testing.T) {
	var x index
	x.init()
	v := func(key string, rev pubsub.Rev, deleted bool) pubsub.Value {
		return pubsub.Value{Key: key, Rev: rev, Deleted: deleted, Header: header(Envelope{}, nil)}
	}
	has := func(key string) pubsub.Rev {
		for _, e := range x.list() {
			if e.Key == key {
				return e.Rev
			}
		}
		return 0
	}
	x.put(v("a", 5, false), false) // our own write, before the watch shows it
	x.put(v("a", 3, false), true)
	if has("a") != 5 {
		t.Errorf("a at %d", has("a"))
	}
	x.put(v("a", 6, true), false) // our own delete
	x.put(v("a", 5, false), true) // the watch, late
	if has("a") != 0 {
		t.Error("a came back")
	}
	x.put(v("a", 6, true), true)
	x.put(v("a", 9, false), true)
	if has("a") != 9 {
		t.Errorf("a at %d", has("a"))
	}
	x.put(v("b", 10, false), true)
	x.reset()
	x.put(v("b", 10, false), true)
	x.synced()
	if has("a") != 0 || has("b") != 10 {
		t.Error("a key that vanished while the watch was away is still there")
	}
}

func FuzzUnmarshal(f *testing.F) {
	f.Add([]byte(`{"a":1,"B":"x","later":{}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var s sample
		extra, err := Unmarshal(data, &s)
		if err != nil {
			return
		}
		out, err := Marshal(s, extra)
		if err != nil || !json.Valid(out) {
			t.Fatalf("%q became %q, %v", data, out, err)
		}
	})
}
