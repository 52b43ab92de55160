package clients

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	confluentkafka "github.com/confluentinc/confluent-kafka-go/v2/kafka"
	kafkago "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/test/testkit"
)

// record is what scenarios compare. A nil key or value is null.
type record struct {
	Partition  int32
	Offset     int64
	Key, Value []byte
	Headers    []header
	Time       time.Time // whole milliseconds
}

type header struct {
	Key   string
	Value []byte
}

func (r record) String() string {
	short := func(b []byte) string {
		switch {
		case b == nil:
			return "null"
		case len(b) > 40:
			return fmt.Sprintf("%q… (%d bytes)", b[:40], len(b))
		}
		return fmt.Sprintf("%q", b)
	}
	s := fmt.Sprintf("%d/%d %s=%s @%d", r.Partition, r.Offset, short(r.Key), short(r.Value), r.Time.UnixMilli())
	for _, h := range r.Headers {
		s += fmt.Sprintf(" %s:%s", h.Key, short(h.Value))
	}
	return s
}

// same is equality; null and empty are different.
func same(a, b []byte) bool { return bytes.Equal(a, b) && (a == nil) == (b == nil) }

func (r record) equal(o record) bool {
	return r.Partition == o.Partition && r.Offset == o.Offset && same(r.Key, o.Key) && same(r.Value, o.Value) &&
		r.Time.UnixMilli() == o.Time.UnixMilli() &&
		slices.EqualFunc(r.Headers, o.Headers, func(a, b header) bool { return a.Key == b.Key && same(a.Value, b.Value) })
}

// emptyAsNull is r with null for all that is empty.
func (r record) emptyAsNull() record {
	null := func(b []byte) []byte {
		if len(b) == 0 {
			return nil
		}
		return b
	}
	r.Key, r.Value, r.Headers = null(r.Key), null(r.Value), slices.Clone(r.Headers)
	for i, h := range r.Headers {
		r.Headers[i].Value = null(h.Value)
	}
	return r
}

// headerMap is r with the last header of each key, sorted.
func (r record) headerMap() record {
	last := map[string][]byte{}
	for _, h := range r.Headers {
		last[h.Key] = h.Value
	}
	r.Headers = nil
	for _, k := range slices.Sorted(maps.Keys(last)) {
		r.Headers = append(r.Headers, header{k, last[k]})
	}
	return r
}

// start is where a read begins: at a timestamp, if set, else at an offset.
type start struct {
	offset int64
	time   time.Time
	reset  string // where an offset that is not there leads: earliest, latest, none
	// isolation is what is seen of transactions: [committed], [uncommitted], or ""
	// for the client's default.
	isolation string
}

// Levels of isolation.
const (
	committed   = "committed"
	uncommitted = "uncommitted"
)

// sending is how a client produces.
type sending struct {
	codec      string
	idempotent bool // else the client's default
}

// joining is how a member joins.
type joining struct {
	instance    string // group.instance.id of a static member
	cooperative bool
}

// limits are what a library cannot do. They are about the library alone: what
// Apache Kafka would answer and stream does not is a failure.
type limits struct {
	noTimestamps    bool     // of produced records: they get the time of producing
	noRecordHeaders bool     // one set of headers for all records of a call
	noHeaderNulls   bool     // header values are never null
	noEmpty         bool     // produces null where empty was meant
	emptyReadsNull  bool     // reads null where empty was stored
	headerMap       bool     // header keys are unique and sorted
	noTombstone     bool     // never both key and value null
	createsUnknown  bool     // makes a topic when asked to describe it
	onePartition    bool     // in a transaction
	commitsAlone    bool     // every few seconds, and before partitions are taken away
	repeats         bool     // a member may read again what is not committed when a rebalance ends
	resets          []string // the values of start.reset it has
	// lacks says why the library cannot do a scenario at all: "n/a" in the table.
	lacks map[string]string
}

// notes are what scenarios leave out for these limits, for the table.
func (l limits) notes() []string {
	var out []string
	for _, n := range []struct {
		on   bool
		text string
	}{
		{l.noTimestamps, "sets no timestamps: records get the time of producing"},
		{l.noRecordHeaders, "one set of headers for all records of a call"},
		{l.noHeaderNulls, "no null in the value of a header"},
		{l.headerMap, "keys of headers are unique and sorted"},
		{l.noTombstone, "never both key and value null"},
		{l.noEmpty, "produces null where empty was meant"},
		{l.emptyReadsNull, "reads null where empty was stored"},
		{l.onePartition, "a transaction writes to one partition"},
		{l.createsUnknown, "makes a topic when asked to describe one that is not there"},
		{l.commitsAlone, "commits by itself, not when told"},
		{l.repeats, "may read again what is not committed when a rebalance ends"},
		{l.resets != nil, "of auto.offset.reset only " + strings.Join(l.resets, " and ")},
	} {
		if n.on {
			out = append(out, n.text)
		}
	}
	return out
}

