// Package jetstream implements pubsub.Store, Log and Table on NATS JetStream,
// over nats.go, against any server from 2.10.23 on. It is the only place that
// knows subjects, streams, buckets, headers, error codes and server versions.
// It knows nothing of Kafka and takes no decision: no retry of a write, no
// opinion on what a conflict means.
//
// Start reading at connect.go (what is checked before anything starts), then
// log.go (append), read.go (batched reads), run.go (reads that go on), bypass.go
// (how large answers come in), cursor.go (everything that follows a stream in
// order), table.go. errors.go holds the one map from NATS's errors
// to pubsub's. news.go says when streams tell of appends, and what that costs.
//
// # Hand-offs of an append
//
// What bounds small appends is the round trip, and in it the hand-offs between
// goroutines. An answer goes from nats.go's read loop straight into the channel
// on which the appending goroutine waits (conn.go: reply slots, each a
// subscription of its own with a channel, pooled, so that there are as many as
// appends at once and not as logs; no dispatching goroutine between). The way
// out is nats.go's flusher. So the client side has two hand-offs: appender to
// flusher, read loop to appender. Writing in the appending goroutine itself (a
// write buffer of one byte) was measured and dropped: it wakes the flusher
// nevertheless, cost the same CPU with one log (33-41 against 36-38 µs, server
// included) and more with four (34-40 against 33-34), since writes of several
// logs no longer share one.
package jetstream
