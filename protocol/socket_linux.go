package protocol

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// tuneSocket lets the kernel find peers that vanished: by keepalive where
// nothing is sent, by unacknowledged bytes where something is.
func tuneSocket(nc net.Conn, unacknowledged time.Duration) {
	t, ok := nc.(*net.TCPConn)
	if !ok {
		return
	}
	keepAlive(t)
	raw, err := t.SyscallConn()
	if err != nil {
		return
	}
	// Not fatal: the write timeout finds them too, later.
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(unacknowledged.Milliseconds()))
	})
}
