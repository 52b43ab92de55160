package main

import (
	"bytes"
	"net"
	"strings"
	"testing"
)

// The words are fixed: reliability promises are written out here, not derived.
func TestC40BannerSaysTheDurability(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args        []string
		maxReplicas int
		want        string
	}{
		{[]string{"--storage", "memory"}, 1,
			"durability: memory. An acknowledged record survives the death of any gateway that does not embed the store, but not a restart of the NATS server.\n"},
		{[]string{"--sync", "2m"}, 1,
			"durability: r1-interval. An acknowledged record survives `kill -9` of gateways and of the NATS server, but not a crash of the operating system or a loss of power less than 2m after it was stored; loss of the disk.\n"},
		{nil, 1,
			"durability: r1-always. An acknowledged record survives `kill -9` of gateways and of the NATS server, a crash of the operating system and a loss of power, but not loss of the disk.\n"},
		{[]string{"--pubsub-url", "nats://h", "--replicas", "3", "--sync", "10s"}, 3,
			"durability: r3-interval. An acknowledged record survives the loss of any one NATS node, and `kill -9` of all of them, but not a crash of the operating system or a loss of power, less than 10s after it was stored, on a majority of the nodes, or on one while another stands still or is cut off (Jepsen, NATS 2.12.1).\n"},
		{[]string{"--pubsub-url", "nats://h", "--replicas", "3", "--sync", "always"}, 5,
			"durability: r3-always. An acknowledged record survives the loss of any one NATS node, `kill -9`, crashes and loss of power of all of them, but not disk loss on a majority or silent corruption; membership changes during faults (NATS issues 7549, 7556, 7545 open).\n"},
		// Not stated, so the least; and what NATS cannot do is not claimed.
		{[]string{"--pubsub-url", "nats://h", "--replicas", "3"}, 3, "less than the server's sync interval (2m0s unless set) after it was stored"},
		{[]string{"--pubsub-url", "nats://h", "--replicas", "3"}, 3, "(when the external NATS server syncs is unknown: state it with --sync)\n"},
		{[]string{"--pubsub-url", "nats://h", "--replicas", "3", "--sync", "always", "--clamp-replication"}, 1, "durability: r1-always. "},
		{[]string{"--pubsub-url", "nats://h", "--replicas", "2", "--sync", "always"}, 3, "durability: r1-always. "},
	} {
		l := loadWith(t, c.args, nil)
		var out bytes.Buffer
		b := banner{version: "v", bootstrap: []string{"localhost:9092"}, http: "http://localhost:9093/v1/stream/", store: "s",
			durability: durabilityOf(l, c.maxReplicas), warnings: []string{"w1"}}
		if err := b.write(&out); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{c.want, "\n  bootstrap.servers=localhost:9092\n", "http: http://localhost:9093/v1/stream/\n", "  warning: w1\n"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%q: no %q in\n%s", c.args, want, out.String())
			}
		}
	}
}

func TestOpenWarnings(t *testing.T) {
	t.Parallel()
	listen := func(addr string) []net.Listener {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		return []net.Listener{l}
	}
	local, open := listen("127.0.0.1:0"), listen(":0")
	for _, c := range []struct {
		kafka, http []net.Listener
		nats        string
		cluster     string
		want        []string
	}{
		{local, local, "", "", nil},
		{local, nil, "127.0.0.1:4222", "127.0.0.1:6222", nil},
		{local, nil, "localhost:4222", "localhost:6222", nil},
		{open, local, "", "", []string{"Kafka on "}},
		{local, open, "", "", []string{"HTTP on "}},
		{open, open, ":4222", ":6222", []string{"Kafka on ", "HTTP on ", "NATS on :4222", "the cluster's port on :6222"}},
		{local, nil, "0.0.0.0:4222", "", []string{"NATS on 0.0.0.0:4222"}},
		{local, nil, "", "10.0.0.1:6222", []string{"the cluster's port on 10.0.0.1:6222"}},
	} {
		got := openWarnings(c.kafka, c.http, c.nats, c.cluster)
		if len(got) != len(c.want) {
			t.Errorf("%q, want %q", got, c.want)
			continue
		}
		for i := range got {
			if !strings.HasPrefix(got[i], c.want[i]) || !strings.Contains(got[i], "without login") && !strings.Contains(got[i], "without --cluster-secret-file") {
				t.Errorf("%q, want %q", got[i], c.want[i])
			}
		}
	}
}
