package main

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"

	"github.com/hanzoai/stream/logging"
)

var prefixPattern = regexp.MustCompile(`^[A-Za-z0-9_]{1,30}$`)

// validate checks what concerns more than one key, and files.
func (l *loaded) validate() {
	external := l.external()
	if l.PubsubURL != "" {
		l.checkURLs()
	}
	if !prefixPattern.MatchString(l.Prefix) {
		l.problem("prefix: %q is not 1 to 30 of A-Z, a-z, 0-9 and _", logging.Printable(l.Prefix))
	}
	l.Host = strings.TrimSuffix(strings.TrimPrefix(l.Host, "["), "]")
	if strings.ContainsAny(l.Host, " /,\t\r\n") || strings.Contains(l.Host, ":") && net.ParseIP(l.Host) == nil {
		l.problem("host: %q is not a host name or an address (the port is a key of its own)", logging.Printable(l.Host))
	}
	if l.Advertised != "" {
		if host, port, err := splitHostPort(l.Advertised); err != nil {
			l.problem("advertised-address: %v", err)
		} else if port == 0 || host == "" || unspecified(host) {
			l.problem("advertised-address: %q cannot be connected to: name the host and port that clients reach", l.Advertised)
		}
	}
	l.nodesHaveAddresses()
	if l.AddressMode == "per-gateway" && l.Host != "" && l.advertise(l.Port).Host == "" {
		l.problem("address-mode: per-gateway needs an address of this gateway's own: name it with host or advertised-address, as %s stands for whatever address a client has reached", l.Host)
	}
	l.checkBind("bind", l.Bind)
	l.checkBind("admin-bind", l.AdminBind)
	if l.AdminPort != 0 && l.AdminPort == l.Port && len(l.AdminBind) == 0 {
		l.problem("admin-port: %d is the Kafka port too", l.AdminPort)
	}
	if external {
		if l.NATSListen != "" {
			l.problem("nats-listen: only the embedded NATS server can listen, and pubsub-url or nats-context names an external one")
		}
		if l.isSet("data-dir") {
			l.warn("data-dir is not used: an external NATS server stores everything")
		}
	} else {
		for _, key := range []string{"pubsub-creds", "nats-nkey", "nats-user", "nats-password", "nats-password-file", "nats-tls-ca", "nats-tls-cert", "nats-tls-key"} {
			if l.isSet(key) {
				l.problem("%s: a login is only for an external NATS server: set pubsub-url too", key)
			}
		}
		if l.Replicas > 1 && !l.ClampReplicas && !l.clustered() {
			l.problem("replicas: %d, but the embedded NATS server is a single one: use 1, clamp-replication, cluster-peers, or pubsub-url with a cluster", l.Replicas)
		}
		if l.NATSListen != "" {
			if _, _, err := splitHostPort(l.NATSListen); err != nil {
				l.problem("nats-listen: %v", err)
			}
		}
		if l.DataDir == "" && (l.Storage == "file" || l.clustered()) {
			if l.DataDir = defaultDataDir(l.getenv); l.DataDir == "" {
				l.problem("data-dir: the user has no home folder to put it in: set it")
			}
		}
	}
	l.checkCluster()
	if l.NATSUser == "" && (l.isSet("nats-password") || l.NATSPasswordFile != "") {
		l.problem("nats-user: missing, but a password is given")
	}
	if l.NATSUser != "" && l.NATSPassword.IsZero() && l.NATSPasswordFile == "" {
		l.problem("nats-user: no password given: set %s or use nats-password-file", envName("nats-password"))
	}
	if !l.NATSPassword.IsZero() && l.NATSPasswordFile != "" {
		l.problem("nats-password-file: nats-password is set too")
	}
	if (l.NATSTLSCert == "") != (l.NATSTLSKey == "") {
		l.problem("nats-tls-cert and nats-tls-key: one is missing")
	}
	l.checkFile("pubsub-creds", l.PubsubCreds, true)
	l.checkFile("nats-nkey", l.NATSNKey, true)
	l.checkFile("nats-password-file", l.NATSPasswordFile, true)
	l.checkFile("nats-tls-ca", l.NATSTLSCA, false)
	l.checkFile("nats-tls-cert", l.NATSTLSCert, false)
	l.checkFile("nats-tls-key", l.NATSTLSKey, true)
	if need := l.MaxMessage + 64<<10; l.MaxRequest < need {
		if l.isSet("socket.request.max.bytes") {
			l.problem("socket.request.max.bytes: %s is below message.max.bytes + 64 KiB, %d", l.MaxRequest, need)
		} else {
			l.MaxRequest = need
		}
	}
	if l.GroupMinSess > l.GroupMaxSess {
		l.problem("group.min.session.timeout.ms: %s is above group.max.session.timeout.ms, %s", shortDuration(l.GroupMinSess), shortDuration(l.GroupMaxSess))
	}
	if l.ShutdownDelay > l.ShutdownGrace {
		l.problem("shutdown-delay: %s is longer than shutdown-grace, %s", shortDuration(l.ShutdownDelay), shortDuration(l.ShutdownGrace))
	}
	if len(l.problems) == 0 {
		l.checkParts()
	}
}

