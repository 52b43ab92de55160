package protocol

import (
	"bytes"
	"context"
	"encoding/binary"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/serde"
)

// request bytes without the frame's length. id nil is the null client id;
// tags is the number of unknown tagged fields in a flexible header.
func requestBytes(req kmsg.Request, corr int32, id *string, tags int) []byte {
	b := binary.BigEndian.AppendUint16(nil, uint16(req.Key()))
	b = binary.BigEndian.AppendUint16(b, uint16(req.GetVersion()))
	b = binary.BigEndian.AppendUint32(b, uint32(corr))
	if id == nil {
		b = append(b, 0xff, 0xff)
	} else {
		b = binary.BigEndian.AppendUint16(b, uint16(len(*id)))
		b = append(b, *id...)
	}
	if req.IsFlexible() {
		b = append(b, byte(tags))
		for i := range tags {
			b = append(b, byte(100+i), 2, 'x', 'y')
			if 100+i > 127 {
				panic("tag number of two bytes")
			}
		}
	}
	return req.AppendTo(b)
}

func framed(b []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...)
}

// plausible makes a filled request one that is answered, soon.
func plausible(req kmsg.Request) {
	switch r := req.(type) {
	case *kmsg.ProduceRequest:
		r.Acks = -1
	case *kmsg.FetchRequest:
		r.MaxWaitMillis, r.SessionEpoch = 0, -1
	case *kmsg.ApiVersionsRequest:
		r.ClientSoftwareName, r.ClientSoftwareVersion = "some-client", "1.2.3"
	case *kmsg.MetadataRequest:
		for i := range r.Topics {
			r.Topics[i].TopicID = [16]byte{}
		}
	}
}

// TestC03HeaderForms: each key and version over a socket.
func TestC03HeaderForms(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.autoCreate = true
	s := startServer(t, w, nil)
	p := s.dial(t)
	corr := int32(0)
	ids := []*string{nil, ptr(""), ptr("rdkafka"), ptr(strings.Repeat("i", 32_000)), ptr("a\r\n\xff\xfe")}
	every(func(a *api, v int16) {
		for i, id := range ids {
			for _, tags := range []int{0, 2, 16} {
				f := newFiller(uint64(i))
				f.tags = tags
				req := kmsg.RequestForKey(a.key)
				req.SetVersion(v)
				f.fill(req)
				plausible(req)
				corr++
				p.sent[corr] = req
				p.write(framed(requestBytes(req, corr, id, tags)))
				if got, _ := p.recv(); got != corr {
					t.Fatalf("key %d v%d: answer to %d, not to %d", a.key, v, got, corr)
				}
			}
		}
	})
	if n := s.value(t, "stream_bad_requests_total"); n != 0 {
		t.Errorf("%v bad requests", n)
	}
	if n := s.value(t, "stream_kafka_requests_total"); n != float64(corr) {
		t.Errorf("%v requests were counted of %d", n, corr)
	}
}

// treat handles one request's bytes on a connection without a socket.
func treat(s *Server, b []byte) (resp kmsg.Response, err error) {
	f := newFrame(s, len(b))
	f.buf = append(f.buf, b...)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	c := &conn{srv: s, host: "fuzz", ctx: ctx, cancel: cancel}
	k := c.parse(f)
	defer k.letGo()
	if k.err != nil {
		return nil, k.err
	}
	if k.api.submit != nil {
		if k.start(); k.err != nil {
			return nil, k.err
		}
		return k.wait()
	}
	if err := k.decode(); err != nil {
		return nil, err
	}
	return k.api.serve(s.handler, ctx, &k.request)
}

// offline is a server without listeners, for treat.
func offline(b Backend) *Server {
	c := DefaultConfig()
	c.FetchMaxWait = 1
	return New(c, b, discard, nil)
}

