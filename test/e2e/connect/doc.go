// Package connect runs Kafka Connect, standalone and distributed, with the file
// connectors that come with it, and what a schema registry asks of the topic that
// it lives on.
package connect
