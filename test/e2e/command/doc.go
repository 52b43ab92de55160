// Package command runs the stream binary's client commands as a person would,
// against us and against Apache Kafka: both must give the same output and exit
// codes.
package command
