package main

import (
	"context"
	bigendian "encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

func joinHostPort(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }

// openFiles compares the limit of open files with what may be needed: a socket
// per client, and with the embedded server a file or two per partition.
func (d *doctor) openFiles(partitions int) {
	limit, ok := openFileLimit()
	if !ok {
		d.ok("open files", "this system sets no limit that can be read")
		return
	}
	const own = 100
	need := uint64(d.l.MaxConns) + own
	text := fmt.Sprintf("%d allowed; max.connections %d", limit, d.l.MaxConns)
	if !d.l.external() {
		need += 2 * uint64(partitions)
		text += fmt.Sprintf(", %d partitions", partitions)
	}
	text += fmt.Sprintf(" and the rest may need %d", need)
	switch remedy := "raise it (ulimit -n, LimitNOFILE= of a systemd unit, the container's nofile), or lower --max-connections"; {
	case limit < own:
		d.add("open files", levelFail, text, remedy)
	case limit < need:
		d.add("open files", levelWarn, text+": clients beyond it are not accepted", remedy)
	default:
		d.ok("open files", "%s", text)
	}
}

// address checks what clients are told to connect to.
func (d *doctor) address(ctx context.Context) {
	const check = "advertised address"
	a := d.l.advertise(d.l.Port)
	if a.Host == "" {
		d.ok(check, "each client is told the address that it has reached")
		return
	}
	at := joinHostPort(a.Host, int(a.Port))
	ips, err := lookup(ctx, a.Host)
	if err != nil {
		d.add(check, levelFail, fmt.Sprintf("%s: %v", at, err), "advertise a name that clients can resolve, with --host or --advertised-address")
		return
	}
	loopback := true
	for _, ip := range ips {
		loopback = loopback && ip.IsLoopback()
	}
	level, text, remedy := levelOK, at, ""
	if net.ParseIP(a.Host) == nil {
		text += fmt.Sprintf(" (%s)", ips[0])
	}
	switch open := d.boundBeyondLoopback(); {
	case loopback && open:
		level = levelWarn
		text += ": the port is open to other machines, but clients there are told to connect to themselves"
		remedy = "advertise a name they can reach with --host, or keep the port on this machine with --bind 127.0.0.1"
	case !loopback && !open:
		level = levelWarn
		text += ": clients elsewhere are told so, but the port is bound to this machine only"
		remedy = "leave --bind out, or bind the advertised address, unless something forwards connections"
	}
	if a.Port == 0 {
		d.add(check, level, text+"; port 0 takes a free one at each start", remedy)
		return
	}
	switch err := speaksKafka(ctx, at); {
	case err == nil:
		text += "; a Kafka server answers there"
	case errors.Is(err, errNotKafka):
		level, remedy = levelFail, "stop what has the port, or choose another with --port or --advertised-address"
		text += "; what answers there is no Kafka server: " + err.Error()
	default:
		text += "; nothing answers there now: run this again beside a running server"
	}
	d.add(check, level, text, remedy)
}

func lookup(ctx context.Context, host string) ([]net.IP, error) {
	if ip := net.ParseIP(host); ip != nil {
		return []net.IP{ip}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	addrs, err := net.DefaultResolver.LookupIPAddr(ctx, host)
	if err != nil {
		var dns *net.DNSError
		if errors.As(err, &dns) {
			return nil, fmt.Errorf("%s cannot be resolved: %s", host, dns.Err)
		}
		return nil, err
	}
	ips := make([]net.IP, len(addrs))
	for i, a := range addrs {
		ips[i] = a.IP
	}
	return ips, nil
}

// boundBeyondLoopback reports whether other machines can reach the Kafka port.
func (d *doctor) boundBeyondLoopback() bool {
	if len(d.l.Bind) == 0 {
		return true
	}
	for _, b := range d.l.Bind {
		full, err := listenAddress(b, d.l.Port)
		if err != nil {
			continue
		}
		host, _, _ := splitHostPort(full)
		if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			return true
		}
	}
	return false
}

var errNotKafka = errors.New("no Kafka answer")

// speaksKafka sends an ApiVersions request, version 0. Any Kafka server answers
// it with the same correlation id and without an error.
func speaksKafka(ctx context.Context, at string) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	var dialer net.Dialer
	c, err := dialer.DialContext(ctx, "tcp", at)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	deadline, _ := ctx.Deadline()
	if err := c.SetDeadline(deadline); err != nil {
		return err
	}
	const id = 0x646f6374
	client := "stream-doctor"
	b := bigendian.BigEndian.AppendUint32(nil, uint32(10+len(client)))
	b = bigendian.BigEndian.AppendUint16(b, 18)
	b = bigendian.BigEndian.AppendUint16(b, 0)
	b = bigendian.BigEndian.AppendUint32(b, id)
	b = bigendian.BigEndian.AppendUint16(b, uint16(len(client)))
	b = append(b, client...)
	if _, err := c.Write(b); err != nil {
		return fmt.Errorf("%w: %w", errNotKafka, err)
	}
	head := make([]byte, 10)
	if _, err := io.ReadFull(c, head); err != nil {
		return fmt.Errorf("%w: %s", errNotKafka, strings.TrimSpace(err.Error()))
	}
	if bigendian.BigEndian.Uint32(head[4:]) != id || bigendian.BigEndian.Uint16(head[8:]) != 0 {
		return fmt.Errorf("%w: other bytes", errNotKafka)
	}
	return nil
}
