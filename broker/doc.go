// Package broker puts Kafka's rules together: topics, partitions, groups,
// producer ids and membership over one store. It is what the wire and the HTTP
// side talk to. The rules themselves live in the folders below; this package
// only opens, connects and closes them, and maps errors to Kafka's codes
// (errors.go). Start reading at broker.go.
package broker
