package protocol

import (
	"net"
	"time"
)

func keepAlive(t *net.TCPConn) {
	_ = t.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 10 * time.Second, Count: 3})
}
