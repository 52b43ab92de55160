// Package clients runs one table of scenarios with every client library: real
// programs use all of them, and no two speak the same versions. A library is a
// value of the type library (client_test.go); the scenarios know nothing about
// it but what it cannot do. Libraries of other languages are programs that
// answer calls in JSON lines (process_test.go): test/e2e/java, python, node,
// rust. A recorder before the broker notes the versions that each one uses, and the
// whole result is docs/clients.md (table_test.go).
package clients