// library is one client library and its line of the table.
type library struct {
	name     string
	language string
	// version is that of the library; programs report theirs themselves.
	version string
	limits  limits
	// everywhere: in CI against all kinds of brokers. The others speak the same
	// versions as one of these, or sit on the same library.
	everywhere bool
	// open starts the library at a broker; it ends with the test.
	open func(t *testing.T, addr string) client
}

// client is a library at a broker. Its calls end with ctx.
type client interface {
	// version is that of the library.
	version() string
	// produce sends rs, of any partitions, in order per partition, and waits for
	// all acknowledgements (acks=all). Offsets in rs are ignored.
	produce(ctx context.Context, topic string, how sending, rs []record) error
	// read returns n records of one partition, or some more.
	read(ctx context.Context, topic string, partition int32, at start, n int) ([]record, error)
	// join starts a member of a group that begins at the first offset where
	// nothing is committed.
	join(ctx context.Context, t *testing.T, group, topic string, how joining) (member, error)
	admin
}

// admin are the calls about topics. Refusals of the broker keep their code, see
// refusal.
type admin interface {
	create(ctx context.Context, topic string, partitions int, configs map[string]string) error
	// partitions is how many a topic has.
	partitions(ctx context.Context, topic string) (int, error)
	topics(ctx context.Context) ([]string, error)
	// alter sets one config and leaves the others, by IncrementalAlterConfigs
	// where the library has it.
	alter(ctx context.Context, topic, config, value string) error
	config(ctx context.Context, topic, config string) (string, error)
	// grow makes a topic have count partitions.
	grow(ctx context.Context, topic string, count int) error
	// truncate deletes the records before an offset.
	truncate(ctx context.Context, topic string, partition int32, before int64) error
	remove(ctx context.Context, topic string) error
}

// transactional is a client that has transactions.
type transactional interface {
	// transactor makes a producer with a transactional id.
	transactor(ctx context.Context, id string) (transactor, error)
	// pipe reads n records or some more of p.from as a member of p.group, and
	// writes each to p.to with "!" after its value: it begins a transaction for
	// what one poll returned, adds the offsets to it, and ends it. Then the member
	// leaves.
	pipe(ctx context.Context, p pipe) error
}

// transactor is a producer with a transactional id. Its first send, or its making,
// fences the producer that had the id before.
type transactor interface {
	// send writes rs, as client.produce does, in the open transaction or a new one.
	send(ctx context.Context, topic string, rs []record) error
	end(ctx context.Context, commit bool) error
	// close leaves what is open as it is.
	close(ctx context.Context) error
}

// pipe is what a client is told to consume, transform and produce.
type pipe struct {
	id, group, from, to string
	n                   int
	commit              bool
}

// member is one member of a group. A goroutine of it puts what it is given
// into the channel.
type member interface {
	records() <-chan record
	// commit commits everything that was put into the channel; a client that
	// commits by itself returns at once.
	commit(ctx context.Context) error
	// close ends the member; one that is not static leaves the group.
	close() error
}

// module is the version of a Go module that go.mod pins; a test binary does not
// know it.
func module(path string) string {
	text, err := os.ReadFile(filepath.Join(testkit.Root(), "test/e2e/go.mod"))
	if err != nil {
		return err.Error()
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == path {
			return strings.TrimPrefix(f[1], "v")
		}
	}
	return "not in go.mod"
}

// errLacks is the answer of a method that the limits exclude.
var errLacks = errors.New("the library has no such call")

// code is Kafka's code of an error that the broker has answered, 0 of others.
func code(err error) int {
	var (
		ke *kerr.Error
		se sarama.KError
		ge kafkago.Error
		ce confluentkafka.Error
		pe processError
		// these two hold one error per record
		sp sarama.ProducerErrors
		gw kafkago.WriteErrors
	)
	if errors.As(err, &sp) {
		err = sp[0].Err
	}
	if errors.As(err, &gw) {
		err = gw[0]
	}
	switch {
	case errors.As(err, &ke):
		return int(ke.Code)
	case errors.As(err, &se):
		return int(se)
	case errors.As(err, &ge):
		return int(ge)
	case errors.As(err, &ce):
		return int(ce.Code())
	case errors.As(err, &pe):
		return pe.code
	}
	return 0
}
