// Package killpoint names the moments at which a test has the process end with
// SIGKILL, or stand still: between two steps of which the first is done and the
// second is not.
// A build without the tag killpoints has nothing of it: At is empty, and the
// compiler leaves no trace of its calls. A build with the tag, made by tests only,
// reads from the environment where to end:
//
//	STREAM_KILL_AT=name[:count[:delay]]   the count-th time (1) that name is passed
//	STREAM_KILL_FILE=path                 the same text in a file, from when it exists
//
// With a file a test counts from the moment it writes it. Several processes may
// share one: the first that comes to the point takes the file away and ends, the
// others live. delay is how long the
// goroutine that passes the point stands still before the end, so that others
// go on: what it has sent leaves, what it would have read stays unread.
//
// earlier[:count]>name counts passes of name from when earlier has been passed.
//
// name=key is one kind of a point that has many: request.sent=kafka.t.0. Is * the
// last character of key, all that begin with what stands before it are meant.
//
// With "freeze " before it the process stops itself (SIGSTOP) instead of ending, as
// a machine that is suspended or swaps. Whoever has it go on (SIGCONT) has it do, as
// its first act, or after delay, what it was about to do: request.sending is the
// moment before a request leaves for the store, behind every check of whether it
// still may.
//
// What must hold at each point is a row of the table in test/cluster.
package killpoint
