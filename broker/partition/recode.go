package partition

import (
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/compress"
	"github.com/hanzoai/stream/serde"
)

// codecOf gives the codec that compression.type asks for; none for producer.
func codecOf(name string) (c compress.Codec, recode bool) {
	switch name {
	case "uncompressed":
		return compress.None, true
	case "gzip":
		return compress.Gzip, true
	case "snappy":
		return compress.Snappy, true
	case "lz4":
		return compress.LZ4, true
	case "zstd":
		return compress.Zstd, true
	}
	return compress.None, false
}

// recode compresses a batch anew if the topic's compression.type is another one
// than the producer's, whatever the levels (LogValidator.validateMessagesAndAssignOffsetsCompressed).
// Records are checked on the way, as Kafka does. What decompresses to more than
// we take (see plainRecords) is too large for the topic.
func (k *checked) recode(c *Config, largest int) {
	codec, recode := codecOf(c.Compression)
	if !recode || compress.Codec(k.batch.Codec()) == codec {
		return
	}
	b := k.batch
	body, err := plainRecords(b, c.MaxMessageBytes)
	if errors.Is(err, compress.ErrLimit) {
		k.refuse(kerr.MessageTooLarge, "the batch's records are larger than what can be compressed anew")
		return
	}
	if err != nil {
		k.refuse(kerr.InvalidRecord, "the batch's records cannot be read")
		return
	}
	it := serde.NewRecords(body, b.Count())
	for i := int32(0); it.Next(); i++ {
		if it.Record.OffsetDelta != i {
			k.refuse(kerr.InvalidRecord, "the batch's offsets have gaps")
			return
		}
	}
	if it.Err() != nil {
		k.refuse(kerr.InvalidRecord, "the batch's records cannot be read")
		return
	}
	encoded, err := compress.EncodeLevel(nil, codec, body, c.CompressionLevel)
	if err != nil { // no input makes it fail
		k.refuse(kerr.UnknownServerError, "the batch cannot be compressed")
		return
	}
	n := b.WithRecords(int8(codec), encoded)
	if limit := min(c.MaxMessageBytes, largest); len(n) > limit {
		k.refuse(kerr.MessageTooLarge, "")
		return
	}
	k.batch, k.entry.length = n, int32(len(n))
}
