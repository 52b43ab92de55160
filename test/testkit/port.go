package testkit

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
)

var ports struct {
	sync.Mutex
	given map[int]bool // guards: ports given out by this process
}

// FreePort returns a TCP port of 127.0.0.1 that nobody listens on and that this
// process was not given before. A server that must come back on the same
// address after a kill needs a port that is known before it starts, and that no
// connection is given by the system while the server is down.
func FreePort(t testing.TB) int {
	t.Helper()
	for range 100 {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", candidate()))
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
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

// candidate is a port below those that the system gives to connections; 0, which
// lets it choose, where there are too few or they are not known.
func candidate() int {
	const least = 10_000
	b, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		return 0
	}
	var first, last int
	if _, err := fmt.Sscan(string(b), &first, &last); err != nil || first < least+5000 {
		return 0
	}
	return least + rand.IntN(first-least)
}
