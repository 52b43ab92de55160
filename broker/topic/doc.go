// Package topic owns the life of topics: their records (the commit point of
// create, alter and delete), names, ids and configs. A topic's partitions are
// logs that package partition makes and destroys for it. It knows neither
// requests nor NATS. Start reading at types.go, then topics.go.
package topic
