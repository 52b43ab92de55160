// Package suites runs test suites that others wrote for their Kafka clients.
//
// A suite is a Go module at a pinned version: the module proxy serves its tests
// with it. They are copied into a temporary folder, pointed at the broker and run
// with go test. Or it is a crate, whose tests setup.sh has built. The table says
// what is in each, and under slow what only STREAM_SUITES=whole (make nightly)
// runs, with the reason. testdata holds two files per suite:
//
//	NAME.results     pass, fail, skip or flaky per test, on Apache Kafka:
//	                 written by make record-suites, never by hand
//	NAME.exceptions  what passes there and not here, each with its reason
//
// Everything that passes on Apache Kafka must pass here; an exception whose tests
// all pass must be removed.
package suites
