// Package keys asks brokers, request by request and in every version, what no
// client library asks in full: the small admin APIs. The answers, after what
// differs from run to run was taken out, are compared with those of Apache Kafka
// 4.3.1 in testdata, which make record writes anew. Start reading at script.go.
package keys
