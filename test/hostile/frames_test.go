//go:build hostile

package hostile

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func be32(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }

// served lists what the server serves, as it says itself.
func (r *rig) served(t testing.TB) []kmsg.ApiVersionsResponseApiKey {
	t.Helper()
	c := r.dial(t)
	defer c.Close()
	return ask[*kmsg.ApiVersionsResponse](t, c, at(0, kmsg.NewPtrApiVersionsRequest())).ApiKeys
}

// refusedBytes sends b on a connection of its own and wants its end, one line
// and one count.
func (r *rig) refusedBytes(t *testing.T, what, series string, b []byte) []line {
	t.Helper()
	return r.counted(t, what, series, 1, 1, func() {
		c := r.dial(t)
		defer c.Close()
		_, _ = c.Write(b) // it may be closed before all was taken
		c.closed(t, what)
	})
}

// closesAll sends each of bs on its own connection, several at a time, and wants
// the end of each.
func (r *rig) closesAll(t *testing.T, bs [][]byte) {
	t.Helper()
	work := make(chan []byte)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for b := range work {
				c, err := dial(r.Addr)
				if err != nil {
					t.Errorf("dial: %v", err)
					continue
				}
				_, _ = c.Write(framed(b))
				if err := c.end(patience); err != nil {
					t.Errorf("key %d v%d, %d bytes (% .60x): %v", binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:]), len(b), b, err)
				}
				_ = c.Close()
			}
		})
	}
	for _, b := range bs {
		work <- b
	}
	close(work)
	wg.Wait()
}

// fill gives every field of a request a value and every array n elements. No
// integer is 1 or looks like a length of an array.
func fill(v reflect.Value, n int) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), n)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[kmsg.Tags]() {
			return
		}
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() && f.Name != "Version" {
				fill(v.Field(i), n)
			}
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			v.SetBytes([]byte("0123456789"))
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			fill(v.Index(i), n)
		}
	case reflect.String:
		v.SetString("some-name")
	case reflect.Int8:
		v.SetInt(0)
	case reflect.Int16:
		v.SetInt(77)
	case reflect.Int32, reflect.Int64:
		v.SetInt(7_000_007)
	}
}

func filled(key, version int16) kmsg.Request {
	req := at(version, kmsg.RequestForKey(key))
	fill(reflect.ValueOf(req).Elem(), 1)
	return req
}

func TestRow01Lengths(t *testing.T) {
	r := start(t, "--frame-timeout", "1s")
	r.under(t, func() {
		for _, n := range []uint32{0xffffffff, 0x80000000, 0, 1, 7, 1<<31 - 1, 16<<20 + 1} {
			r.refusedBytes(t, fmt.Sprint("length ", int32(n)), bad("length"), be32(n))
		}
		// The largest that is allowed, then silence: nothing of that size is
		// held, and it ends with its time.
		from, before := len(r.Log()), r.scrape(t)[closedFor("frame.timeout")]
		stop := r.peak()
		var cs []*client
		for _, n := range []uint32{16 << 20, 8} {
			for range 50 {
				c := r.dial(t)
				_, _ = c.Write(be32(n))
				cs = append(cs, c)
			}
		}
		if held := r.scrape(t)[`stream_memory_used_bytes{pool="requests"}`]; held > 100*64<<10 {
			t.Errorf("%v bytes are held for 100 silent clients", held)
		}
		for _, c := range cs {
			c.closed(t, "silence after a length")
			_ = c.Close()
		}
		r.grown(t, "silence", closedFor("frame.timeout"), before+100)
		if n := len(r.lines(t, from)); n == 0 || n > 10 {
			t.Errorf("%d lines for 100 connections", n)
		}
		if most := stop(); most > r.resident+growth {
			t.Errorf("resident %.0f MiB at most, %.0f before", most/(1<<20), r.resident/(1<<20))
		}
	})
}

