package gateway

import (
	"sync/atomic"
	"testing"

	"github.com/hanzoai/stream/test/history"
)

// fact is something that must happen now and then.
type fact int

const (
	kills fact = iota
	drains
	freezes
	isolations
	cuts
	outages
	lies
	startFailed
	retried        // an idempotent batch was sent again, and acknowledged
	elsewhere      // through another gateway than its first attempt
	unknownSends   // a send whose outcome nobody told
	rebalances     // a member joined another generation
	takeovers      // a member that joined through one gateway heartbeats through another
	staticReturns  // a static member came back to its partitions
	zombies        // a commit was refused because its generation was over
	unknownCommits // a commit whose outcome nobody told
	creations
	recreations
	growths
	deletions     // of topics
	racedAdmins   // two admin clients had the same wish
	trims         // records were deleted
	fencedReads   // a reader was sent to the log start
	notOwner      // NOT_COORDINATOR
	notAvailable  // COORDINATOR_NOT_AVAILABLE or COORDINATOR_LOAD_IN_PROGRESS
	clocksSet     // a wall clock was set
	deletedGroups // with what they had committed
	expiries      // of all offsets
	keptOver      // a member went on with a partition through a rebalance
	handedOn      // a member gave up a partition, and joined again for the others' sake
	facts
)

var factNames = [facts]string{
	"kills", "drains", "freezes", "isolations", "cut connections", "outages of the store", "lying leaders", "starts that failed",
	"retries acknowledged", "retries elsewhere acknowledged", "sends without outcome", "rebalances", "takeovers under members",
	"static members that returned", "commits of zombies refused", "commits without outcome", "creations", "re-creations", "growths",
	"deletions", "races of admin clients", "deletions of records", "readers sent to the log start", "NOT_COORDINATOR", "coordinator not available",
	"clocks that were set", "deletions of groups", "ends of all offsets", "partitions kept through rebalances", "partitions handed on in two steps",
}

// tally counts facts.
type tally struct {
	n                    [facts]atomic.Int64
	runs, sends, polls   atomic.Int64
	commits, assignments atomic.Int64
}

func (t *tally) note(f fact) { t.n[f].Add(1) }

// add counts a run in.
func (t *tally) add(o *tally, h *history.History) {
	for f := range o.n {
		t.n[f].Add(o.n[f].Load())
	}
	t.runs.Add(1)
	t.sends.Add(int64(len(h.Sends)))
	t.polls.Add(int64(len(h.Polls)))
	t.commits.Add(int64(len(h.Commits)))
	t.assignments.Add(int64(len(h.Assignments)))
}

// check fails if something never happened in many runs.
func (t *tally) check(tt *testing.T) {
	runs := t.runs.Load()
	tt.Logf("%d runs: %d records sent, %d polls, %d commits, %d assignments", runs, t.sends.Load(), t.polls.Load(), t.commits.Load(), t.assignments.Load())
	for f := range t.n {
		n := t.n[f].Load()
		tt.Logf("%9d %s", n, factNames[f])
		if n == 0 && runs >= 500 {
			tt.Errorf("never in %d runs: %s", runs, factNames[f])
		}
	}
}
