// Package sim runs one to three partition hosts over one memory server, in
// virtual time, with whatever can go wrong between them and the store:
// conflicts, lost and late acknowledgements, refused and slow writes, stale,
// short and failing reads, lost news, broken connections, frozen processes,
// kills. It checks what may never happen: an offset given twice, an acknowledged
// record lost, an idempotent record twice or out of order, something visible
// before it is stored, a hole.
//
// A run follows from its seed as far as the scheduler allows. SIM_SEEDS sets how
// many seeds are run, SIM_SEED runs one. A failing run prints its seed.
//
// Start reading at sim_test.go (actors and checks), then faults_test.go.
package sim
