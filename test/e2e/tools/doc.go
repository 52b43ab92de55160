// Package tools runs client programs that are not Go: Apache Kafka's command
// line tools, kcat, Python and Node. Each is installed by test/e2e/setup.sh; a
// test whose program is not there is skipped, or fails if CI=true.
package tools
