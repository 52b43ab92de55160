// Package pubsub is the narrow waist between Kafka's rules and NATS: logs with
// compare-and-append (Log), revisioned maps with compare-and-set (Table), and
// the Store that makes both. It knows nothing of Kafka; broker/* imports it and
// nothing below it. Implementations: jetstream (real), memory (tests, with
// faults), embedded (starts a NATS server for jetstream to talk to). The
// contract package is the suite that memory and jetstream both pass.
//
// Start reading at log.go and table.go; names.go has the encoder for every
// name that a client chooses.
package pubsub
