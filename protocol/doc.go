// Package protocol speaks Kafka's wire protocol: listeners, connections, the
// dispatch table, and one file per API named by key and API (00_produce.go).
// A handler translates and authorises; it holds no rules of Kafka's state and
// never sees the store. What it needs of the broker is stated in backend.go.
//
// Start reading at api.go (the table), conn.go (order and limits), then any API.
package protocol
