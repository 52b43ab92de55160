// Package gateway runs one to five whole gateways over one memory server, in
// virtual time: membership, topics, partitions, groups together, driven as the
// wire drives them. Clients do what real ones do: idempotent producers that
// retry through other gateways, consumers in groups that heartbeat, rebalance and
// commit, by the eager protocol or in the two steps of the cooperative one, admin
// clients that make, grow, delete and make again, others that commit without being
// members and delete the group. Trouble kills, freezes, isolates, cuts off and drains
// gateways and sets their clocks, on top of a weather at the store. Then everything
// heals, consumers must get to the ends of their logs, and what all of them saw is
// checked with test/history; what is stored must be what topics explain, and of groups
// that were deleted, or whose offsets expired, nothing is left.
//
// Some things must happen now and then, or the simulation proves nothing: they
// are counted over all seeds (sometimes_test.go).
//
// A run of its own has workers that consume, transform and produce in transactions
// (transactions_test.go).
//
// Start reading at sim_test.go (a run), then process_test.go (gateways and how
// clients reach them), trouble_test.go, the clients, verify_test.go.
package gateway
