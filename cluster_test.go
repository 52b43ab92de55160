package main

import (
	"strings"
	"testing"

	"github.com/hanzoai/stream/logging"
)

// TestClusterConfig: what forms a cluster, and what says why not.
func TestClusterConfig(t *testing.T) {
	t.Parallel()
	secret := writeFile(t, "secret", "s\n")
	three := []string{"--cluster-listen", "10.0.0.1:6222", "--cluster-peers", "10.0.0.1:6222,10.0.0.2:6222,10.0.0.3:6222"}
	for _, c := range []struct {
		args []string
		env  []string
		size int // 0: refused
		want string
	}{
		{args: three, size: 3},
		{args: []string{"--cluster-listen", "10.0.0.1:6222", "--cluster-peers", "10.0.0.2:6222,10.0.0.3:6222"}, size: 3},
		{args: []string{"--cluster-listen", ":6222", "--cluster-peers", "b:6222,c:6222"}, size: 3},
		{args: []string{"--cluster-listen", "0.0.0.0:6222", "--cluster-peers", "a:6222,b:6222,c:6222,d:6222,e:6222"}, size: 5},
		{args: []string{"--cluster-listen", "a:6222", "--cluster-peers", "b:6222,c:6222,d:6222,e:6222"}, size: 5},
		{args: append([]string{"--cluster-secret-file", secret, "--storage", "memory"}, three...), size: 3},
		{args: three, env: []string{"STREAM_CLUSTER_SECRET=x"}, size: 3},

		{args: []string{"--cluster-listen", "a:6222", "--cluster-peers", "a:6222,b:6222"}, want: "a cluster of 2 cannot lose a node, because no majority is left"},
		{args: []string{"--cluster-listen", "localhost:1", "--cluster-peers", "127.0.0.1:1,127.0.0.1:2"}, want: "a cluster of 2"},
		{args: []string{"--cluster-listen", "a:6222", "--cluster-peers", "a:6222"}, want: "a cluster of 1"},
		{args: []string{"--cluster-listen", "a:1", "--cluster-peers", "a:1,b:1,c:1,d:1"}, want: "a cluster of 4: use 3 or 5"},
		{args: []string{"--cluster-listen", "a:1", "--cluster-peers", "a:1,b:1,c:1,d:1,e:1,f:1,g:1"}, want: "a cluster of 7: use 3 or 5"},
		{args: []string{"--cluster-listen", "a:1"}, want: "cluster-peers: missing"},
		{args: []string{"--cluster-peers", "a:1,b:1,c:1"}, want: "cluster-listen: missing"},
		{args: []string{"--cluster-listen", "a:1", "--cluster-peers", "a:1,b:0,c:1"}, want: "must know the port"},
		{args: []string{"--cluster-listen", "a:1", "--cluster-peers", "a:1,b,c:1"}, want: "not host:port"},
		{args: []string{"--cluster-listen", "a:1", "--cluster-peers", "a:1,0.0.0.0:1,c:1"}, want: "cannot be connected to"},
		{args: []string{"--cluster-listen", "a:1", "--cluster-peers", "a:1,b:1,b:1"}, want: "b:1 is named twice"},
		{args: append([]string{"--replicas", "4"}, three...), want: "replicas: 4, but the cluster has 3 nodes"},
		{args: append([]string{"--cluster-name", "a b"}, three...), want: "cluster-name"},
		{args: append([]string{"--pubsub-url", "nats://h"}, three...), want: "only embedded NATS servers form a cluster"},
		{args: append([]string{"--cluster-secret-file", secret}, three...), env: []string{"STREAM_CLUSTER_SECRET=x"}, want: "cluster-secret is set too"},
		{args: []string{"--cluster-secret-file", secret}, want: "there is no cluster"},
		{args: append([]string{"-X", "cluster-secret=x"}, three...), want: "never taken from the command line"},
	} {
		l := loadWith(t, c.args, c.env)
		if c.size == 0 {
			if len(l.problems) == 0 || !strings.Contains(strings.Join(l.problems, "\n"), c.want) {
				t.Errorf("%q: problems %q, want one about %q", c.args, l.problems, c.want)
			}
			continue
		}
		if len(l.problems) > 0 || l.Replicas != 3 || l.AddressMode != "per-gateway" || l.clusterSize() != c.size {
			t.Errorf("%q: problems %q, %d replicas, %d nodes of %d", c.args, l.problems, l.Replicas, l.clusterSize(), c.size)
		}
		if b := l.brokerConfig(l.advertise(l.Port)); b.Cluster.Alone || b.Replicas != 3 {
			t.Errorf("%q: %+v: other nodes may live, and the store has three replicas", c.args, b.Cluster)
		}
		e, err := l.cluster()
		if err != nil || e.Size != c.size {
			t.Errorf("%q: %+v, %v", c.args, e, err)
		}
		wantSecret := map[bool]string{true: "s"}[l.ClusterSecretFile != ""]
		if len(c.env) > 0 {
			wantSecret = "x"
		}
		if e.Secret != wantSecret {
			t.Errorf("%q: secret %q, want %q", c.args, e.Secret, wantSecret)
		}
	}
	if l := loadWith(t, append([]string{"--address-mode", "shared"}, three...), nil); l.AddressMode != "shared" {
		t.Errorf("--address-mode shared became %s", l.AddressMode)
	}
	if l := loadWith(t, append([]string{"--host", "0.0.0.0"}, three...), nil); len(l.problems) != 1 || !strings.Contains(l.problems[0], "per-gateway needs an address") {
		t.Errorf("--host 0.0.0.0: %q", l.problems)
	}
	if l := loadWith(t, append([]string{"--replicas", "1"}, three...), nil); l.Replicas != 1 {
		t.Errorf("--replicas 1 became %d", l.Replicas)
	}
	if l := loadWith(t, append([]string{"--replicas", "5", "--clamp-replication"}, three...), nil); len(l.problems) > 0 {
		t.Errorf("clamped: %q", l.problems)
	}
	empty := loadWith(t, append([]string{"--cluster-secret-file", writeFile(t, "empty", "\n")}, three...), nil)
	if _, err := startEmbedded(t.Context(), empty, logging.Discard()); err == nil || !strings.Contains(err.Error(), "is empty") {
		t.Errorf("an empty secret: %v", err)
	}
}

// TestClusterOfTwo: it is refused with the code of a wrong configuration, and why.
func TestClusterOfTwo(t *testing.T) {
	t.Parallel()
	code, _, stderr := stream(t, nil, "--port", "0", "--admin-port", "0", "--data-dir", t.TempDir(),
		"--cluster-listen", "127.0.0.1:6222", "--cluster-peers", "127.0.0.1:6222,127.0.0.1:6223")
	if code != exitUsage || !strings.Contains(stderr, "a cluster of 2 cannot lose a node, because no majority is left") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
}
