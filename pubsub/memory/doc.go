// Package memory is a store without NATS, for tests: logs, tables and
// request/reply with the semantics of pubsub's interfaces, in one process. A
// Server holds the state; each Client of it is one gateway's pubsub.Store, with
// faults of its own: writes that fail, arrive late or lose their
// acknowledgement, reads that are stale, short or slow, lost news, a frozen or
// cut connection. It passes the contract suite that jetstream passes.
//
// Everything waits on channels and timers only, so it runs inside
// testing/synctest bubbles: a mutex is held for the length of a map access,
// never while waiting. Nothing survives the process.
//
// Start reading at server.go (state), then faults.go (what can go wrong).
package memory
