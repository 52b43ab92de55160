// Package keys asks brokers, request by request and in every version, what no
// client library asks in full (script_test.go), walks through the life of fetch
// sessions (fetch_test.go) and calls every method of the Java admin client
// (admin_test.go, ../java/Admin.java). The answers, after what differs from run
// to run was taken out, are compared with those of Apache Kafka 4.3.1 in
// testdata, which make record writes anew; what differs is listed with a reason,
// and the list must shrink.
package keys
