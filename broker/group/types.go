package group

import (
	"time"

	"github.com/hanzoai/stream/types"
)

// Err fields in this package are nil, a *kerr.Error (a refusal) or a failure,
// which the caller maps to a code.
//
// Requests and responses also travel between gateways, of several versions, as
// JSON under the names that their fields have here (forward_wire.go): fields are
// added and never renamed.

// Caller says who asks.
type Caller struct {
	ClientID string
	Host     string // as shown by DescribeGroups, e.g. /127.0.0.1
}

// Protocol is one assignment protocol a member offers.
type Protocol struct {
	Name     string
	Metadata []byte
}

// JoinRequest is one member's wish to join (JoinGroup).
type JoinRequest struct {
	Caller
	Group            string
	Member           string  // "" for a new member
	Instance         *string // static membership (KIP-345)
	ProtocolType     string
	Protocols        []Protocol
	SessionTimeout   time.Duration
	RebalanceTimeout time.Duration // 0 or less: SessionTimeout (v0)
	Reason           string
	// RequireMemberID: answer MEMBER_ID_REQUIRED to a new dynamic member (v4+).
	RequireMemberID bool
	// CanSkipAssignment: the client knows skip_assignment (v9+).
	CanSkipAssignment bool
}

// JoinResponse answers a JoinRequest. On an error only Err and Member count.
type JoinResponse struct {
	Err            error `json:"-"`
	Generation     int32 // -1 with an error
	ProtocolType   *string
	Protocol       *string
	Leader, Member string
	SkipAssignment bool
	Members        []JoinMember // the leader's only
}

// JoinMember is a member as the leader sees it.
type JoinMember struct {
	Member   string
	Instance *string
	Metadata []byte
}

// Membership names a member in a generation, as most requests do.
type Membership struct {
	Group      string
	Member     string
	Instance   *string
	Generation int32
}

// SyncRequest delivers the leader's assignment or asks for one's own.
type SyncRequest struct {
	Membership
	ProtocolType    *string // v5+, compared if not nil
	Protocol        *string // v5+
	RequireProtocol bool    // v5+: a missing type or name is inconsistent
	Assignments     []Assignment
}

// Assignment is one member's share.
type Assignment struct {
	Member string
	Data   []byte
}

// SyncResponse answers a SyncRequest.
type SyncResponse struct {
	Err                    error `json:"-"`
	ProtocolType, Protocol *string
	Assignment             []byte
}

// LeaveMember names one member that leaves (LeaveGroup v3+ has several).
type LeaveMember struct {
	Member   string
	Instance *string
	Reason   string
}

// LeaveResponse answers LeaveGroup; Members in the order of the request.
type LeaveResponse struct {
	Err     error `json:"-"`
	Members []LeaveResult
}

// LeaveResult is the outcome for one member.
type LeaveResult struct {
	LeaveMember
	Err error `json:"-"`
}

// CommitRequest stores offsets (OffsetCommit). Topics and partitions were
// resolved by the caller: unknown ones do not reach the group.
type CommitRequest struct {
	Caller
	Membership
	// StaleEpochErrors: answer as v9+ does (GROUP_ID_NOT_FOUND for an unknown
	// group with a generation).
	V9         bool
	Partitions []CommitPartition
	// Txn: the offsets are pending until the transaction ends (TxnOffsetCommit);
	// nil: they count at once.
	Txn *TxnCommit `json:",omitempty"`
}

// TxnCommit says to which transaction offsets belong. The caller has asked the
// transaction's coordinator, for this request, which one is open and that the
// group is in it.
type TxnCommit struct {
	TransactionalID string
	ProducerID      int64
	Epoch           int16
	N               int64 // number of the transaction, from 1
}

// TxnEnd is the decision over a transaction. Transactions of a producer id with a
// number up to N have ended when it comes.
type TxnEnd struct {
	ProducerID int64
	N          int64
	Commit     bool
}

// CommitPartition is one offset to store.
type CommitPartition struct {
	types.TopicPartition
	TopicID     types.TopicID
	Offset      types.Offset
	LeaderEpoch int32   // -1 unknown; returned as given
	Metadata    *string // nil is kept as ""
}

// CommitResponse: Err is per group (applies to every partition), Partitions in
// the order of the request.
type CommitResponse struct {
	Err        error   `json:"-"`
	Partitions []error `json:"-"`
}

// FetchRequest reads committed offsets of one group (OffsetFetch).
type FetchRequest struct {
	Group      string
	All        bool // null topics: everything that is committed
	Partitions []FetchPartition
	// RequireStable: UNSTABLE_OFFSET_COMMIT for offsets pending in transactions.
	RequireStable bool
}

// FetchPartition names a partition of the topic's present incarnation. An
// offset committed to another incarnation reads as absent.
type FetchPartition struct {
	types.TopicPartition
	TopicID types.TopicID // zero: topic unknown, the answer is "nothing committed"
}

// FetchResponse: Err for the group; Offsets in the order of the request, or
// sorted by topic and partition for All.
type FetchResponse struct {
	Err     error `json:"-"`
	Offsets []CommittedOffset
}

// CommittedOffset is one answer. Nothing committed: -1, -1, "".
type CommittedOffset struct {
	types.TopicPartition
	TopicID     types.TopicID
	Offset      types.Offset
	LeaderEpoch int32
	Metadata    string
	Err         error `json:"-"`
}

// States of a group, spelled as Kafka's tools print them.
const (
	Empty               = "Empty"
	PreparingRebalance  = "PreparingRebalance"
	CompletingRebalance = "CompletingRebalance"
	Stable              = "Stable"
	Dead                = "Dead"
)

// Description is a group as DescribeGroups shows it. An unknown group has state
// Dead and no error; the caller knows which version says 69 instead.
type Description struct {
	Err          error `json:"-"`
	Group        string
	State        string
	ProtocolType string
	Protocol     string // "" unless Stable
	Members      []DescribedMember
}

// DescribedMember is one member of a Description.
type DescribedMember struct {
	Member   string
	Instance *string
	Caller
	Metadata   []byte // of the chosen protocol; empty unless Stable
	Assignment []byte // empty unless Stable
}

// Listing is one line of ListGroups.
type Listing struct {
	Group        string
	ProtocolType string
	State        string
	Type         string // "classic"
}
