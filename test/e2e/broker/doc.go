// Package broker starts what a suite runs against: a stream process, on its
// embedded NATS server or on an external one of a given version, or Apache
// Kafka itself. Every suite must pass on Apache Kafka first:
//
//	STREAM_E2E_BROKERS=kafka go test ./...
package broker
