// Command stream is a Kafka server that stores everything in NATS JetStream.
//
// This package owns the command line, the configuration, the wiring of the
// other packages, signals and exit codes; no rules. Start reading at main.go
// (commands), serve.go (the server from start to end), config.go (every key).
package main

//go:generate go test -run TestDocs . -update
