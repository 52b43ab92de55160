// Package history checks what clients saw of a cluster against what may never
// happen: a value lost, moved, read twice or out of order, a committed offset
// that goes back, a partition with two owners. It knows nothing of the cluster:
// clients of any kind record what they asked for and what they were told, a
// simulation in virtual time as well as real clients under real faults.
//
// A Recorder is shared by all clients of a run and gives every call and every
// return a tick, so that "before" has one meaning for all of them. Check then
// applies the rules to the whole history, and asks
// porcupine whether each partition's log and each committed offset behaved like
// one thing that does one step at a time.
//
// Values are unique: no two sends of a history carry the same one. What a client
// does not know it must record as Unknown, never as Failed.
//
// Start reading at history.go (what is recorded), then check.go
// (what is a problem); logs.go, consumers.go, groups.go and linear.go are its rules.
package history
