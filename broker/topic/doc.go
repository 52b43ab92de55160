// Package topic owns the life of topics: their records (the commit point of
// create, alter and delete), names, ids and configs. A topic's partitions are
// logs that package partition makes and destroys for it. It knows neither
// requests nor NATS.
//
// Start reading at types.go, then topics.go (what is known, and asking when it
// is not), create.go, delete.go, sweep.go (what others left). names.go and
// keys.go hold Kafka's rules, record.go and metadata.go what is stored.
package topic
