package topic

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/pubsub"
)

// maxName is the longest topic name in bytes (org.apache.kafka.common.internals.Topic).
const maxName = 249

// refuse is a refusal with a text of its own.
func refuse(k *kerr.Error, format string, args ...any) error {
	r := *k
	r.Description = fmt.Sprintf(format, args...)
	return &r
}

// CheckName refuses what is no topic name (INVALID_TOPIC_EXCEPTION): Kafka's
// rules are 1 to 249 characters of [A-Za-z0-9._-], neither "." nor "..".
func CheckName(name string) error {
	switch {
	case name == "":
		return refuse(kerr.InvalidTopicException, "Topic name is invalid: the empty string is not allowed")
	case name == "." || name == "..":
		return refuse(kerr.InvalidTopicException, "Topic name is invalid: '%s' is not allowed", name)
	case len(name) > maxName:
		return refuse(kerr.InvalidTopicException, "Topic name is invalid: the length of '%s' is longer than the max allowed length %d", printable(name), maxName)
	}
	for i := range len(name) {
		switch c := name[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '.', c == '_', c == '-':
		default:
			return refuse(kerr.InvalidTopicException,
				"Topic name is invalid: '%s' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'", printable(name))
		}
	}
	return nil
}

// printable is a name that no client's terminal trips over.
func printable(name string) string {
	quoted := strconv.Quote(name)
	return quoted[1 : len(quoted)-1]
}

// Internal reports the names under which Kafka keeps its own state. Here that
// state lives in tables: none of these topics has streams or can be created, and
// a produce to one is INVALID_TOPIC_EXCEPTION. __consumer_offsets is a view of
// its table (package offsets), the others do not exist.
func Internal(name string) bool { return slices.Contains(internal, name) }

var internal = []string{"__consumer_offsets", "__transaction_state", "__share_group_state"}

// unify maps names that Kafka holds to collide (its metrics once wrote "." as
// "_") to one.
func unify(name string) string { return strings.ReplaceAll(name, ".", "_") }

// collides reports that two different names may not both exist.
func collides(a, b string) bool { return a != b && unify(a) == unify(b) }

// LogName is the stream of one partition of one incarnation of a topic: the bare
// name if there was never an earlier topic of the name, else with the revision
// of its creating write, so that no late request can hit another's log.
func LogName(prefix, topic string, partition int32, n pubsub.Rev, bare bool) string {
	name := prefix + "-" + pubsub.Token(topic) + "-" + strconv.Itoa(int(partition))
	if !bare {
		name += "=r" + strconv.FormatUint(uint64(n), 10)
	}
	return name
}

// Subject is where a partition's messages are published, the same for all
// incarnations.
func Subject(prefix, topic string, partition int32) string {
	return prefix + "." + pubsub.Token(topic) + "." + strconv.Itoa(int(partition))
}
