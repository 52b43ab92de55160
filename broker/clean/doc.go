// Package clean carries out retention: one gateway at a time goes over all
// partitions and has each let go of what its topic's settings do not keep.
//
// Which gateway it is says the maintenance lease (package cluster). That there is
// one only is no reason why anything is right: every step is a compare-and-set
// that only grows and carries the lease's term. What may be deleted, and how, is
// package partition's.
//
// Start reading at clean.go.
package clean
