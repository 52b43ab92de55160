package protocol

import (
	"net"
	"syscall"
	"time"
)

// tcpUserTimeout is TCP_USER_TIMEOUT of linux/tcp.h, which package syscall
// lacks.
const tcpUserTimeout = 18

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
		_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, int(unacknowledged.Milliseconds()))
	})
}
