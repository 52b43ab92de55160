// Package clean carries out retention and compaction: one gateway at a time goes
// over all partitions, has each let go of what its topic's settings do not keep, and
// has one after the other compacted.
//
// Which gateway it is says the maintenance lease (package cluster). That there is
// one only is no reason why anything is right: every step is a compare-and-set
// that only grows and carries the lease's term. What may be deleted or rewritten, and
// how, is package partition's.
//
// Start reading at clean.go (retention) and compact.go (which partition is compacted
// when; pace.go slows it down, state.go tells what it does).
package clean
