package protocol

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/broker/group"
	"github.com/hanzoai/stream/broker/topic"
	"github.com/hanzoai/stream/types"
)

// maxText is the longest error text of an answer, in bytes.
const maxText = 512

// refusal gives the code of an error of the backend and a text for a person,
// for the responses that have room for one. group says that a coordinator API
// asks. No error is 0 and no text.
//
// A refusal explains itself: what the broker wrapped around the code, or the
// code's own meaning. A failure's text stays in our log, because it may name
// what a client has no business to know; the client gets the code's meaning.
func (h *handler) refusal(err error, group bool) (int16, *string) {
	if err == nil {
		return 0, nil
	}
	code := h.backend.Code(err, group)
	text := err.Error()
	switch k := (*kerr.Error)(nil); {
	case !errors.As(err, &k):
		text = kerr.TypedErrorForCode(code).Description
	case error(k) == err:
		text = k.Description
	}
	if len(text) > maxText { // it may quote what the client sent
		text = strings.ToValidUTF8(text[:maxText], "") + "…"
	}
	return code, &text
}

// refuse is a refusal with a text of its own.
func refuse(k *kerr.Error, format string, args ...any) error {
	r := *k
	r.Description = fmt.Sprintf(format, args...)
	return &r
}

// once gives each value once, in the order of its first place. An answer that
// repeats what a client repeats could be thousands of times larger than the
// question.
func once[T comparable](all []T) []T {
	if len(all) < 2 {
		return all
	}
	seen := make(map[T]bool, len(all))
	out := make([]T, 0, len(all))
	for _, v := range all {
		if !seen[v] {
			seen[v] = true
			out = append(out, v)
		}
	}
	return out
}

// refusedWith reports a refusal by its code: a refusal may carry a text of its
// own, so that it need not be kerr's very value.
func refusedWith(err error, want *kerr.Error) bool {
	k := (*kerr.Error)(nil)
	return errors.As(err, &k) && k.Code == want.Code
}

// topicOf finds a topic as a request names it: by id from the version on in
// which the API has ids only, else by name. The zero id names no topic.
func (h *handler) topicOf(ctx context.Context, name string, id types.TopicID, byID bool) (*topic.Topic, error) {
	switch {
	case !byID:
		return h.backend.Topic(ctx, name)
	case id.IsZero():
		return nil, kerr.UnknownTopicID
	}
	return h.backend.TopicByID(ctx, id)
}

// ofName carries out a change of the topic that has a name. If the one that we had in
// memory turns out to be gone, it is the next one's of that name: not if this
// gateway stood still meanwhile. Then that one may have been made by somebody who
// has waited for us in vain.
func (h *handler) ofName(ctx context.Context, name string, change func(*topic.Topic) error) error {
	lives := h.backend.Unbroken()
	t, err := h.backend.Topic(ctx, name)
	if err != nil {
		return err
	}
	if !lives(ctx) {
		return topic.ErrLate
	}
	if err = change(t); !refusedWith(err, kerr.UnknownTopicOrPartition) {
		return err
	}
	now, nerr := h.backend.Topic(ctx, name)
	switch {
	case nerr != nil || now.ID == t.ID:
		return err
	case !lives(ctx):
		return topic.ErrLate
	}
	return change(now)
}

// upTo is a topic as it is known, or as the store has it now if one of the
// partitions is beyond what is known: another gateway may have made it a moment
// ago, and "there is no such partition" must not come from memory. If the store
// cannot be asked it is t.
func (h *handler) upTo(ctx context.Context, t *topic.Topic, partitions ...int32) *topic.Topic {
	if len(partitions) == 0 || slices.Max(partitions) < t.Partitions {
		return t
	}
	now, err := h.backend.NewestTopic(ctx, t)
	if err != nil {
		return t
	}
	return now
}

// caller says who asks, as DescribeGroups shows it.
func (r *request) caller() group.Caller {
	return group.Caller{ClientID: r.clientID, Host: "/" + r.conn.host}
}

// adminTimeout bounds an admin request by the time its client gives it. Clients
// that give none, or nonsense, get the connection's time only: Kafka would
// answer them REQUEST_TIMED_OUT at once and do the work all the same.
func adminTimeout(ctx context.Context, millis int32) (context.Context, context.CancelFunc) {
	if millis <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, time.Duration(millis)*time.Millisecond)
}

// Sets of operations as clients read them: bit n is Kafka's AclOperation n. No
// authorizer: everything that the kind of resource knows is allowed
// (org.apache.kafka.security.authorizer.AclEntry).
const (
	aclRead            = 1 << 3
	aclCreate          = 1 << 5
	aclDelete          = 1 << 6
	aclAlter           = 1 << 7
	aclDescribe        = 1 << 8
	aclClusterAction   = 1 << 9
	aclDescribeConfigs = 1 << 10
	aclAlterConfigs    = 1 << 11
	aclIdempotentWrite = 1 << 12

	groupOperations   int32 = aclRead | aclDelete | aclDescribe | aclDescribeConfigs | aclAlterConfigs
	clusterOperations int32 = aclCreate | aclAlter | aclDescribe | aclClusterAction | aclDescribeConfigs | aclAlterConfigs | aclIdempotentWrite
)