// Row 2 speaks of listeners with login, which are not served yet: what holds
// before a login there holds for every frame here, at socket.request.max.bytes.
func TestRow02LargestFrame(t *testing.T) {
	const limit = 1<<20 + 128<<10
	r := start(t, "--socket-request-max-bytes", fmt.Sprint(limit))
	r.under(t, func() {
		for _, key := range r.served(t) {
			if key.ApiKey == 0 || key.ApiKey == 1 || key.ApiKey == 11 || key.ApiKey == 22 {
				continue // long waits and side effects; the frame reader knows no keys
			}
			req := at(key.MaxVersion, kmsg.RequestForKey(key.ApiKey))
			if v, ok := req.(*kmsg.ApiVersionsRequest); ok {
				v.ClientSoftwareName, v.ClientSoftwareVersion = "hostile", "1"
			}
			b := encode(req, 1, "hostile")
			b = append(b, make([]byte, limit-len(b))...)
			c := r.dial(t)
			_, _ = c.Write(framed(b))
			if _, err := c.frame(patience); err != nil {
				t.Errorf("key %d with exactly the limit: %v", key.ApiKey, err)
			}
			_ = c.Close()
		}
		r.refusedBytes(t, "one byte more", bad("length"), be32(limit+1))
		r.refusedBytes(t, "one byte more, all sent", bad("length"), framed(make([]byte, limit+1)))
	})
}

func TestRow04OtherProtocols(t *testing.T) {
	r := start(t)
	r.under(t, func() {
		for what, b := range map[string]string{
			"TLS 1.3": "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "TLS 1.0": "\x16\x03\x00\x00\x80",
			"HTTP GET": "GET / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + secret + "\r\n\r\n", "HTTP POST": "POST /v1 HTTP/1.1\r\n\r\n" + secret,
			"HTTP/2": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "SSH": "SSH-2.0-OpenSSH_9.6\r\n", "NATS": "PING\r\n",
		} {
			lines := r.refusedBytes(t, what, bad("length"), []byte(b))
			want := strings.Fields(strings.ReplaceAll(what, "/", " "))[0]
			if len(lines) == 1 && !strings.Contains(lines[0].Error, "speaks "+want) {
				t.Errorf("%s: no hint in %q", what, lines[0].Error)
			}
		}
	})
}

func TestRow05KeysAndVersions(t *testing.T) {
	r := start(t)
	served := r.served(t)
	known := map[int16]bool{}
	for _, k := range served {
		known[k.ApiKey] = true
	}
	r.under(t, func() {
		r.refusedBytes(t, "key 999", bad("api"), framed(header(999, 0, 1, "x", false)))
		r.refusedBytes(t, "key -1", bad("api"), framed(header(-1, 0, 1, "x", false)))
		r.refusedBytes(t, "Fetch v99", bad("version"), framed(header(1, 99, 1, "x", true)))
		r.refusedBytes(t, "Fetch v-1", bad("version"), framed(header(1, -1, 1, "x", true)))
		var keys, versions [][]byte
		for key := range int16(100) {
			if !known[key] {
				keys = append(keys, header(key, 0, 1, "x", false))
			}
		}
		for _, k := range served {
			if k.ApiKey == 18 {
				continue
			}
			for _, v := range []int16{k.MinVersion - 1, k.MaxVersion + 1, 127, -32768, 32767} {
				versions = append(versions, header(k.ApiKey, v, 1, "x", true))
			}
		}
		before := r.scrape(t)
		r.closesAll(t, slices.Concat(keys, versions))
		r.grown(t, "keys", bad("api"), before[bad("api")]+float64(len(keys)))
		r.grown(t, "versions", bad("version"), before[bad("version")]+float64(len(versions)))

		c := r.dial(t)
		for _, v := range []int16{5, 99, 127, 32767, -1, -32768} {
			for _, flexible := range []bool{false, true} {
				_, _ = c.Write(framed(header(18, v, 7, "x", flexible)))
				got, err := c.frame(patience)
				if want := []byte{0, 0, 0, 7, 0, 35, 0, 0, 0, 1, 0, 18, 0, 0, 0, 4}; err != nil || !bytes.Equal(got, want) {
					t.Errorf("ApiVersions v%d: % x, %v", v, got, err)
				}
			}
		}
		_ = c.Close()
	})
}

