// Package hostile sends the real process what a bad client, a broken one or
// somebody with bad intent would send: one test per kind of input, with its
// siblings in other lengths, APIs, versions and codecs.
//
// After each kind the process must be alive and as it was before: goroutines
// back, memory flat, a good client's p99 below twice its own of the same run,
// one log line or none, one counter, and nothing of what clients sent as
// content in the log. rig_test.go measures that.
//
// The tests are behind the build tag hostile, because they measure time: run
// them alone, with make hostile.
package hostile
