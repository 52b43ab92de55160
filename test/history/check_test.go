package history

import (
	"path/filepath"
	"reflect"
	"slices"
	"testing"
)

var l0 = Log{Topic: "t", Partition: 0}

// at is a span; ticks of a history must differ, so tests count in tens.
func at(call, ret int64) Span { return Span{Call: call, Return: ret} }

func sent(call, ret int64, who, v string, o int64) Send {
	return Send{Span: at(call, ret), Log: l0, Producer: who, Idempotent: true, Value: v, Outcome: OK, Offset: o}
}

func lost(call, ret int64, who, v string) Send {
	s := sent(call, ret, who, v, -1)
	s.Outcome = Unknown
	return s
}

func polled(call, ret int64, who string, from int64, vs ...string) Poll {
	p := Poll{Span: at(call, ret), Consumer: who, Log: l0}
	for i, v := range vs {
		p.Records = append(p.Records, Record{from + int64(i), v})
	}
	return p
}

func final(call, ret, start, end int64, vs ...string) Final {
	return Final{Span: at(call, ret), Reader: "last", Log: l0, Start: start, End: end, Records: polled(0, 0, "", start, vs...).Records}
}

func committed(call, ret int64, gen int32, o int64) Commit {
	return Commit{Span: at(call, ret), Group: "g", Generation: gen, Member: "m", Log: l0, Offset: o, Outcome: OK}
}

func fetched(call, ret int64, o int64) Committed {
	return Committed{Span: at(call, ret), Group: "g", Log: l0, Offset: o}
}

func assigned(call, ret int64, gen int32, member string, ls ...Log) Assignment {
	return Assignment{Span: at(call, ret), Group: "g", Generation: gen, Member: member, Logs: ls}
}

func rules(h History) (rs []Rule) {
	for _, p := range Check(&h) {
		if !slices.Contains(rs, p.Rule) {
			rs = append(rs, p.Rule)
		}
	}
	slices.Sort(rs)
	return rs
}

