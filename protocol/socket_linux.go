package protocol

import (
	"net"
	"syscall"
	"time"
)

// TCP_USER_TIMEOUT and TCP_NOTSENT_LOWAT of linux/tcp.h, which package syscall
// lacks.
const (
	tcpUserTimeout  = 18
	tcpNotSentLowAt = 25
)

// unsentBytes is how much of an answer the kernel may hold before it has found
// its way to the client (TCP_NOTSENT_LOWAT). Left alone a socket's buffer grows
// to megabytes, which for a client that does not read are served, encoded and
// held in vain; what is on the way still grows with the line's bandwidth.
const unsentBytes = 128 << 10

// tuneSocket lets the kernel find peers that vanished: by keepalive where
// nothing is sent, by unacknowledged bytes where something is; and bounds what
// it buffers.
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
		_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpNotSentLowAt, unsentBytes)
	})
}
