package testkit

import (
	"fmt"
	"net"
	"sync"
	"testing"
)

var ports struct {
	sync.Mutex
	given map[int]bool // guards: ports given out by this process
}

// FreePort returns a TCP port of 127.0.0.1 that nobody listens on and that this
// process was not given before. A server that must come back on the same
// address after a kill needs a port that is known before it starts.
func FreePort(t testing.TB) int {
	t.Helper()
	for range 100 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatalf("find a free port: %v", err)
		}
		port := l.Addr().(*net.TCPAddr).Port
		l.Close()
		ports.Lock()
		if ports.given == nil {
			ports.given = make(map[int]bool)
		}
		again := ports.given[port]
		ports.given[port] = true
		ports.Unlock()
		if !again {
			return port
		}
	}
	t.Fatal("find a free port: 100 ports were all given before")
	return 0
}

// FreeAddr is a FreePort as an address.
func FreeAddr(t testing.TB) string {
	t.Helper()
	return fmt.Sprintf("127.0.0.1:%d", FreePort(t))
}
