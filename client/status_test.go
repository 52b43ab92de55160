package client

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

func TestLateTransactions(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(1_700_000_000_000)
	of := func(id, state string, age time.Duration) kadm.DescribedTransaction {
		d := kadm.DescribedTransaction{TxnID: id, State: state, ProducerID: 4000, TimeoutMillis: 60_000, StartTimestamp: now.Add(-age).UnixMilli(), Topics: kadm.TopicsSet{}}
		d.Topics.Add("t", 10, 2)
		d.Topics.Add("a", 0)
		return d
	}
	all := kadm.DescribedTransactions{}
	for _, d := range []kadm.DescribedTransaction{
		of("in time", "Ongoing", 90*time.Second), of("late", "Ongoing", 90_001*time.Millisecond), of("decided", "PrepareCommit", time.Hour),
		of("ended", "CompleteAbort", time.Hour), of("begins", "Empty", time.Hour),
	} {
		all[d.TxnID] = d
	}
	all["not begun"] = kadm.DescribedTransaction{TxnID: "not begun", State: "Ongoing", StartTimestamp: -1}
	gone := of("gone", "Ongoing", time.Hour)
	gone.Err = errors.New("gone")
	all["gone"] = gone
	want := []lateTransaction{
		{"decided", 4000, "PrepareCommit", 3600, 60, []string{"a-0", "t-10", "t-2"}},
		{"late", 4000, "Ongoing", 90, 60, []string{"a-0", "t-10", "t-2"}},
	}
	got := late(all, now)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	for line, st := range map[string]*clusterStatus{
		"late transactions:  none\n": {},
		"late transactions:  2: decided (PrepareCommit, producer 4000, for 1h0m0s), late (Ongoing, producer 4000, for 1m30s)\n": {Late: got},
	} {
		var b bytes.Buffer
		w := tabwriter.NewWriter(&b, 0, 4, 2, ' ', 0)
		st.table(w)
		if err := w.Flush(); err != nil || !strings.Contains(b.String(), line) {
			t.Errorf("%q is not in\n%s", line, b.String())
		}
	}
}
