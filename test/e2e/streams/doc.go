// Package streams runs a Kafka Streams application, exactly once, while it and
// the broker are killed.
package streams
