package main

import (
	"net"
	"strconv"
)

// advertised is the address clients are told.
type advertised struct {
	Host string // no brackets around IPv6; "": whatever address each client has reached
	Port int32
}

// advertise completes the configured address with the port in force.
func (c *config) advertise(port int) advertised {
	host := c.Host
	if c.Advertised != "" {
		host, port, _ = splitHostPort(c.Advertised) // validated
	}
	if unspecified(host) {
		host = ""
	}
	return advertised{host, int32(port)}
}

// here is an address for clients on this machine, which l is the listener for.
func (a advertised) here(l net.Listener) string {
	if a.Host != "" {
		return net.JoinHostPort(a.Host, strconv.Itoa(int(a.Port)))
	}
	host, _, _ := net.SplitHostPort(reachable(l, "localhost"))
	return net.JoinHostPort(host, strconv.Itoa(int(a.Port)))
}
