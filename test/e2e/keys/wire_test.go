package keys

import (
	"encoding/binary"
	"io"
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// wire is one connection on which requests go out as they are, one at a time.
type wire struct {
	t    testing.TB
	c    net.Conn
	corr int32
}

var formatter = kmsg.NewRequestFormatter(kmsg.FormatterClientID("keys"))

func dial(t testing.TB, addr string) *wire {
	t.Helper()
	c, err := net.DialTimeout("tcp", addr, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return &wire{t: t, c: c}
}

// ask sends a request in a version and reads its answer.
func ask[R kmsg.Response](w *wire, version int16, req kmsg.Request) R {
	w.t.Helper()
	req.SetVersion(version)
	w.corr++
	_ = w.c.SetDeadline(time.Now().Add(time.Minute))
	name := kmsg.NameForKey(req.Key())
	if _, err := w.c.Write(formatter.AppendRequest(nil, req, w.corr)); err != nil {
		w.t.Fatalf("%s v%d: send: %v", name, version, err)
	}
	var head [4]byte
	if _, err := io.ReadFull(w.c, head[:]); err != nil {
		w.t.Fatalf("%s v%d: receive: %v", name, version, err)
	}
	b := make([]byte, binary.BigEndian.Uint32(head[:]))
	if _, err := io.ReadFull(w.c, b); err != nil {
		w.t.Fatalf("%s v%d: receive: %v", name, version, err)
	}
	if got := int32(binary.BigEndian.Uint32(b)); got != w.corr {
		w.t.Fatalf("%s v%d: answer %d to request %d", name, version, got, w.corr)
	}
	b = b[4:]
	resp := req.ResponseKind()
	if resp.IsFlexible() && resp.Key() != 18 {
		b = b[1:]
	}
	if err := resp.ReadFrom(b); err != nil {
		w.t.Fatalf("%s v%d: decode the answer: %v", name, version, err)
	}
	return resp.(R)
}

func ptr[T any](v T) *T { return &v }