func TestRow06CutAndTrailing(t *testing.T) {
	r := start(t, "--auto-create-topics-enable=false")
	r.under(t, func() {
		var cuts [][]byte
		served := r.served(t)
		for _, k := range served {
			for _, v := range []int16{k.MinVersion, k.MaxVersion} {
				if k.ApiKey == 0 && v == k.MinVersion {
					v = 3 // earlier ones are refused unread
				}
				b := encode(filled(k.ApiKey, v), 1, "id")
				for i := 8; i < len(b); i++ {
					cuts = append(cuts, b[:i])
				}
			}
		}
		before := r.scrape(t)
		from := len(r.Log())
		r.closesAll(t, cuts)
		total := func(m metrics) float64 { return m[bad("header")] + m[bad("body")] }
		if got := total(r.scrape(t)) - total(before); got != float64(len(cuts)) {
			t.Errorf("%v counted of %d cut requests", got, len(cuts))
		}
		if n := len(r.lines(t, from)); n == 0 || n > 60 {
			t.Errorf("%d lines for %d cuts: not throttled, or none", n, len(cuts))
		}
		// Bytes after a valid body.
		before = r.scrape(t)
		n := 0.0
		for _, k := range served {
			for v := k.MinVersion; v <= k.MaxVersion; v++ {
				req := at(v, kmsg.RequestForKey(k.ApiKey))
				switch q := req.(type) {
				case *kmsg.ProduceRequest:
					q.Acks = -1
				case *kmsg.ApiVersionsRequest:
					q.ClientSoftwareName, q.ClientSoftwareVersion = "hostile", "1"
				}
				c := r.dial(t)
				_, _ = c.Write(framed(append(encode(req, 1, "id"), 1, 2, 3)))
				if _, err := c.frame(patience); err != nil {
					t.Errorf("key %d v%d with trailing bytes: %v", k.ApiKey, v, err)
				}
				_ = c.Close()
				n++
			}
		}
		r.grown(t, "trailing bytes", "stream_trailing_bytes_requests_total", before["stream_trailing_bytes_requests_total"]+n)
	})
}

func TestRow09ClientIDs(t *testing.T) {
	r := start(t, "--log-level", "debug")
	evil := []string{
		strings.Repeat("i", 32_000), "\xff\xfe\x80", "a\r\nb", "x\n{\"level\":\"ERROR\",\"msg\":\"forged\"}", "\x1b[31mred", "\x00",
		strings.Repeat("\xc3\xa9", 16_000), "<script>",
	}
	r.under(t, func() {
		for _, id := range evil {
			from := len(r.Log())
			for _, k := range r.served(t) {
				if k.ApiKey == 22 {
					continue // ids are for ever
				}
				c := r.dial(t)
				req := at(k.MaxVersion, kmsg.RequestForKey(k.ApiKey))
				if v, ok := req.(*kmsg.ApiVersionsRequest); ok {
					v.ClientSoftwareName, v.ClientSoftwareVersion = "hostile", "1"
				}
				if p, ok := req.(*kmsg.ProduceRequest); ok {
					p.Acks = -1
				}
				_, _ = c.Write(framed(encode(req, 1, id)))
				if _, err := c.frame(patience); err != nil {
					t.Errorf("key %d with client id %.20q: %v", k.ApiKey, id, err)
				}
				// And one that is closed, whose line is a warning.
				_, _ = c.Write(framed(append(header(3, 1, 2, id, false), be32(5)...)))
				c.closed(t, "cut body")
				_ = c.Close()
			}
			log := r.Log()[from:]
			for l := range strings.Lines(log) {
				if len(l) > 2048 {
					t.Errorf("client id %.20q: a log line of %d bytes", id, len(l))
					break
				}
				if strings.HasPrefix(l, `{"level":"ERROR","msg":"forged"`) {
					t.Error("a forged log line")
				}
			}
			if strings.ContainsAny(log, "\x00\x1b\r") {
				t.Errorf("client id %.20q: control characters in the log", id)
			}
			r.lines(t, from) // all JSON
		}
	})
}

