// Package scale measures a gateway on much stored data: a long partition with
// cold caches, a thousand partitions, and what gateways ask of JetStream while
// nobody does anything. Data is written by the product's own
// partitions, in this process, over a log that does not wait for each
// acknowledgement (see ahead); then real processes serve it and are watched from
// outside.
//
// Go tests run it small. STREAM_SCALE=full, or make scale, takes the sizes of
// the promises: 2,000,000 messages in one partition, 1,000 partitions with 1,000
// each. Times and memory are printed; they fail the test only with
// STREAM_SCALE_STRICT=1, on a machine that has nothing else to do.
package scale
