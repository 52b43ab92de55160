package contract

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hanzoai/stream/pubsub"
)

// patience bounds every wait for something that must happen.
const patience = 20 * time.Second

// Run tests one implementation. open returns a connected store and closes it
// in a cleanup; all calls may lead to one server, which may hold other logs and
// tables already: the suite makes up names of its own. The subtests run in
// parallel.
func Run(t *testing.T, open func(t *testing.T) pubsub.Store) { run(t, open, false) }

// RunAlone tests a store that sends no news, because nobody else can append.
func RunAlone(t *testing.T, open func(t *testing.T) pubsub.Store) { run(t, open, true) }

func run(t *testing.T, open func(t *testing.T) pubsub.Store, alone bool) {
	for _, c := range []struct {
		name string
		test func(*testing.T, pubsub.Store)
	}{
		{"LogLife", logLife},
		{"LogAbsent", logAbsent},
		{"LogEmpty", logEmpty},
		{"LogList", logList},
		{"LogIncarnations", logIncarnations},
		{"AppendReturnsWhatIsReadBack", appendRoundTrip},
		{"AppendConflict", appendConflict},
		{"AppendRace", appendRace},
		{"AppendKeepsNothing", appendKeepsNothing},
		{"AppendTooLarge", appendTooLarge},
		{"AppendCancelled", appendCancelled},
		{"Read", read},
		{"ReadLarge", readLarge},
		{"ReadWhileAppending", readWhileAppending},
		{"Get", get},
		{"Bounds", bounds},
		{"Headers", headers},
		{"HeadersLong", headersLong},
		{"Trim", trim},
		{"Follow", func(t *testing.T, s pubsub.Store) { followNews(t, s, alone) }},
		{"FollowCancel", func(t *testing.T, s pubsub.Store) { followCancel(t, s, alone) }},
		{"TableOpenTwice", tableOpenTwice},
		{"TableValue", tableValue},
		{"TableConflict", tableConflict},
		{"TableDelete", tableDelete},
		{"TableKeys", tableKeys},
		{"TableRace", tableRace},
		{"TableTooLarge", tableTooLarge},
		{"TableCancelled", tableCancelled},
		{"TableRead", tableRead},
		{"TableReadLimits", tableReadLimits},
		{"PutAll", putAll},
		{"Scan", scan},
		{"ScanUntil", scanUntil},
		{"ScanError", scanError},
		{"Watch", watchChanges},
		{"WatchPatterns", watchPatterns},
		{"WatchError", watchError},
		{"WatchAfter", watchAfter},
		{"Info", info},
		{"Request", request},
		{"RequestConcurrent", requestConcurrent},
		{"RequestUnanswered", requestUnanswered},
		{"ServeCancel", serveCancel},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.test(t, open(t))
		})
	}
	t.Run("Close", func(t *testing.T) {
		t.Parallel()
		closeEnds(t, open(t))
	})
}

// unique makes a name that is a stream name, a bucket name and a token.
func unique(prefix string) string { return "ct-" + prefix + "-" + strings.ToLower(rand.Text()[:10]) }

func timeout(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// newLog makes a log on a subject of its own.
func newLog(t *testing.T, s pubsub.Store) pubsub.Log {
	t.Helper()
	name := unique("log")
	create(t, s, pubsub.LogConfig{Name: name, Subject: "ct." + name})
	return s.Log(name, "ct."+name)
}

func create(t *testing.T, s pubsub.Store, c pubsub.LogConfig) {
	t.Helper()
	if c.Replicas == 0 {
		c.Replicas = 1
	}
	if err := s.CreateLog(timeout(t), c); err != nil {
		t.Fatalf("CreateLog: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_ = s.DeleteLog(ctx, c.Name)
	})
}

func newTable(t *testing.T, s pubsub.Store) pubsub.Table {
	t.Helper()
	name := unique("table")
	tb, err := s.Table(timeout(t), pubsub.TableConfig{Name: name, Replicas: 1})
	if err != nil {
		t.Fatalf("Table: %v", err)
	}
	if tb.Name() != name {
		t.Fatalf("table is called %q, want %q", tb.Name(), name)
	}
	return tb
}

func mustAppend(t *testing.T, l pubsub.Log, prev pubsub.Seq, e pubsub.Entry) pubsub.Seq {
	t.Helper()
	seq, err := l.Append(timeout(t), prev, e)
	if err != nil {
		t.Fatalf("Append after %d: %v", prev, err)
	}
	if seq != prev+1 {
		t.Fatalf("Append after %d stored at %d", prev, seq)
	}
	return seq
}

// fill appends messages 1..n, whose data is their number as text.
func fill(t *testing.T, l pubsub.Log, n int) {
	t.Helper()
	for i := range n {
		mustAppend(t, l, pubsub.Seq(i), pubsub.Entry{Data: number(pubsub.Seq(i + 1))})
	}
}

func wantErr(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: got error %v, want %v", what, err, want)
	}
}

func noErr(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// receive takes one value or fails after patience.
func receive[T any](t *testing.T, what string, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(patience):
		t.Fatalf("%s: nothing came in %v", what, patience)
		panic("unreachable")
	}
}
