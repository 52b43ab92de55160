//go:build !linux

package protocol

import (
	"net"
	"time"
)

// tuneSocket lets the kernel find peers that vanished, by keepalive.
func tuneSocket(nc net.Conn, _ time.Duration) {
	if t, ok := nc.(*net.TCPConn); ok {
		keepAlive(t)
	}
}
