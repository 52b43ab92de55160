// Package cluster is who lives: this gateway's membership, renewed by
// compare-and-set, its peers, and leases. Dead is a written fact, never a
// guess. Built on pubsub.Table; see DESIGN.md of broker/coord for what ownership
// makes of it.
package cluster
