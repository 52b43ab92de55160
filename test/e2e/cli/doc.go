// Package cli runs Apache Kafka's own command line tools against a broker.
package cli
