package jetstream

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// scriptConn gives what a server sends in pieces of random size.
type scriptConn struct {
	net.Conn
	script []byte
	rnd    *rand.Rand
	most   int
}

func (c *scriptConn) Read(p []byte) (int, error) {
	if len(c.script) == 0 {
		return 0, io.EOF
	}
	n := min(len(p), len(c.script), 1+c.rnd.IntN(c.most))
	copy(p, c.script[:n])
	c.script = c.script[n:]
	return n, nil
}

func (c *scriptConn) Write(p []byte) (int, error) { return len(p), nil }

// pump reads all that is passed on, in pieces of random size.
func pump(c net.Conn, rnd *rand.Rand) ([]byte, error) {
	var all []byte
	for {
		p := make([]byte, 1+rnd.IntN(40_000))
		n, err := c.Read(p)
		all = append(all, p[:n]...)
		if err != nil {
			return all, err
		}
	}
}

// TestBypass: whatever the sizes of reads, messages of slots arrive at them and
// everything else is passed on byte for byte, in order.
func TestBypass(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		b := newBypass()
		ch := make(chan *nats.Msg, 1000)
		b.add("_INBOX.mine.", ch)
		b.add("stream_C", ch)
		var script, want []byte
		var taken []string
		add := func(line string, payload []byte, mine bool) {
			op := append([]byte(line+"\r\n"), payload...)
			if payload != nil {
				op = append(op, "\r\n"...)
			}
			script = append(script, op...)
			if mine {
				taken = append(taken, string(payload))
			} else {
				want = append(want, op...)
			}
		}
		add(`INFO {"a":1}`, nil, false)
		for range rnd.IntN(30) {
			p := bytes.Repeat([]byte("MSG a 1 5\r\n"), rnd.IntN(20))
			if rnd.IntN(4) == 0 {
				p = bytes.Repeat([]byte{'x'}, rnd.IntN(600_000))
			}
			h := "NATS/1.0\r\nA: b\r\n\r\n"
			hp := append([]byte(h), p...)
			switch rnd.IntN(12) {
			case 0:
				add("PING", nil, false)
			case 1:
				add("+OK", nil, false)
			case 2:
				add("INFO {"+strings.Repeat("x", rnd.IntN(50_000))+"}", nil, false)
			case 3:
				add(fmt.Sprintf("MSG _INBOX.other.1 1 %d", len(p)), p, false)
			case 4:
				add(fmt.Sprintf("HMSG kafka.a.0 7 $JS.ACK.s.stream_D.1.2.3.4.5 %d %d", len(h), len(hp)), hp, false)
			case 5:
				add(fmt.Sprintf("MSG plain 12 %d", len(p)), p, false)
			case 6:
				add(fmt.Sprintf("MSG _INBOX.mine.7 12 %d", len(p)), p, true)
			case 7:
				add(fmt.Sprintf("HMSG _INBOX.mine.8 12 %d %d", len(h), len(hp)), hp, true)
			case 8:
				add(fmt.Sprintf("HMSG kafka.a.0 12 $JS.ACK.s.stream_C.1.2.3.4.5 %d %d", len(h), len(hp)), hp, true)
			case 9:
				add(fmt.Sprintf("MSG kafka.a.0 12 $JS.ACK.dom.acc.s.stream_C.1.2.3.4.5 %d", len(p)), p, true)
			case 10:
				add(fmt.Sprintf("MSG  _INBOX.mine.9\t12   %d", len(p)), p, true)
			case 11:
				add("-ERR 'x'", nil, false)
			}
		}
		c := b.wrap(&scriptConn{script: script, rnd: rnd, most: 1 + rnd.IntN(100_000)})
		line, err := io.ReadAll(io.LimitReader(c, int64(len("INFO {\"a\":1}\r\n"))))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write([]byte("CONNECT {}\r\nPING\r\n")); err != nil {
			t.Fatal(err)
		}
		got, err := pump(c, rnd)
		if err != io.EOF {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if got = append(line, got...); !bytes.Equal(got, want) {
			t.Fatalf("seed %d: passed on %d bytes, want %d", seed, len(got), len(want))
		}
		if len(ch) != len(taken) {
			t.Fatalf("seed %d: %d messages taken, want %d", seed, len(ch), len(taken))
		}
		bytesTaken := 0
		for _, w := range taken {
			m := <-ch
			bytesTaken += len(w)
			g := string(m.Data)
			if m.Header != nil {
				if m.Header.Get("A") != "b" {
					t.Fatalf("seed %d: header %v", seed, m.Header)
				}
				g = "NATS/1.0\r\nA: b\r\n\r\n" + g
			}
			if g != w {
				t.Fatalf("seed %d: message of %d bytes, want %d", seed, len(g), len(w))
			}
		}
		if b.received.Load() != uint64(bytesTaken) {
			t.Errorf("seed %d: %d bytes counted, want %d", seed, b.received.Load(), bytesTaken)
		}
	}
}