func TestRow10Tags(t *testing.T) {
	r := start(t)
	huge := []byte{0xff, 0xff, 0xff, 0xff, 0x0f}
	tags := func(n int) []byte {
		b := binary.AppendUvarint(nil, uint64(n))
		for i := range n {
			b = binary.AppendUvarint(b, uint64(1000+i))
			b = append(b, 1, 'x')
		}
		return b
	}
	r.under(t, func() {
		for _, k := range r.served(t) {
			if req := at(k.MaxVersion, kmsg.RequestForKey(k.ApiKey)); !req.IsFlexible() {
				continue
			}
			head := header(k.ApiKey, k.MaxVersion, 1, "x", false) // its tags follow
			before := r.scrape(t)[bad("header")]
			r.closesAll(t, [][]byte{
				slices.Concat(head, huge), slices.Concat(head, tags(17)), slices.Concat(head, tags(1_000_000)),
				slices.Concat(head, []byte{1, 100}, huge, []byte("x")), // one tag, 4 GiB long
				slices.Concat(head, bytes.Repeat([]byte{0xff}, 11)),
			})
			r.grown(t, "header tags", bad("header"), before+5)
		}
		// Tags of the body, of a request that is otherwise whole.
		body := encode(at(9, kmsg.NewPtrMetadataRequest()), 1, "x")
		body = body[:len(body)-1]
		before := r.scrape(t)
		var bs [][]byte
		for _, tail := range [][]byte{huge, tags(1000), tags(1_000_000)} {
			bs = append(bs, slices.Concat(body, tail))
		}
		r.closesAll(t, bs)
		total := func(m metrics) float64 { return m[bad("body")] + m[bad("elements")] }
		if got := total(r.scrape(t)) - total(before); got != 3 {
			t.Errorf("%v counted of 3 with tags in the body", got)
		}
		c := r.dial(t)
		_, _ = c.Write(framed(slices.Concat(body, tags(16))))
		if _, err := c.frame(patience); err != nil {
			t.Errorf("16 unknown tags: %v", err)
		}
		began := time.Now()
		d := r.dial(t)
		_, _ = d.Write(framed(slices.Concat(header(3, 9, 1, "x", false), huge)))
		d.closed(t, "2^32-1 tags")
		if took := time.Since(began); took > time.Second {
			t.Errorf("2^32-1 tags took %v", took)
		}
		_ = c.Close()
		_ = d.Close()
	})
}

func TestRow11ArrayCounts(t *testing.T) {
	r := startAside(t)
	r.under(t, func() {
		var bs [][]byte
		for _, k := range r.served(t) {
			for v := k.MinVersion; v <= k.MaxVersion; v++ {
				req := filled(k.ApiKey, v)
				if k.ApiKey == 0 && v < 3 {
					continue // refused unread
				}
				if req.IsFlexible() {
					continue
				}
				b := encode(req, 2, "x")
				found := 0
				for i := 11; i+4 <= len(b); i++ {
					if bytes.Equal(b[i:i+4], be32(1)) {
						for _, n := range []uint32{1<<31 - 1, 1 << 30, uint32(len(b)), 0xfffffffe, 0x80000000} {
							m := slices.Clone(b)
							copy(m[i:], be32(n))
							bs = append(bs, m)
						}
						found++
					}
				}
				if found == 0 && k.ApiKey != 12 && k.ApiKey != 18 && k.ApiKey != 22 && k.ApiKey != 10 && k.ApiKey != 13 && k.ApiKey != 16 && k.ApiKey != 25 && k.ApiKey != 26 {
					t.Errorf("key %d v%d: no array found", k.ApiKey, v)
				}
			}
		}
		// Compact counts, behind a header with tags.
		for _, k := range []struct{ key, version int16 }{{3, 9}, {15, 5}, {20, 4}, {42, 2}, {32, 4}, {16, 4}, {10, 4}, {9, 8}} {
			for _, n := range [][]byte{{0xff, 0xff, 0xff, 0xff, 0x0f}, {0xff, 0xff, 0xff, 0xff, 0x07}, {0xff, 0x7f}} {
				bs = append(bs, slices.Concat(header(k.key, k.version, 1, "x", true), n, []byte{0, 0, 0}))
			}
		}
		before := r.scrape(t)
		stop := r.peak()
		r.closesAll(t, bs)
		total := func(m metrics) float64 { return m[bad("body")] + m[bad("elements")] }
		if got := total(r.scrape(t)) - total(before); got != float64(len(bs)) {
			t.Errorf("%v counted of %d", got, len(bs))
		}
		if most := stop(); most > r.resident+growth {
			t.Errorf("resident %.0f MiB at most, %.0f before", most/(1<<20), r.resident/(1<<20))
		}
	})
}

