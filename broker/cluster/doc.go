// Package cluster is who lives and how gateways talk: this gateway's membership,
// renewed by compare-and-set, its peers, leases, and calls from one gateway to
// another. Dead is a written fact, never a guess. Built on pubsub.Table and
// pubsub.Store; see DESIGN.md of broker/coord for what ownership makes of it.
package cluster
