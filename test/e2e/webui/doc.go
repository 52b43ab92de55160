// Package webui replays what web interfaces and lag monitors ask a broker when
// they start and when one of their pages is opened: kafbat UI, AKHQ, Redpanda
// Console, kafka_exporter, Burrow. The table in pages_test.go says which tool asks
// what, from its source; every answer is checked against what the test has
// written: sizes, offsets, lags, sources of configs, members.
//
// Calls of Java's AdminClient are sent as the requests it makes, in the versions
// it makes them in. Console is built on franz-go, the monitors on sarama: their
// calls are those of the libraries themselves.
package webui
