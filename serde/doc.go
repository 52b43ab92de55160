// Package serde knows how Kafka's bytes look: request frames and headers, the
// record batch (magic 2) as a view over its bytes, records inside a batch,
// control batches. It decides nothing and compresses nothing; a record iterator
// takes bytes already decompressed.
//
// Start reading at batch.go.
package serde
