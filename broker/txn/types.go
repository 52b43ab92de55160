package txn

import (
	"time"

	"github.com/hanzoai/stream/types"
)

// Err fields in this package are nil, a *kerr.Error (a refusal, in its newest
// form: PRODUCER_FENCED and TRANSACTION_ABORTABLE where older versions of a
// request know other codes) or a failure, which the caller maps to a code.
//
// Requests and responses also travel between gateways, of several versions, as
// JSON under the names that their fields have here (forward_wire.go): fields are
// added and never renamed.

// Producer is a producer id in one of its epochs.
type Producer struct {
	ID    int64
	Epoch int16
}

// NoProducer stands for none.
var NoProducer = Producer{ID: -1, Epoch: -1}

// Partition is a partition of one incarnation of a topic.
type Partition struct {
	Topic types.TopicID
	N     int32
}

// InitRequest is InitProducerId with a transactional id.
type InitRequest struct {
	TransactionalID string
	// Timeout is how long a transaction may stay open: INVALID_TRANSACTION_TIMEOUT
	// if it is not positive or above Config.MaxTimeout.
	Timeout time.Duration
	// Producer is what the client has now (v3+), NoProducer if it begins.
	Producer Producer
}

// InitResponse answers an InitRequest: who the client is from now on, NoProducer
// with an error.
type InitResponse struct {
	Err      error `json:"-"`
	Producer Producer
}

// AddPartitionsRequest puts partitions into the transaction, and begins it.
type AddPartitionsRequest struct {
	TransactionalID string
	Producer        Producer
	Partitions      []Partition
	// VerifyOnly changes nothing: every partition must be in the transaction.
	VerifyOnly bool
	// Implicit: the client is one of transaction.version 2, and said so by a
	// Produce request (v12+) that this request was made of.
	Implicit bool
}

// AddPartitionsResponse answers an AddPartitionsRequest.
type AddPartitionsResponse struct {
	Err error `json:"-"`
	// N is the number of the transaction, ≥ 1; 0 with an error.
	N int64
	// Missing, with VerifyOnly, are the partitions that are not in it.
	Missing []Partition
}

// AddOffsetsRequest puts a group's offsets into the transaction, and begins it.
type AddOffsetsRequest struct {
	TransactionalID string
	Producer        Producer
	Group           string
	// VerifyOnly and Implicit are as in AddPartitionsRequest; Implicit is said by
	// TxnOffsetCommit v5+.
	VerifyOnly, Implicit bool
}

// AddOffsetsResponse answers an AddOffsetsRequest.
type AddOffsetsResponse struct {
	Err     error `json:"-"`
	N       int64 // as in AddPartitionsResponse
	Missing bool  // with VerifyOnly: the group is not in it
}

// EndRequest is EndTxn.
type EndRequest struct {
	TransactionalID string
	Producer        Producer
	Commit          bool
	// Bump: the client is one of transaction.version 2 (v5+), and goes on with the
	// producer that the answer names.
	Bump bool
}

// EndResponse answers an EndRequest. Producer is the one to use next, with Bump;
// NoProducer with an error.
type EndResponse struct {
	Err      error `json:"-"`
	Producer Producer
}

// States of a transactional id, spelled as Kafka's tools print them.
const (
	Empty             = "Empty"
	Ongoing           = "Ongoing"
	PrepareCommit     = "PrepareCommit"
	PrepareAbort      = "PrepareAbort"
	CompleteCommit    = "CompleteCommit"
	CompleteAbort     = "CompleteAbort"
	Dead              = "Dead"
	PrepareEpochFence = "PrepareEpochFence"
)

// KnownState reports whether a state is one of Kafka's, spelled as it does:
// ListTransactions tells which of its filters are not.
func KnownState(name string) bool {
	switch name {
	case Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort, Dead, PrepareEpochFence:
		return true
	}
	return false
}

// Description is a transactional id as DescribeTransactions shows it.
type Description struct {
	Err             error `json:"-"` // TRANSACTIONAL_ID_NOT_FOUND for an unknown one
	TransactionalID string
	State           string
	Timeout         time.Duration
	Start           int64 // ms, the store's clock; -1: none open
	Producer        Producer
	Partitions      []Partition // in the transaction, by topic id and number
	Groups          []string    // whose offsets are in it, by name
}

// ListRequest says what ListTransactions asks for; a filter that is empty lets
// all pass.
type ListRequest struct {
	States      []string // spelled as Kafka does; others match nothing
	ProducerIDs []int64
	// Duration, if not negative, lets pass what has been open for longer (v1+).
	Duration time.Duration
	// Pattern is a regular expression (RE2) that the whole id must match (v2+):
	// INVALID_REGULAR_EXPRESSION if it is none.
	Pattern string
}

// Listing is one line of ListTransactions.
type Listing struct {
	TransactionalID string
	ProducerID      int64
	State           string
}
