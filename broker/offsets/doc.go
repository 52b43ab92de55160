// Package offsets shows the table of committed offsets and groups as Kafka's
// internal topic __consumer_offsets, read-only, for the tools that read it. The
// table is a compacted log already: the record of revision r is at offset r−1
// of the one partition, and each read translates what it finds. Start reading
// at view.go, then read.go.
package offsets
