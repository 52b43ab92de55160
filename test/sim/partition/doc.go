// Package partition runs one to three partition hosts over one memory server, in
// virtual time, with whatever can go wrong between them and the store:
// conflicts, lost and late acknowledgements, refused and slow writes, stale,
// short and failing reads, lost news, broken connections, frozen processes,
// kills. It checks what may never happen: an offset given twice, an acknowledged
// record lost, an idempotent record twice or out of order, something visible
// before it is stored, a hole.
//
// Start reading at sim_test.go (a run), then producers_test.go, readers_test.go,
// verify_test.go.
package partition
