package clients

import (
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/test/testkit"
)

// recorder stands before a broker that advertises its address, and notes the
// key and version of every request by the client.id in its header.
type recorder struct {
	addr string

	mu   sync.Mutex
	to   string
	used map[string]map[int16]map[int16]bool // by client.id, key, version
	open map[net.Conn]bool
}

func startRecorder(t *testing.T) *recorder {
	t.Helper()
	l, err := net.Listen("tcp", testkit.FreeAddr(t))
	if err != nil {
		t.Fatal(err)
	}
	r := &recorder{addr: l.Addr().String(), used: map[string]map[int16]map[int16]bool{}, open: map[net.Conn]bool{}}
	var wait sync.WaitGroup
	wait.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			wait.Go(func() { r.serve(conn) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		r.mu.Lock()
		for conn := range r.open {
			conn.Close()
		}
		r.mu.Unlock()
		wait.Wait()
	})
	return r
}

// target says where connections go.
func (r *recorder) target(addr string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.to = addr
}

// serve copies both directions until one side has closed.
func (r *recorder) serve(client net.Conn) {
	r.mu.Lock()
	to := r.to
	r.mu.Unlock()
	server, err := net.Dial("tcp", to)
	if err != nil {
		client.Close()
		return
	}
	r.mu.Lock()
	r.open[client], r.open[server] = true, true
	r.mu.Unlock()
	var wait sync.WaitGroup
	end := func() {
		client.Close()
		server.Close()
	}
	wait.Go(func() {
		defer end()
		_, _ = io.Copy(client, server)
	})
	wait.Go(func() {
		defer end()
		r.requests(server, client)
	})
	wait.Wait()
	r.mu.Lock()
	delete(r.open, client)
	delete(r.open, server)
	r.mu.Unlock()
}

// requests copies frames: size, key, version, correlation id, client.id, rest.
func (r *recorder) requests(to io.Writer, from io.Reader) {
	for {
		head := make([]byte, 14)
		if _, err := io.ReadFull(from, head); err != nil {
			return
		}
		size := int64(int32(binary.BigEndian.Uint32(head)))
		name := make([]byte, max(0, int16(binary.BigEndian.Uint16(head[12:]))))
		if size < 10+int64(len(name)) {
			return
		}
		if _, err := io.ReadFull(from, name); err != nil {
			return
		}
		r.note(string(name), int16(binary.BigEndian.Uint16(head[4:])), int16(binary.BigEndian.Uint16(head[6:])))
		if _, err := to.Write(append(head, name...)); err != nil {
			return
		}
		if _, err := io.CopyN(to, from, size-10-int64(len(name))); err != nil {
			return
		}
	}
}

func (r *recorder) note(client string, key, version int16) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.used[client] == nil {
		r.used[client] = map[int16]map[int16]bool{}
	}
	if r.used[client][key] == nil {
		r.used[client][key] = map[int16]bool{}
	}
	r.used[client][key][version] = true
}

// versions are the versions a client has used, by key: "Produce 9 13, Fetch 18".
func (r *recorder) versions(client string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for _, key := range slices.Sorted(maps.Keys(r.used[client])) {
		versions := strings.Trim(fmt.Sprint(slices.Sorted(maps.Keys(r.used[client][key]))), "[]")
		out = append(out, kmsg.NameForKey(key)+" "+versions)
	}
	return strings.Join(out, ", ")
}
