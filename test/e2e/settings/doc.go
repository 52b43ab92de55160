// Package settings checks how topics and brokers are changed: configs and
// partitions, request by request, against what Apache Kafka answered.
//
// A file of testdata is a script: a line in the first column is one request, the
// indented lines below it are Apache Kafka's answer, recorded by
//
//	STREAM_E2E_BROKERS=kafka go test ./settings -record
//
// Where we answer differently on purpose, a line "ours: <reason>" follows, and
// below it our answer; recording keeps it.
package settings
