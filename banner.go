package main

import (
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
)

// banner is what a person needs to know when the server is up.
type banner struct {
	version    string
	bootstrap  []string // host:port
	http       string   // URL; "" if off
	nats       string   // URL of the embedded server's listener; "" if none
	store      string   // where records go
	durability durability
	warnings   []string
}

func (b banner) write(w io.Writer) error {
	var out strings.Builder
	fmt.Fprintf(&out, "stream %s: a Kafka server on NATS JetStream\n\n", b.version)
	fmt.Fprintf(&out, "  bootstrap.servers=%s\n", strings.Join(b.bootstrap, ","))
	if b.http != "" {
		fmt.Fprintf(&out, "  http: %s\n", b.http)
	}
	if b.nats != "" {
		fmt.Fprintf(&out, "  nats: %s\n", b.nats)
	}
	fmt.Fprintf(&out, "  store: %s\n", b.store)
	fmt.Fprintf(&out, "  durability: %s. %s\n", b.durability.Level, b.durability.Sentence)
	if b.durability.Note != "" {
		fmt.Fprintf(&out, "    (%s)\n", b.durability.Note)
	}
	for _, warning := range b.warnings {
		fmt.Fprintf(&out, "  warning: %s\n", warning)
	}
	out.WriteByte('\n')
	_, err := io.WriteString(w, out.String())
	return err
}

// reachable is an address to connect to for a listener on this machine.
func reachable(l net.Listener, host string) string {
	if a, ok := l.Addr().(*net.TCPAddr); ok && !a.IP.IsUnspecified() {
		host = a.IP.String()
	}
	return net.JoinHostPort(host, strconv.Itoa(portOf(l)))
}

// openWarnings names the sockets that others can reach without a login.
func openWarnings(kafka, http []net.Listener, nats, cluster string) []string {
	var ws []string
	for _, k := range []struct {
		what, key string
		ls        []net.Listener
	}{{"Kafka", "bind", kafka}, {"HTTP", "admin-bind", http}} {
		for _, l := range k.ls {
			if isOpen(l) {
				ws = append(ws, fmt.Sprintf("%s on %s is open to the network without login: --%s 127.0.0.1 keeps it on this machine", k.what, l.Addr(), k.key))
			}
		}
	}
	for _, k := range []struct{ what, addr, without string }{
		{"NATS", nats, "login"}, {"the cluster's port", cluster, "--cluster-secret-file"},
	} {
		if host, _, err := net.SplitHostPort(k.addr); err == nil {
			if ip := net.ParseIP(host); host == "" || host != "localhost" && (ip == nil || !ip.IsLoopback()) {
				ws = append(ws, fmt.Sprintf("%s on %s is open to the network without %s: whoever reaches it can read and destroy everything", k.what, k.addr, k.without))
			}
		}
	}
	return ws
}
