// Package compress decodes and encodes the four codecs of Kafka's record
// batches, with a limit on what a few bytes may grow to. It knows nothing of
// batches or requests.
//
// Stored batches pass through untouched; decoding is for the few places that
// must look at records, so every caller states how much it is ready to hold.
package compress