// TestC03Row06CutAtEveryByte: what is cut is closed, never a panic
// and never served as if it were whole.
func TestC03Row06CutAtEveryByte(t *testing.T) {
	t.Parallel()
	s := offline(newWorld())
	every(func(a *api, v int16) {
		req := kmsg.RequestForKey(a.key)
		req.SetVersion(v)
		newFiller(uint64(v)).fill(req)
		plausible(req)
		b := requestBytes(req, 1, ptr("id"), 1)
		if _, err := treat(s, b); err != nil {
			t.Errorf("key %d v%d whole: %v", a.key, v, err)
		}
		if _, err := treat(s, append(b, 1, 2, 3)); err != nil {
			t.Errorf("key %d v%d with trailing bytes: %v", a.key, v, err)
		}
		for i := 8; i < len(b); i++ {
			if resp, err := treat(s, b[:i]); err == nil && firstError(resp) != kerr.InvalidRequest.Code {
				t.Errorf("key %d v%d cut at %d of %d was served", a.key, v, i, len(b))
			}
		}
	})
}

// TestC03Row06CutOverSocket: the same on the wire, for one API: closed, counted, and the
// next client is served.
func TestC03Row06CutOverSocket(t *testing.T) {
	t.Parallel()
	s := startServer(t, newWorld(), nil)
	req := &kmsg.MetadataRequest{Version: 12, Topics: []kmsg.MetadataRequestTopic{{Topic: ptr("t0")}}}
	b := requestBytes(req, 1, ptr("id"), 2)
	for i := 8; i < len(b); i++ {
		p := s.dial(t)
		p.write(framed(b[:i]))
		p.closed("cut")
		_ = p.Close()
	}
	if n := s.value(t, "stream_bad_requests_total"); n != float64(len(b)-8) {
		t.Errorf("%v bad requests counted, want %d", n, len(b)-8)
	}
	p := s.dial(t)
	p.write(framed(append(b, 0, 0, 0)))
	p.sent[1] = req
	p.recv()
	if n := s.value(t, "stream_trailing_bytes_requests_total"); n != 1 {
		t.Errorf("%v requests with trailing bytes counted", n)
	}
}

// TestC05FirstBytesThatAreNoLength: closed at once without an answer; rows 1, 4,
// 5, 10, 11 and 12 have more of the kind.
func TestC05FirstBytesThatAreNoLength(t *testing.T) {
	t.Parallel()
	s := startServer(t, newWorld(), nil)
	be := func(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }
	meta := func(body ...byte) []byte {
		return framed(append([]byte{0, 3, 0, 1, 0, 0, 0, 1, 0, 0}, body...))
	}
	for name, b := range map[string][]byte{
		"TLS hello": {0x16, 3, 1, 0, 0x80, 1}, "HTTP": []byte("GET / HTTP/1.1\r\n\r\n"), "0": be(0), "-1": be(0xffffffff), "1": be(1), "7": be(7),
		"100 MiB and 1": be(104857601), "2^31-1": be(1<<31 - 1),
		"2^31-1 topics":   meta(append(be(1<<31-1), make([]byte, 16)...)...),
		"-2 topics":       meta(be(0xfffffffe)...),
		"name of -2":      meta(append(be(1), 0xff, 0xfe)...),
		"key 999":         framed([]byte{3, 231, 0, 0, 0, 0, 0, 1, 0xff, 0xff}),
		"key -1":          framed([]byte{0xff, 0xff, 0, 0, 0, 0, 0, 1, 0xff, 0xff}),
		"Fetch 99":        framed([]byte{0, 1, 0, 99, 0, 0, 0, 1, 0xff, 0xff}),
		"Fetch -1":        framed([]byte{0, 1, 0xff, 0xff, 0, 0, 0, 1, 0xff, 0xff}),
		"2^32-1 tags":     framed([]byte{0, 3, 0, 9, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x0f}),
		"17 header tags":  framed(append([]byte{0, 3, 0, 9, 0, 0, 0, 1, 0xff, 0xff, 17}, bytes.Repeat([]byte{1, 0}, 17)...)),
		"varint of 11":    framed(append([]byte{0, 3, 0, 9, 0, 0, 0, 1, 0xff, 0xff, 0}, bytes.Repeat([]byte{0xff}, 11)...)),
		"null name in v9": framed([]byte{0, 3, 0, 9, 0, 0, 0, 1, 0xff, 0xff, 0, 2, 0, 0, 0, 0, 0, 0}),
	} {
		p := s.dial(t)
		p.write(b)
		p.closed(name)
	}
	if n := s.value(t, "stream_panics_total"); n != 0 {
		t.Errorf("%v panics", n)
	}
	// The element budget, in the largest frame.
	body := be(4 << 20)
	p := s.dial(t)
	go func() { _, _ = p.Write(meta(append(body, make([]byte, 8<<20)...)...)) }()
	p.closed("4 million topics")
	if n := s.value(t, "stream_bad_requests_total", "elements"); n != 1 {
		t.Errorf("%v counted as above the element budget", n)
	}
}

