package main

import (
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/hanzoai/stream/broker/cluster"
	"github.com/hanzoai/stream/logging"
	"github.com/hanzoai/stream/pubsub/embedded"
)

// clustered reports that the embedded NATS server is one of several.
func (c *config) clustered() bool { return c.ClusterListen != "" || len(c.ClusterPeers) > 0 }

// nodesHaveAddresses makes an address per gateway the default of a cluster: clients
// know the addresses of all nodes, and one that is told a single one could go
// nowhere when that node dies.
func (l *loaded) nodesHaveAddresses() {
	if l.clustered() && !l.isSet("address-mode") {
		l.AddressMode = string(cluster.PerGateway)
	}
}

// checkCluster checks the keys of an embedded cluster and fills in what follows
// from it.
func (l *loaded) checkCluster() {
	if !l.clustered() {
		for _, key := range []string{"cluster-secret", "cluster-secret-file"} {
			if l.isSet(key) {
				l.problem("%s: there is no cluster: set cluster-listen and cluster-peers too", key)
			}
		}
		return
	}
	if l.external() {
		l.problem("cluster-listen and cluster-peers: only embedded NATS servers form a cluster, and pubsub-url or nats-context names an external one")
		return
	}
	before := len(l.problems)
	if !prefixPattern.MatchString(strings.ReplaceAll(l.ClusterName, "-", "_")) {
		l.problem("cluster-name: %q is not 1 to 30 of A-Z, a-z, 0-9, - and _", logging.Printable(l.ClusterName))
	}
	switch {
	case l.ClusterListen == "":
		l.problem("cluster-listen: missing, but cluster-peers is given: the other nodes must reach this one")
	case len(l.ClusterPeers) == 0:
		l.problem("cluster-peers: missing, but cluster-listen is given: name the cluster-listen addresses of all nodes")
	}
	l.checkPeer("cluster-listen", l.ClusterListen, true)
	for i, p := range l.ClusterPeers {
		l.checkPeer("cluster-peers", p, false)
		if slices.Contains(l.ClusterPeers[:i], p) {
			l.problem("cluster-peers: %s is named twice", logging.Printable(p))
		}
	}
	if !l.ClusterSecret.IsZero() && l.ClusterSecretFile != "" {
		l.problem("cluster-secret-file: cluster-secret is set too")
	}
	l.checkFile("cluster-secret-file", l.ClusterSecretFile, true)
	if len(l.problems) > before {
		return
	}
	switch n := l.clusterSize(); {
	case n < 3:
		l.problem("cluster-peers: a cluster of %d cannot lose a node, because no majority is left: name 3 or 5 nodes, or leave both keys out for a single one", n)
	case n != 3 && n != 5:
		l.problem("cluster-peers: a cluster of %d: use 3 or 5 nodes, one more than an odd number survives no more", n)
	case !l.isSet("replicas"):
		l.Replicas = 3
	case l.Replicas > n && !l.ClampReplicas:
		l.problem("replicas: %d, but the cluster has %d nodes: use at most that many, or clamp-replication", l.Replicas, n)
	}
}

// checkPeer checks one address of a node.
func (l *loaded) checkPeer(key, addr string, own bool) {
	if addr == "" {
		return
	}
	switch host, port, err := splitHostPort(addr); {
	case err != nil:
		l.problem("%s: %v", key, err)
	case port == 0:
		l.problem("%s: %q: the other nodes must know the port", key, logging.Printable(addr))
	case !own && (host == "" || unspecified(host)):
		l.problem("%s: %q cannot be connected to: name the host that the other nodes reach", key, logging.Printable(addr))
	}
}

// clusterSize is the number of nodes. The list names all of them or all others:
// an odd list is complete, and so is one in which this node finds its own
// address.
func (c *config) clusterSize() int {
	n := len(c.ClusterPeers)
	if n%2 == 1 || slices.ContainsFunc(c.ClusterPeers, c.ownPeer) {
		return n
	}
	return n + 1
}

// ownPeer recognises this node's own address as far as that needs no look-up.
func (c *config) ownPeer(addr string) bool {
	host, port, _ := splitHostPort(addr)
	own, ownPort, _ := splitHostPort(c.ClusterListen)
	if port != ownPort {
		return false
	}
	loopback := func(h string) bool {
		ip := net.ParseIP(h)
		return h == "localhost" || ip != nil && ip.IsLoopback()
	}
	return strings.EqualFold(host, own) || loopback(host) && (loopback(own) || own == "" || unspecified(own))
}

// cluster is the embedded server's part of a cluster; nil if it stands alone.
func (l *loaded) cluster() (*embedded.Cluster, error) {
	if !l.clustered() {
		return nil, nil
	}
	c := &embedded.Cluster{
		Name: l.ClusterName, Listen: l.ClusterListen, Peers: l.ClusterPeers, Size: l.clusterSize(), Secret: l.ClusterSecret.Reveal(),
	}
	if l.ClusterSecretFile != "" {
		secret, err := readSecret("cluster-secret-file", l.ClusterSecretFile)
		if err != nil {
			return nil, err
		}
		if secret == "" {
			return nil, fmt.Errorf("cluster-secret-file: %s is empty", l.ClusterSecretFile)
		}
		c.Secret = secret
	}
	return c, nil
}
