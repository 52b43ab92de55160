// Package group holds the rules of Kafka's classic consumer groups and of
// committed offsets: pure functions from (record, event) to (record, answer,
// timers), driven by coord. It knows neither wire versions nor NATS. Start
// reading at types.go (what is asked), then state.go (rules).
package group