// TestBadHistories shows for each rule a history that only it, and what follows
// from it, can be right about.
func TestBadHistories(t *testing.T) {
	l1 := Log{Topic: "t", Partition: 1}
	refused := lost(1, 2, "p", "a")
	refused.Outcome = Failed
	withMark := polled(30, 31, "c", 0, "a")
	withMark.HighWatermark = 5
	for name, c := range map[string]struct {
		h    History
		want []Rule
	}{
		"two acknowledgements of one offset": {History{
			Sends: []Send{sent(1, 10, "p", "a", 0), sent(2, 11, "q", "b", 0)}}, []Rule{OneValue, LogSteps}},
		"read something else than acknowledged": {History{
			Sends: []Send{sent(1, 10, "p", "a", 0), lost(2, 11, "q", "b")},
			Polls: []Poll{polled(20, 21, "c", 0, "b")}}, []Rule{OneValue}},
		"two readers, two values": {History{
			Sends: []Send{lost(1, 10, "p", "a"), lost(2, 11, "q", "b")},
			Polls: []Poll{polled(20, 21, "c", 0, "a"), polled(22, 23, "d", 0, "b")}}, []Rule{OneValue}},
		"recorded twice": {History{
			Sends: []Send{sent(1, 2, "p", "a", 0), sent(3, 4, "p", "a", 1)}}, []Rule{OneValue, OneOffset, Order}},
		"idempotent and twice": {History{
			Sends: []Send{sent(1, 10, "p", "a", 0)},
			Polls: []Poll{polled(20, 21, "c", 0, "a", "a")}}, []Rule{OneOffset}},
		"sent once, stored twice": {History{
			Sends: []Send{{Span: at(1, 10), Log: l0, Producer: "p", Attempts: 1, Value: "a", Outcome: Unknown, Offset: -1}},
			Polls: []Poll{polled(20, 21, "c", 0, "a", "a")}}, []Rule{OneOffset}},
		"acknowledged at one offset, read at another": {History{
			Sends: []Send{sent(1, 10, "p", "a", 0)},
			Polls: []Poll{polled(20, 21, "c", 1, "a")}}, []Rule{OneOffset}},
		"never sent": {History{
			Polls: []Poll{polled(20, 21, "c", 0, "a")}}, []Rule{Invented}},
		"sent elsewhere": {History{
			Sends: []Send{{Span: at(1, 2), Log: l1, Value: "a", Outcome: OK}},
			Polls: []Poll{polled(20, 21, "c", 0, "a")}}, []Rule{Invented}},
		"refused and stored": {History{
			Sends: []Send{refused},
			Polls: []Poll{polled(20, 21, "c", 0, "a")}}, []Rule{Invented}},
		"read before it was sent": {History{
			Sends:  []Send{sent(10, 20, "p", "a", 0)},
			Polls:  []Poll{polled(1, 2, "c", 0, "a")},
			Finals: []Final{final(30, 31, 0, 1, "a")}}, []Rule{Invented, LogSteps}},
		"a producer's order": {History{
			Sends: []Send{lost(1, 10, "p", "a"), lost(2, 11, "p", "b")},
			Polls: []Poll{polled(20, 21, "c", 0, "b", "a")}}, []Rule{Order}},
		"the order of a batch": {History{
			Sends: []Send{lost(1, 10, "p", "a"), lost(1, 11, "p", "b")},
			Polls: []Poll{polled(20, 21, "c", 0, "b", "a")}}, []Rule{Order}},
		"sent later, stored lower": {History{
			Sends: []Send{sent(1, 10, "p", "a", 1), sent(20, 30, "q", "b", 0)}}, []Rule{LogSteps, Order}},
		"acknowledged and gone": {History{
			Sends:  []Send{sent(1, 10, "p", "a", 0), sent(20, 30, "p", "b", 1)},
			Finals: []Final{final(40, 41, 0, 1, "a")}}, []Rule{Complete, EndBack, LogSteps}},
		"acknowledged nowhere and gone": {History{
			Sends:  []Send{sent(1, 10, "p", "a", -1)},
			Finals: []Final{final(40, 41, 0, 0)}}, []Rule{Complete}},
		"read and gone": {History{
			Sends:  []Send{lost(1, 10, "p", "a"), sent(2, 11, "q", "b", 1)},
			Polls:  []Poll{polled(20, 21, "c", 0, "a")},
			Finals: []Final{{Span: at(40, 41), Reader: "last", Log: l0, Start: 0, End: 2, Records: []Record{{1, "b"}}, Gaps: true}}}, []Rule{Complete}},
		"a hole": {History{
			Sends:  []Send{sent(1, 10, "p", "a", 0), sent(20, 30, "p", "b", 2)},
			Finals: []Final{{Span: at(40, 41), Reader: "last", Log: l0, End: 3, Records: []Record{{0, "a"}, {2, "b"}}}}}, []Rule{Complete}},
		"read short of the end": {History{
			Sends:  []Send{sent(1, 10, "p", "a", 0)},
			Finals: []Final{final(40, 41, 0, 2, "a")}}, []Rule{Complete}},
		"log start that nobody asked for": {History{
			Sends:     []Send{sent(1, 10, "p", "a", 0), sent(20, 30, "p", "b", 1)},
			Deletions: []Deletion{{Span: at(31, 32), Log: l0, Offset: 2, Outcome: Failed}},
			Finals:    []Final{final(40, 41, 1, 2, "b")}}, []Rule{Complete}},
		"passed over by all": {History{
			Sends: []Send{sent(1, 10, "p", "a", 0), sent(20, 30, "p", "b", 1), sent(40, 50, "p", "c", 2)},
			Seeks: []Seek{{Span: at(62, 63), Consumer: "c", Log: l0, Offset: 2}},
			Polls: []Poll{polled(60, 61, "c", 0, "a"), polled(64, 65, "c", 2, "c")}}, []Rule{Unread}},
		"skipped": {History{
			Sends: []Send{sent(1, 10, "p", "a", 0), sent(20, 30, "p", "b", 1), sent(40, 50, "p", "c", 2)},
			Polls: []Poll{polled(60, 61, "c", 0, "a"), polled(62, 63, "d", 0, "a", "b"), polled(64, 65, "c", 2, "c")}}, []Rule{Skipped}},
		"skipped inside one answer": {History{
			Sends: []Send{sent(1, 10, "p", "a", 0), sent(20, 30, "p", "b", 1), sent(40, 50, "p", "c", 2)},
			Polls: []Poll{polled(62, 63, "d", 0, "a", "b"),
				{Span: at(64, 65), Consumer: "c", Log: l0, Records: []Record{{0, "a"}, {2, "c"}}}}}, []Rule{Skipped}},
		"skipped after a seek": {History{
			Sends: []Send{sent(1, 10, "p", "a", 0), sent(20, 30, "p", "b", 1)},
			Seeks: []Seek{{Span: at(60, 61), Consumer: "c", Log: l0, Offset: 0}},
			Polls: []Poll{polled(62, 63, "d", 0, "a"), polled(64, 65, "c", 1, "b")}}, []Rule{Skipped}},
		"read again": {History{
			Sends: []Send{sent(1, 10, "p", "a", 0)},
			Polls: []Poll{polled(60, 61, "c", 0, "a"), polled(62, 63, "c", 0, "a")}}, []Rule{Repeated}},
		"an end below an acknowledgement": {History{
			Sends: []Send{sent(1, 10, "p", "a", 0)},
			Ends:  []End{{Span: at(20, 21), Log: l0, Offset: 0}}}, []Rule{EndBack, LogSteps}},
		"an end below what was told as the end": {History{
			Ends: []End{{Span: at(10, 11), Log: l0, Offset: 3}, {Span: at(20, 21), Log: l0, Offset: 2}}}, []Rule{EndBack, LogSteps}},
		"an end below a high watermark": {History{
			Sends: []Send{sent(1, 10, "p", "a", 0)}, Polls: []Poll{withMark},
			Ends: []End{{Span: at(40, 41), Log: l0, Offset: 4}}}, []Rule{EndBack, LogSteps}},
		"an end above the log": {History{
			Ends:   []End{{Span: at(10, 11), Log: l0, Offset: 3}},
			Finals: []Final{final(40, 41, 0, 0)}}, []Rule{EndBack, LogSteps}},
		"an end above what was sent until then": {History{
			Sends: []Send{sent(1, 10, "p", "a", 0), sent(20, 30, "p", "b", 1)},
			Ends:  []End{{Span: at(12, 13), Log: l0, Offset: 2}}}, []Rule{LogSteps}},
		"a commit that went back": {History{
			Commits:   []Commit{committed(1, 2, 1, 5), committed(10, 11, 1, 7)},
			Committed: []Committed{fetched(20, 21, 5)}}, []Rule{CommitBack, OffsetSteps}},
		"a commit that vanished": {History{
			Commits:   []Commit{committed(1, 2, 1, 5)},
			Committed: []Committed{fetched(20, 21, -1)}}, []Rule{CommitBack, OffsetSteps}},
		"told higher, then lower": {History{
			Commits:   []Commit{committed(1, 2, 1, 5), {Span: at(3, 30), Group: "g", Generation: 1, Log: l0, Offset: 7, Outcome: Unknown}},
			Committed: []Committed{fetched(10, 11, 7), fetched(20, 21, 5)}}, []Rule{CommitBack, OffsetSteps}},
		"an offset that nobody committed": {History{
			Committed: []Committed{fetched(20, 21, 5)}}, []Rule{CommitBack, OffsetSteps}},
		"a late commit of a generation that was over": {History{
			Commits: []Commit{{Span: at(1, 3), Group: "g", Generation: 1, Log: l0, Offset: 5, Outcome: Unknown},
				committed(10, 11, 2, 7)},
			Committed: []Committed{fetched(20, 21, 5)}}, []Rule{CommitBack, OffsetSteps}},
		"a late commit of a member that had gone on": {History{
			Commits: []Commit{{Span: at(1, 3), Group: "g", Generation: 1, Member: "m", Log: l0, Offset: 5, Outcome: Unknown},
				committed(10, 11, 1, 7)},
			Committed: []Committed{fetched(20, 21, 5)}}, []Rule{CommitBack, OffsetSteps}},
		"a commit not seen for a while": {History{
			Commits:   []Commit{committed(1, 2, 1, 5), committed(10, 11, 1, 7)},
			Committed: []Committed{fetched(20, 21, 7), fetched(30, 31, 5), fetched(40, 41, 7)}}, []Rule{CommitBack, OffsetSteps}},
		"a rewind that came too early": {History{
			Commits:   []Commit{committed(1, 2, 1, 7), committed(10, 40, 1, 5)},
			Committed: []Committed{fetched(20, 21, 5), fetched(30, 31, 7)}}, []Rule{OffsetSteps}},
		"a zombie's commit": {History{
			Commits:     []Commit{committed(20, 21, 1, 5)},
			Assignments: []Assignment{assigned(1, 2, 1, "m", l0), assigned(3, 4, 2, "n", l0)}}, []Rule{Fenced}},
		"two owners": {History{
			Assignments: []Assignment{assigned(1, 2, 1, "m", l0), assigned(3, 4, 1, "n", l0)}}, []Rule{OneOwner}},
		"two shares": {History{
			Assignments: []Assignment{assigned(1, 2, 1, "m", l0), assigned(3, 4, 1, "m", l1)}}, []Rule{OneOwner}},
		"a generation that went back": {History{
			Assignments: []Assignment{assigned(1, 2, 2, "m", l0), assigned(3, 4, 1, "n", l1)}}, []Rule{GenerationBack}},
	} {
		t.Run(name, func(t *testing.T) {
			slices.Sort(c.want)
			if got := rules(c.h); !slices.Equal(got, c.want) {
				t.Errorf("%v, want %v: %v", got, c.want, Check(&c.h))
			}
		})
	}
}

