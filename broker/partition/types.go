package partition

import (
	"context"
	"time"

	"github.com/hanzoai/stream/types"
)

// Config are the settings in force for a topic's partitions: what was set on the
// topic, else the cluster's dynamic default, else the configured one. A value is
// never changed: a change of the settings makes a new one, see Partition.Config.
type Config struct {
	MaxMessageBytes int   // max.message.bytes: largest batch, 12 bytes of overhead included
	LogAppendTime   bool  // message.timestamp.type
	MaxAheadMillis  int64 // message.timestamp.after.max.ms
	MaxBehindMillis int64 // message.timestamp.before.max.ms
	// Compacted says that cleanup.policy contains compact: records without a key
	// are refused, and the cleaner keeps the last one of each key. The settings of
	// compaction mean something only then.
	Compacted bool
	// MinDirtyRatio is min.cleanable.dirty.ratio, 0 to 1. MinLagMillis and
	// MaxLagMillis are min.compaction.lag.ms and max.compaction.lag.ms,
	// DeleteRetentionMillis is delete.retention.ms.
	MinDirtyRatio         float64
	MinLagMillis          int64
	MaxLagMillis          int64
	DeleteRetentionMillis int64
	// Retained says that cleanup.policy contains delete: only then do the two
	// retention settings mean anything. (local.retention is part of neither.)
	Retained        bool
	RetentionMillis int64 // retention.ms, negative: no limit
	RetentionBytes  int64 // retention.bytes of one partition, negative: no limit
	// Compression is compression.type: producer, uncompressed, gzip, snappy,
	// lz4 or zstd; "" is producer. CompressionLevel is that codec's level, -1
	// with gzip its default; 0 where the codec has no level.
	Compression      string
	CompressionLevel int
	// MinInsync is min.insync.replicas; 0 is 1.
	MinInsync int
}

// AppendRequest is one partition's share of a produce request.
type AppendRequest struct {
	// Records is the field as it came: it must hold exactly one record batch
	// of magic 2. It belongs to the partition until the result was delivered,
	// and is stamped in place.
	Records []byte
	// NoZstd refuses zstd with UNSUPPORTED_COMPRESSION_TYPE (Produce below v7).
	NoZstd bool
	// Transactional says that the request carried a transactional id.
	Transactional bool
	// Verify tells in which transaction, by its number (≥ 1), the batch's producer
	// may write to this partition now: it asks the coordinator. nil unless
	// Transactional.
	//
	// It is called from a goroutine of the partition when the state shows no open
	// transaction of the producer at its epoch (or the number that it told last has
	// ended), never under a lock; it may block until ctx ends and may be called
	// again. Errors: a *kerr.Error refuses the batch with it; any other is a
	// failure.
	Verify func(ctx context.Context) (n int64, err error)
	// FromZero says that the producer's epoch rises with each transaction
	// (transaction.version 2, KIP-890): a transactional batch of a producer of
	// which nothing is known must have sequence 0 then.
	FromZero bool
	// Missed is the earliest batch of the same producer that was sent before this
	// one and did not reach the partition; nil: none is known of.
	Missed *Missed
	// AcksAll says that the producer wants the batch on all in-sync replicas
	// (acks −1): min.insync.replicas is for it alone, as in Kafka.
	AcksAll bool
}

// Missed is a batch that a producer has sent and will send again: until it comes,
// none of its later ones can be the first that is stored.
type Missed struct {
	Epoch int16
	First int32 // sequence
}

// AppendResult answers one AppendRequest.
type AppendResult struct {
	// Err is nil, a *kerr.Error (a refusal: nothing stored) or a failure.
	Err error
	// Message explains a refusal to a person, "" if there is nothing to add.
	Message    string
	BaseOffset types.Offset // -1 with an error
	LogStart   types.Offset // -1 with an error
	AppendTime int64        // ms for LogAppendTime topics, else -1
	// Records names the records to blame, by index in the batch.
	Records []RecordError
	// Delay is how much later the answer should leave, so that a client does
	// not come back at once; the records may be let go of now.
	Delay time.Duration
}

// RecordError blames one record of a refused batch.
type RecordError struct {
	Index   int32
	Message string
}

// ReadRequest asks for whole batches from the one that contains Offset.
type ReadRequest struct {
	Offset types.Offset
	// MaxBytes bounds the result; 0 or less reads nothing.
	MaxBytes int
	// Whole returns the first batch whatever its size.
	Whole bool
	// Committed stops before the last stable offset (isolation level 1).
	Committed bool
}

// ReadResult answers a ReadRequest.
type ReadResult struct {
	// Batches are stored bytes, several batches may lie in one slice; they are
	// shared and must not be written to.
	Batches [][]byte
	// Release gives memory of Batches back: call each, or none, once when the
	// batches were sent and nobody will look at them any more.
	Release                             []func()
	Bytes                               int // sum of their lengths
	HighWatermark, LastStable, LogStart types.Offset
	// Aborted lists, for Committed, the aborted transactions that overlap the
	// returned range, by first offset; never nil then.
	Aborted []Aborted
}

// Aborted is one aborted transaction of a producer.
type Aborted struct {
	ProducerID int64
	First      types.Offset
}

// Special timestamps of a LookupRequest, as in ListOffsets.
const (
	Latest        int64 = -1
	Earliest      int64 = -2
	MaxTimestamp  int64 = -3
	EarliestLocal int64 = -4
)

// LookupRequest asks which offset belongs to a time.
type LookupRequest struct {
	Timestamp int64 // ms, or one of the special values above
	Committed bool
}

// LookupResult answers a LookupRequest. Nothing found: -1, -1, -1.
type LookupResult struct {
	Offset      types.Offset
	Timestamp   int64 // ms; -1 for Latest and Earliest
	LeaderEpoch int32
}

// Status describes a partition to operators.
type Status struct {
	Start, End        types.Offset
	Messages, Bytes   uint64 // of the stream; bytes also of its compacted sibling
	FirstSeq, LastSeq uint64
	Replicas, InSync  int
	Offline           int    // replicas on servers that are away
	StoreLeader       string // server that leads the stream; "" if none does
	Stopped           string // why it stopped; "" if it runs
	// LastStable is where committed readers stop; OpenFor is for how long the
	// transaction that begins there has been open, 0 if none is.
	LastStable types.Offset
	OpenFor    time.Duration
}

// LateTransaction is the oldest open transaction of a partition, of which nothing
// was appended for so long that it should have ended.
type LateTransaction struct {
	Topic      string
	Partition  int32
	ProducerID int64
	First      types.Offset  // of its first batch: committed readers stop there
	OpenFor    time.Duration // since that was appended
}
