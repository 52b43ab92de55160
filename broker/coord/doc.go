// Package coord hosts owned records: one record per group (later per
// transactional id), changed only by compare-and-set by the gateway named in
// it. One event at a time per record; the rules are the caller's pure functions.
// It knows neither Kafka's groups nor NATS. DESIGN.md tells why.
package coord
