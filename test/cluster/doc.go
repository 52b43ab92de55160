// Package cluster runs several real gateways on real NATS servers, one or three,
// behind a balancer or each with its own address, and breaks them under load:
// kill -9, SIGSTOP and SIGTERM of gateways, kill -9 and SIGSTOP of NATS servers,
// leaders that step down, acknowledgements that come late or never. Everything
// that clients saw goes into a history (package test/history), which is checked
// when the load is over; a history with a problem is kept under .cache/chaos.
//
// Faults follow from a seed, which a run prints. CHAOS_SEED, CHAOS_MINUTES,
// CHAOS_REPLICAS, CHAOS_MODE and CHAOS_GATEWAYS make TestChaos long (see make
// chaos); without them it is short.
//
// Start reading at chaos_test.go, then world_test.go (processes), load_test.go
// (clients), faults_test.go and stalls_test.go. The kill points of utils/killpoint
// have a table of their own in killpoint_test.go.
//
// A module of its own, so that the product does not depend on a Kafka client.
package cluster
