// Package clean carries out retention: one gateway at a time goes over all
// partitions and has each let go of what its topic's settings do not keep.
//
// Which gateway it is follows from the membership (the living one with the lowest
// node id) and is no reason why anything is right: every step is a
// compare-and-set that only grows, so that two of them at the same time do the
// same work twice and none of it wrong. It therefore needs no lease. What may be
// deleted, and how, is package partition's.
//
// Start reading at clean.go.
package clean
