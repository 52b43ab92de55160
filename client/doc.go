// Package client is the command line client: topics, groups, records and the
// state of a cluster, for people without Kafka's own tools. It speaks the Kafka
// protocol over the network and knows nothing of the server in the same binary,
// so it works with any Kafka.
//
// [Commands] is the only entry: package main hangs the result under its root.
// Every command ends with nil or an *[Error]. What a command was asked for goes
// to stdout, progress and questions go to stderr.
package client
