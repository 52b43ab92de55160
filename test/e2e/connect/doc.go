// Package connect runs Kafka Connect, standalone and distributed, with the file
// connectors that come with it.
package connect
