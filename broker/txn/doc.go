// Package txn coordinates transactions: one owned record per transactional id,
// changed only by compare-and-set, from which the end of a transaction is carried
// out by whoever owns it. The rules are Kafka's (KIP-98, 360, 588, 664, 890).
// DESIGN.md tells why it is built as it is.
package txn
