package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"

	"github.com/hanzoai/stream/logging"
)

// listenAll opens a socket for each address, or for all interfaces if there is
// none. On an error none stays open. key and portKey name what to change.
func listenAll(ctx context.Context, key, portKey string, addrs []string, port int) ([]net.Listener, error) {
	if len(addrs) == 0 {
		addrs = []string{":" + strconv.Itoa(port)}
	}
	var out []net.Listener
	var lc net.ListenConfig
	for _, a := range addrs {
		full := a
		if a[0] != ':' {
			var err error
			if full, err = listenAddress(a, port); err != nil {
				closeAll(out)
				return nil, usageError(fmt.Sprintf("%s: %v", key, err), "")
			}
		}
		l, err := lc.Listen(ctx, "tcp", full)
		if err != nil {
			closeAll(out)
			return nil, listenError(err, key, portKey, full)
		}
		out = append(out, l)
	}
	return out, nil
}

func listenError(err error, key, portKey, addr string) error {
	e := &exitError{code: exitFailed, err: fmt.Errorf("listen on %s: %w", logging.Printable(addr), err)}
	dns := (*net.DNSError)(nil)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		_, port, _ := net.SplitHostPort(addr)
		e.err = fmt.Errorf("port %s is taken: listen on %s: %w", port, addr, syscall.EADDRINUSE)
		e.hint = fmt.Sprintf("stop the process that has it, or choose another with --%s", portKey)
	case errors.Is(err, syscall.EACCES):
		e.hint = fmt.Sprintf("this user may not open that port: choose one above 1023 with --%s", portKey)
	case errors.Is(err, syscall.EADDRNOTAVAIL), errors.As(err, &dns):
		e.code = exitUsage
		e.hint = fmt.Sprintf("%s must name an address of this machine", key)
	}
	return e
}

func closeAll(ls []net.Listener) {
	for _, l := range ls {
		_ = l.Close() // nothing was served on it
	}
}

// isOpen reports a listener that other machines can reach.
func isOpen(l net.Listener) bool {
	a, ok := l.Addr().(*net.TCPAddr)
	return ok && !a.IP.IsLoopback()
}

func portOf(l net.Listener) int {
	if a, ok := l.Addr().(*net.TCPAddr); ok {
		return a.Port
	}
	return 0
}
