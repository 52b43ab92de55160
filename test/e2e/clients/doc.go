// Package clients runs one table of scenarios with every client library: real
// programs use all of them, and no two speak the same versions. A client is a
// value of the interface client (client_test.go); the scenarios know nothing
// about it but what it cannot do.
package clients
