// Package admin is the HTTP side for operators: status, topics, groups, probes
// and metrics on a port of its own. It owns routes, limits, problem documents
// and field names; it knows neither Kafka's wire protocol nor NATS. What it
// needs of the gateway is the small interface in backend.go.
//
// Start reading at server.go, then routes.go.
package admin
