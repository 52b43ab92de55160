// Package txn brings transactions into every state that a coordinator knows and
// sends, in each state, every request in every version: from the current epoch,
// the one before, an older and a newer one, from another producer, and each of
// them twice. What comes back, and the state after it, is compared with what
// Apache Kafka 4.3.1 did (testdata/table.txt, written by make record).
//
// The rows of table.txt are "request v0-v3, variant: first answer | second answer
// | transaction after | partition after". Epochs are told beside the one that the
// client of the state holds ("e+1"), producer ids as "same", "new" or "none". An
// answer 51 (CONCURRENT_TRANSACTIONS) is asked again, as clients do, and shown
// once as "51,".
package txn