// TestBypassStandsAside: what is not NATS's protocol in the clear, or is broken,
// is passed on as it is.
func TestBypassStandsAside(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(1, 2))
	message := "MSG _INBOX.mine.1 1 3\r\nabc\r\n"
	for name, c := range map[string]struct{ say, script string }{
		"tls":               {"\x16\x03\x01", message},
		"websocket":         {"GET / HTTP/1.1\r\n", message},
		"no size":           {"CONNECT {}\r\n", "MSG _INBOX.mine.1 1\r\n"},
		"size is text":      {"CONNECT {}\r\n", "MSG _INBOX.mine.1 1 abc\r\n"},
		"size is huge":      {"CONNECT {}\r\n", "MSG _INBOX.mine.1 1 999999999\r\nabc"},
		"size overflows":    {"CONNECT {}\r\n", "MSG _INBOX.mine.1 1 99999999999999999999\r\nabc"},
		"header too big":    {"CONNECT {}\r\n", "HMSG _INBOX.mine.1 1 30 3\r\nabc\r\n"},
		"too many":          {"CONNECT {}\r\n", "MSG _INBOX.mine.1 1 2 3 4 5 6\r\nabc\r\n"},
		"forged within":     {"CONNECT {}\r\n", "MSG a 1 2 3 4 26\r\n" + message + "\r\n"},
		"within a long one": {"CONNECT {}\r\n", "MSG " + strings.Repeat("a", 2*bypassBuffer) + " 1 26\r\n" + message + "\r\n"},
		"cut line":          {"CONNECT {}\r\n", "MSG _INBOX.mi"},
		"empty":             {"CONNECT {}\r\n", ""},
	} {
		b := newBypass()
		ch := make(chan *nats.Msg, 10)
		b.add("_INBOX.mine.", ch)
		conn := b.wrap(&scriptConn{script: []byte(c.script), rnd: rnd, most: 5})
		if _, err := conn.Write([]byte(c.say)); err != nil {
			t.Fatal(err)
		}
		got, err := pump(conn, rnd)
		if string(got) != c.script || err != io.EOF || len(ch) != 0 {
			t.Errorf("%s: passed on %q with %v, took %d", name, got, err, len(ch))
		}
	}
	// A message that breaks off ends the connection; nobody gets half of it.
	b := newBypass()
	ch := make(chan *nats.Msg, 10)
	b.add("_INBOX.mine.", ch)
	conn := b.wrap(&scriptConn{script: []byte("MSG _INBOX.mine.1 1 10\r\nabc"), rnd: rnd, most: 5})
	if _, err := conn.Write([]byte("CONNECT {}\r\n")); err != nil {
		t.Fatal(err)
	}
	if got, err := pump(conn, rnd); len(got) != 0 || err == nil || len(ch) != 0 {
		t.Errorf("a broken message: passed on %q with %v, took %d", got, err, len(ch))
	}
}

// TestBypassBackpressure: a full slot loses messages, as with nats.go, and the
// connection goes on.
func TestBypassFull(t *testing.T) {
	t.Parallel()
	b := newBypass()
	ch := make(chan *nats.Msg, 2)
	b.add("_INBOX.mine.", ch)
	script := strings.Repeat("MSG _INBOX.mine.1 1 1\r\nx\r\n", 5) + "PING\r\n"
	rnd := rand.New(rand.NewPCG(1, 3))
	conn := b.wrap(&scriptConn{script: []byte(script), rnd: rnd, most: 50})
	if _, err := conn.Write([]byte("CONNECT {}\r\n")); err != nil {
		t.Fatal(err)
	}
	if got, err := pump(conn, rnd); string(got) != "PING\r\n" || !errors.Is(err, io.EOF) || len(ch) != 2 {
		t.Errorf("passed on %q with %v, kept %d", got, err, len(ch))
	}
}

func TestFrames(t *testing.T) {
	t.Parallel()
	for i := range frameSizes {
		if frameClass(frameSize(i)) != i || i+1 < frameSizes && frameClass(frameSize(i)+1) != i+1 {
			t.Errorf("class %d of %d bytes is not its own", i, frameSize(i))
		}
	}
	if frameSize(frameSizes-1) != 8<<20 || frameClass(frameMin-1) != -1 || frameClass(8<<20+1) != -1 {
		t.Errorf("sizes end at %d", frameSize(frameSizes-1))
	}
	for _, n := range []int{0, 1, frameMin - 1, frameMin, 1_000_000, 8 << 20, 8<<20 + 1} {
		b := frame(n)
		if len(b) != n {
			t.Errorf("frame of %d bytes has %d", n, len(b))
		}
		if give := release(b); (give != nil) != (frameClass(n) >= 0) {
			t.Errorf("a frame of %d bytes can be given back: %v", n, give != nil)
		} else if give != nil {
			give()
		}
	}
	if release(make([]byte, frameMin+5)) != nil {
		t.Error("memory of others is taken")
	}
}

// FuzzBypass: no stream of bytes makes it panic, hang or lose what is not its
// own.
func FuzzBypass(f *testing.F) {
	f.Add([]byte("MSG _INBOX.mine.1 1 3\r\nabc\r\nPING\r\n"), uint64(1))
	f.Add([]byte("HMSG a 1 $JS.ACK.s.stream_C.1.2.3.4.5 12 15\r\nNATS/1.0\r\n\r\nabc\r\n"), uint64(2))
	f.Add([]byte("INFO {}\r\n+OK\r\n"), uint64(3))
	f.Fuzz(func(t *testing.T, script []byte, seed uint64) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		b := newBypass()
		ch := make(chan *nats.Msg, 100)
		b.add("_INBOX.mine.", ch)
		b.add("stream_C", ch)
		conn := b.wrap(&scriptConn{script: bytes.Clone(script), rnd: rnd, most: 1 + int(seed%64)})
		if _, err := conn.Write([]byte("CONNECT {}\r\n")); err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			got, _ := pump(conn, rnd)
			if !bytes.Contains(script, []byte("MSG")) && !bytes.Equal(got, script) {
				t.Errorf("passed on %q of %q", got, script)
			}
		}()
		select {
		case <-done:
		case <-time.After(10 * time.Second):
			t.Fatal("hangs")
		}
	})
}
