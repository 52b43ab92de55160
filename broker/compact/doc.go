// Package compact says what compaction leaves of a partition's batches. It is
// pure: it knows no store and no clock, and does what Apache Kafka 4.3's cleaner
// does (org.apache.kafka.storage.internals.log.Cleaner, SkimpyOffsetMap,
// CleanedTransactionMetadata; MemoryRecords.filterTo; KIP-534).
//
// A pass over a log has two halves. Index reads the part that was not compacted
// yet, in order, into a map of keys to their last offset, until it ends or the
// map is full. Filter then takes every batch from the log's start up to where
// the map reaches, in order, and gives back what remains:
//
//   - of a key, the record with its last offset; what lies at Env.Upto and above
//     is not covered by the map and stays;
//   - a tombstone (null value) until the batch's delete horizon, which the first
//     pass that meets it sets: DeleteRetention from then;
//   - of an aborted transaction, no record. So whoever reads what Filter left needs
//     none of the aborted transactions that ended in it, and must not be told
//     of them: a consumer that is told of one whose marker is gone drops that
//     producer's later transactions as well;
//   - a transaction's marker while batches of it were there in this pass; after
//     that it gets a delete horizon as tombstones do;
//   - the newest batch of a live producer and the last one of the pass, at least
//     as a batch without records;
//   - no record without a key.
//
// A batch of which nothing goes is given back as it was, byte for byte. One that
// is written anew keeps its offsets, base and last, its producer, its leader epoch
// and codec, so that clients move over the holes.
package compact