// TestGoodHistories shows what looks odd and is right.
func TestGoodHistories(t *testing.T) {
	again := Log{Topic: "t", ID: "2"}
	plain := lost(1, 10, "p", "a")
	plain.Idempotent = false
	for name, h := range map[string]History{
		"nothing": {},
		"a retry that was stored at the first try": {
			Sends:  []Send{sent(1, 50, "p", "a", 0), sent(2, 30, "q", "b", 1)},
			Ends:   []End{{Span: at(40, 41), Log: l0, Offset: 2}},
			Finals: []Final{final(60, 61, 0, 2, "a", "b")}},
		"lost and never stored": {
			Sends: []Send{lost(1, 10, "p", "a"), sent(20, 30, "p", "b", 0)}, Finals: []Final{final(60, 61, 0, 1, "b")}},
		"lost and stored late": {
			Sends:  []Send{lost(1, 10, "p", "a"), sent(20, 30, "q", "b", 0)},
			Ends:   []End{{Span: at(31, 32), Log: l0, Offset: 1}},
			Finals: []Final{final(60, 61, 0, 2, "b", "a")}},
		"not idempotent and twice": {
			Sends: []Send{plain}, Finals: []Final{final(60, 61, 0, 2, "a", "a")}},
		"foreign records between": {
			Sends: []Send{sent(1, 10, "p", "a", 3), sent(20, 30, "p", "b", 7)},
			Ends:  []End{{Span: at(15, 16), Log: l0, Offset: 5}}},
		"another incarnation": {
			Sends:     []Send{sent(1, 10, "p", "a", 0), {Span: at(20, 30), Log: again, Producer: "p2", Value: "b", Outcome: OK}},
			Polls:     []Poll{{Span: at(40, 41), Consumer: "c", Log: again, Records: []Record{{0, "b"}}}},
			Committed: []Committed{{Span: at(42, 43), Group: "g", Log: again, Offset: -1}},
			Commits:   []Commit{committed(35, 36, 1, 1)}},
		"deleted records": {
			Sends:     []Send{sent(1, 10, "p", "a", 0), sent(20, 30, "p", "b", 1), sent(31, 32, "p", "c", 2)},
			Seeks:     []Seek{{Span: at(33, 34), Consumer: "c", Log: l0, Offset: 0}},
			Deletions: []Deletion{{Span: at(35, 60), Log: l0, Offset: 2, Outcome: Unknown}},
			Polls:     []Poll{polled(40, 41, "c", 2, "c")},
			Finals:    []Final{final(60, 61, 1, 3, "b", "c")}},
		"a rewind": {
			Commits:   []Commit{committed(1, 2, 1, 7), committed(10, 40, 1, 5)},
			Committed: []Committed{fetched(20, 21, 7), fetched(30, 31, 5), fetched(50, 51, 5)}},
		"a commit without answer that came later": {
			Commits:   []Commit{committed(1, 2, 1, 5), {Span: at(3, 4), Group: "g", Generation: 1, Log: l0, Offset: 7, Outcome: Unknown}},
			Committed: []Committed{fetched(10, 11, 5), fetched(20, 21, 7)}},
		"a commit without answer that never came, and its repetition": {
			Commits: []Commit{committed(1, 2, 1, 5), {Span: at(3, 4), Group: "g", Generation: 1, Log: l0, Offset: 7, Outcome: Unknown},
				{Span: at(10, 11), Group: "g", Generation: 2, Log: l0, Offset: 7, Outcome: Unknown}, committed(30, 31, 3, 7)},
			Committed: []Committed{fetched(5, 6, 5), fetched(20, 21, 5), fetched(40, 41, 7)}},
		"a zombie that got no answer": {
			Commits:   []Commit{committed(10, 11, 2, 7), {Span: at(20, 21), Group: "g", Generation: 1, Log: l0, Offset: 5, Outcome: Unknown}},
			Committed: []Committed{fetched(30, 31, 7)}},
		"an offset taken away": {
			Commits:   []Commit{committed(1, 2, -1, 5), committed(10, 11, -1, -1)},
			Committed: []Committed{fetched(5, 6, 5), fetched(20, 21, -1)}},
		"a partition changes hands": {
			Assignments: []Assignment{assigned(1, 2, 1, "m", l0), assigned(3, 4, 2, "n", l0), assigned(5, 6, 2, "m")},
			Commits:     []Commit{committed(2, 20, 1, 5)}},
	} {
		t.Run(name, func(t *testing.T) {
			if ps := Check(&h); len(ps) > 0 {
				t.Error(ps)
			}
		})
	}
}

