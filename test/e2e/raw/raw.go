package raw

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Conn is one connection. It is not safe for concurrent use.
type Conn struct {
	c    net.Conn
	corr int32
}

var formatter = kmsg.NewRequestFormatter(kmsg.FormatterClientID("raw"))

// Dial connects; the caller closes.
func Dial(addr string) (*Conn, error) {
	c, err := net.DialTimeout("tcp", addr, 10*time.Second)
	if err != nil {
		return nil, err
	}
	return &Conn{c: c}, nil
}

// Close ends the connection.
func (w *Conn) Close() { _ = w.c.Close() }

// Do sends a request in a version and reads its answer. After an error the
// connection is of no use any more.
func (w *Conn) Do(version int16, req kmsg.Request) (kmsg.Response, error) {
	req.SetVersion(version)
	w.corr++
	_ = w.c.SetDeadline(time.Now().Add(time.Minute))
	fail := func(what string, err error) (kmsg.Response, error) {
		return nil, fmt.Errorf("%s v%d: %s: %w", kmsg.NameForKey(req.Key()), version, what, err)
	}
	if _, err := w.c.Write(formatter.AppendRequest(nil, req, w.corr)); err != nil {
		return fail("send", err)
	}
	var head [4]byte
	if _, err := io.ReadFull(w.c, head[:]); err != nil {
		return fail("receive", err)
	}
	b := make([]byte, binary.BigEndian.Uint32(head[:]))
	if _, err := io.ReadFull(w.c, b); err != nil {
		return fail("receive", err)
	}
	if got := int32(binary.BigEndian.Uint32(b)); got != w.corr {
		return fail("receive", fmt.Errorf("answer %d to request %d", got, w.corr))
	}
	b = b[4:]
	resp := req.ResponseKind()
	if resp.IsFlexible() && resp.Key() != 18 {
		b = b[1:]
	}
	if err := resp.ReadFrom(b); err != nil {
		return fail("decode the answer", err)
	}
	return resp, nil
}

// Ask is Do for tests that end with the first error.
func Ask[R kmsg.Response](t testing.TB, w *Conn, version int16, req kmsg.Request) R {
	t.Helper()
	resp, err := w.Do(version, req)
	if err != nil {
		t.Fatal(err)
	}
	return resp.(R)
}