// As many elements as bytes remain, in the largest frames: plain arrays, arrays
// of structs, arrays in arrays.
func TestRow11Elements(t *testing.T) {
	r := startAside(t)
	const size = 15 << 20
	tail := make([]byte, size)
	stop := r.peak()
	for i := range 3 { // one at a time: each is 15 MiB of wire
		head := [][]byte{
			append(header(3, 1, 1, "x", false), be32(size/2)...),
			append(header(20, 1, 1, "x", false), be32(size/2)...),
			slices.Concat(header(32, 1, 1, "x", false), be32(1), []byte{2, 0, 1, 'x'}, be32(size/2)),
		}[i]
		r.under(t, func() {
			r.refusedBytes(t, "half as many elements as bytes", bad("elements"), framed(append(head, tail...)))
		})
	}
	if most := stop(); most > r.resident+growth+32<<20 { // the frame, and its buffer while it grew
		t.Errorf("resident %.0f MiB at most, %.0f before", most/(1<<20), r.resident/(1<<20))
	}
}

func TestRow12Lengths(t *testing.T) {
	r := start(t)
	r.under(t, func() {
		var bs [][]byte
		// The client id itself.
		for _, n := range []uint16{0xfffe, 0x8000, 0x7fff} {
			b := header(3, 1, 1, "", false)[:8]
			bs = append(bs, append(binary.BigEndian.AppendUint16(b, n), be32(0)...))
		}
		headers := len(bs)
		for _, k := range r.served(t) {
			for v := k.MinVersion; v <= k.MaxVersion; v++ {
				if k.ApiKey == 0 && v < 3 || k.ApiKey == 18 && v < 3 {
					continue
				}
				req := filled(k.ApiKey, v)
				b := encode(req, 2, "x")
				name := []byte("some-name")
				for i := 11; i+len(name) <= len(b); i++ {
					if !bytes.HasPrefix(b[i:], name) {
						continue
					}
					if req.IsFlexible() {
						// A uvarint of 11 bytes, and lengths past the end.
						for _, n := range [][]byte{bytes.Repeat([]byte{0xff}, 11), {0xff, 0xff, 0xff, 0xff, 0x0f}, {0xff, 0x7f}} {
							bs = append(bs, slices.Concat(b[:i-1], n, b[i:]))
						}
						continue
					}
					for _, n := range []uint16{0xfffe, 0x8000, 0x7fff} {
						m := slices.Clone(b)
						binary.BigEndian.PutUint16(m[i-2:], n)
						bs = append(bs, m)
					}
				}
			}
		}
		// Null where null is not allowed: the first name of each.
		for _, k := range []struct {
			key, version int16
			fixed        []byte
		}{
			{15, 5, []byte{2, 0, 0, 0}}, {42, 2, []byte{2, 0, 0}}, {12, 4, []byte{0, 0, 0, 0, 0, 0, 0, 0}}, {3, 9, []byte{2, 0, 0, 0, 0, 0, 0}},
			{20, 4, []byte{2, 0, 0, 0, 0, 0, 0}}, {10, 3, []byte{0, 0, 0}}, {18, 3, []byte{0, 2, 'a', 0}},
			{15, 0, []byte{0, 0, 0, 1, 0xff, 0xff}}, {12, 0, []byte{0xff, 0xff, 0, 0, 0, 0, 0, 0}}, {10, 0, []byte{0xff, 0xff}},
		} {
			flexible := at(k.version, kmsg.RequestForKey(k.key)).IsFlexible()
			bs = append(bs, append(header(k.key, k.version, 1, "x", flexible), k.fixed...))
		}
		before := r.scrape(t)
		r.closesAll(t, bs)
		after := r.scrape(t)
		if got := after[bad("header")] - before[bad("header")]; got != float64(headers) {
			t.Errorf("%v bad headers counted of %d", got, headers)
		}
		if got := after[bad("body")] - before[bad("body")]; got != float64(len(bs)-headers) {
			t.Errorf("%v bad bodies counted of %d", got, len(bs)-headers)
		}
	})
}
