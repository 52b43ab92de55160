package main

import "net"

// advertised is the address clients are told.
type advertised struct {
	Host string // no brackets around IPv6; never 0.0.0.0 or ::
	Port int32
}

// advertise completes the configured address with the port in force.
func (c *config) advertise(port int) advertised {
	host := c.Host
	if c.Advertised != "" {
		host, port, _ = splitHostPort(c.Advertised) // validated
	}
	if unspecified(host) {
		host = ownAddress()
	}
	return advertised{host, int32(port)}
}

// ownAddress is what 0.0.0.0 most likely means to clients: the first address of
// this machine that others can route to, version 4 first. localhost if there
// is none.
func ownAddress() string {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return "localhost"
	}
	best := "localhost"
	for _, a := range addrs {
		n, ok := a.(*net.IPNet)
		if !ok || !n.IP.IsGlobalUnicast() {
			continue
		}
		if n.IP.To4() != nil {
			return n.IP.String()
		}
		if best == "localhost" {
			best = n.IP.String()
		}
	}
	return best
}