// external reports that an external NATS server is named.
func (c *config) external() bool { return c.PubsubURL != "" || c.NATSContext != "" }

func (l *loaded) checkURLs() {
	for _, one := range strings.Split(l.PubsubURL, ",") {
		one = strings.TrimSpace(one)
		full := one
		if !strings.Contains(full, "://") {
			full = "nats://" + full
		}
		u, err := url.Parse(full)
		if err != nil { // the error quotes the URL, password and all
			l.problem("pubsub-url: not a URL such as nats://host:4222 (from %s)", l.origin["pubsub-url"])
			continue
		}
		switch u.Scheme {
		case "nats", "tls", "ws", "wss":
		default:
			l.problem("pubsub-url: scheme %q is not nats, tls, ws or wss", logging.Printable(u.Scheme))
		}
		if u.Hostname() == "" {
			l.problem("pubsub-url: %q names no host", logging.Printable(u.Redacted()))
		}
		if _, has := u.User.Password(); has && strings.HasPrefix(l.origin["pubsub-url"], "flag ") {
			l.warn("pubsub-url holds a password and stands on the command line, where other users can read it: use the variable %s, nats-user with nats-password-file, or pubsub-creds", envName("pubsub-url"))
		}
	}
}

func (l *loaded) checkBind(key string, addrs []string) {
	for _, a := range addrs {
		if _, err := listenAddress(a, 1); err != nil {
			l.problem("%s: %v", key, err)
		}
	}
}

// listenAddress completes host or host:port with the port. IPv6 addresses may
// come without brackets if they have no port.
func listenAddress(s string, port int) (string, error) {
	if ip, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(s, "["), "]")); err == nil {
		return net.JoinHostPort(ip.String(), strconv.Itoa(port)), nil
	}
	if !strings.Contains(s, ":") {
		if s == "" || strings.ContainsAny(s, " /") {
			return "", fmt.Errorf("%q is not an address", logging.Printable(s))
		}
		return net.JoinHostPort(s, strconv.Itoa(port)), nil
	}
	host, p, err := splitHostPort(s)
	if err != nil {
		return "", err
	}
	return net.JoinHostPort(host, strconv.Itoa(p)), nil
}

func splitHostPort(s string) (string, int, error) {
	host, p, err := net.SplitHostPort(s)
	if err != nil {
		return "", 0, fmt.Errorf("%q is not host:port", logging.Printable(s))
	}
	n, err := strconv.Atoi(p)
	if err != nil || n < 0 || n > 65535 {
		return "", 0, fmt.Errorf("%q has no port from 0 to 65535", logging.Printable(s))
	}
	return host, n, nil
}

// unspecified reports 0.0.0.0 and ::, which nobody can connect to.
func unspecified(host string) bool {
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsUnspecified()
}

func (l *loaded) checkFile(key, path string, secret bool) {
	if path == "" {
		return
	}
	f, err := os.Open(path)
	if err != nil {
		l.problem("%s: %s: %v", key, path, unwrapPath(err))
		return
	}
	defer func() { _ = f.Close() }() // only read from
	st, err := f.Stat()
	switch {
	case err != nil:
		l.problem("%s: %s: %v", key, path, unwrapPath(err))
	case st.IsDir():
		l.problem("%s: %s: is a folder", key, path)
	case secret && runtime.GOOS != "windows" && st.Mode().Perm()&0o007 != 0:
		l.warn("%s: %s can be read by every user of this machine (mode %04o): chmod 600 it", key, path, st.Mode().Perm())
	}
}

// defaultDataDir is the user's data folder: $XDG_DATA_HOME or what the system
// has in its place. "" if there is no home.
func defaultDataDir(getenv func(string) string) string {
	if x := getenv("XDG_DATA_HOME"); filepath.IsAbs(x) {
		return filepath.Join(x, "stream")
	}
	home := getenv("HOME")
	switch runtime.GOOS {
	case "windows":
		if d := getenv("LocalAppData"); d != "" {
			return filepath.Join(d, "stream")
		}
		home = ""
	case "darwin":
		if home != "" {
			return filepath.Join(home, "Library", "Application Support", "stream")
		}
	}
	if home == "" {
		return ""
	}
	return filepath.Join(home, ".local", "share", "stream")
}
