// Package testkit starts the things that tests need as real processes: the
// stream binary, built once; NATS servers of several versions; a TCP relay
// that cuts or stalls connections. It owns their ports, folders, logs and end:
// nothing outlives the test, and a failed test prints the logs.
//
// It depends on the standard library only, so that any module may use it.
// Start reading at [Start].
package testkit