// TestC01UnknownAPIVersionsVersion: an answer in version 0, byte for byte, and
// the connection goes on.
func TestC01UnknownAPIVersionsVersion(t *testing.T) {
	t.Parallel()
	s := startServer(t, newWorld(), nil)
	p := s.dial(t)
	for name, b := range map[string][]byte{
		"99": {0, 0x12, 0, 0x63, 0, 0, 0, 7, 0, 1, 0x78, 0, 1, 0, 0}, "5": {0, 0x12, 0, 5, 0, 0, 0, 7, 0xff, 0xff}, "32767": {0, 0x12, 0x7f, 0xff, 0, 0, 0, 7, 0, 0},
		"nothing behind the id": {0, 0x12, 0, 5, 0, 0, 0, 7},
	} {
		p.write(framed(b))
		got, err := p.frame()
		if want := []byte{0, 0, 0, 7, 0, 0x23, 0, 0, 0, 1, 0, 0x12, 0, 0, 0, 4}; err != nil || !bytes.Equal(got, want) {
			t.Errorf("version %s: % x, %v; want % x", name, got, err, want)
		}
	}
	v := ask[*kmsg.ApiVersionsResponse](p, 3, &kmsg.ApiVersionsRequest{ClientSoftwareName: "x", ClientSoftwareVersion: "1"})
	if v.ErrorCode != 0 || len(v.ApiKeys) != len(apis) {
		t.Errorf("after that: %+v", v)
	}
}

func FuzzRequest(f *testing.F) {
	every(func(a *api, v int16) {
		req := kmsg.RequestForKey(a.key)
		req.SetVersion(v)
		newFiller(uint64(v)).fill(req)
		plausible(req)
		f.Add(a.key, v, requestBytes(req, 1, ptr("id"), 1)[8:])
	})
	f.Add(int16(18), int16(99), []byte{0, 1, 0x78, 0, 1, 0, 0})
	f.Add(int16(3), int16(1), []byte{0xff, 0xff, 0x7f, 0xff, 0xff, 0xff})
	f.Add(int16(0), int16(9), requestBytes(func() kmsg.Request {
		r := produceOf(newWorld(), "t0", 1, batch(1, 10))
		r.SetVersion(9)
		return r
	}(), 1, nil, 0)[8:])
	f.Fuzz(func(t *testing.T, key, version int16, rest []byte) {
		s := offline(newWorld())
		b := binary.BigEndian.AppendUint16(nil, uint16(key))
		b = binary.BigEndian.AppendUint16(b, uint16(version))
		b = append(append(b, 0, 0, 0, 1), rest...)
		resp, err := treat(s, b)
		if held := s.budget.held(); held != 0 {
			t.Fatalf("%d bytes are still held", held)
		}
		if err != nil || resp == nil {
			return
		}
		if resp.Key() != key {
			t.Fatalf("answer of key %d", resp.Key())
		}
		if v := resp.GetVersion(); v != version && (key != 18 || v != 0) {
			t.Fatalf("answer in version %d", v)
		}
		var out []byte
		if fr, ok := resp.(*fetchResponse); ok {
			pieces, _ := fr.encode(make([]byte, 8), 0)
			out = bytes.Join(pieces, nil)[8:]
			fr.release()
		} else {
			out = resp.AppendTo(nil)
		}
		back := kmsg.ResponseForKey(key)
		back.SetVersion(resp.GetVersion())
		if err := back.ReadFrom(out); err != nil {
			t.Fatalf("the answer cannot be read: %v", err)
		}
		// What we took, kmsg takes, and both see the same end.
		if _, rest, err := serde.ParseRequestHeader(b); err != nil || rest == nil {
			t.Fatal("served without a header")
		}
	})
}
