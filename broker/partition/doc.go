// Package partition is a Kafka partition as a state machine over its log:
// decide, append, apply, answer, in that order. What it remembers is a cache as
// of a sequence of the log and can be rebuilt from the partition record, a
// snapshot and the headers after it. It knows nothing of requests or of NATS.
// DESIGN.md tells why; start reading at state.go (rules) and partition.go (driver).
package partition