func TestRecorder(t *testing.T) {
	var r Recorder
	s := r.Begin()
	r.Seek(Seek{Consumer: "c", Log: l0, Offset: 0})
	r.Send(Send{Span: s, Log: l0, Producer: "p", Value: "a", Outcome: OK})
	first := r.History()
	r.Poll(Poll{Span: r.Begin(), Consumer: "c", Log: l0, Records: []Record{{0, "a"}}})
	if got := first.Sends[0]; got.Call != 1 || got.Return != 4 || got.Ended.IsZero() || len(first.Polls) != 0 {
		t.Errorf("%+v", first)
	}
	h := r.History()
	for i := range h.Polls { // JSON keeps no monotonic clock
		h.Polls[i].Began, h.Polls[i].Ended = h.Polls[i].Began.Round(0).UTC(), h.Polls[i].Ended.Round(0).UTC()
	}
	h.Sends, h.Seeks = nil, nil
	path := filepath.Join(t.TempDir(), "history.json.gz")
	if err := h.Save(path); err != nil {
		t.Fatal(err)
	}
	got, err := Load(path)
	if err != nil || !reflect.DeepEqual(got.Polls, h.Polls) {
		t.Errorf("%+v, %v; want %+v", got, err, h)
	}
	if _, err := Load(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a file that is not there")
	}
}
