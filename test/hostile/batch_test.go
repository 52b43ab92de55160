//go:build hostile

package hostile

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"hash/crc32"
)

// batch describes a record batch; what is not set is as a good client sets it.
type batch struct {
	records  []record
	attrs    int16
	body     []byte // instead of records, as compressed
	count    *int32 // instead of the number of records
	delta    *int32 // last offset delta, instead of count-1
	length   *int32 // batch length
	magic    *int8
	pid      int64 // producer id, with epoch 0 and sequence 0; 0 is none
	baseTime int64
	badCRC   bool
}

type record struct{ key, value []byte }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func ptr[T any](v T) *T { return &v }

// encodeRecords is the uncompressed body.
func encodeRecords(rs []record) []byte {
	var out []byte
	for i, r := range rs {
		var b []byte
		b = append(b, 0)
		b = binary.AppendVarint(b, 0)
		b = binary.AppendVarint(b, int64(i))
		for _, field := range [][]byte{r.key, r.value} {
			if field == nil {
				b = binary.AppendVarint(b, -1)
				continue
			}
			b = append(binary.AppendVarint(b, int64(len(field))), field...)
		}
		b = binary.AppendVarint(b, 0)
		out = append(binary.AppendVarint(out, int64(len(b))), b...)
	}
	return out
}

// bytes is the batch as it is produced.
func (s batch) bytes() []byte {
	body, count := s.body, int32(max(len(s.records), 1))
	if body == nil {
		body = encodeRecords(s.records)
		count = int32(len(s.records))
	}
	if s.count != nil {
		count = *s.count
	}
	delta := count - 1
	if s.delta != nil {
		delta = *s.delta
	}
	magic := int8(2)
	if s.magic != nil {
		magic = *s.magic
	}
	time := s.baseTime
	if time == 0 {
		time = 1_700_000_000_000
	}
	crced := binary.BigEndian.AppendUint16(nil, uint16(s.attrs))
	crced = binary.BigEndian.AppendUint32(crced, uint32(delta))
	crced = binary.BigEndian.AppendUint64(crced, uint64(time))
	crced = binary.BigEndian.AppendUint64(crced, uint64(time))
	if s.pid == 0 {
		crced = append(crced, bytes.Repeat([]byte{0xff}, 14)...)
	} else {
		crced = binary.BigEndian.AppendUint64(crced, uint64(s.pid))
		crced = append(crced, 0, 0, 0, 0, 0, 0)
	}
	crced = binary.BigEndian.AppendUint32(crced, uint32(count))
	crced = append(crced, body...)
	crc := crc32.Checksum(crced, castagnoli)
	if s.badCRC {
		crc++
	}
	b := make([]byte, 8, 61+len(body)) // base offset
	length := int32(9 + len(crced))
	if s.length != nil {
		length = *s.length
	}
	b = binary.BigEndian.AppendUint32(b, uint32(length))
	b = binary.BigEndian.AppendUint32(b, 0xffffffff) // leader epoch
	b = append(b, byte(magic))
	b = binary.BigEndian.AppendUint32(b, crc)
	return append(b, crced...)
}

// one is a batch of one record whose value has n bytes of content that must
// never be logged.
func one(n int) []byte {
	return batch{records: []record{{[]byte("k"), content(n)}}}.bytes()
}

// secret is what clients send as content. No log line may hold it.
const secret = "pa55w0rd-of-a-customer"

func content(n int) []byte {
	return bytes.Repeat([]byte(secret), n/len(secret)+1)[:n]
}

// bombs are small bodies that decompress to much, by codec.
func gzipBomb(n int) []byte {
	var out bytes.Buffer
	w, _ := gzip.NewWriterLevel(&out, gzip.BestCompression)
	zeros := make([]byte, 1<<20)
	for ; n > 0; n -= len(zeros) {
		_, _ = w.Write(zeros)
	}
	_ = w.Close()
	return out.Bytes()
}

// snappyBomb is a raw block: its length, one literal zero, then copies of 64
// bytes. announced may be more than there is.
func snappyBomb(n int, announced uint64) []byte {
	b := binary.AppendUvarint(nil, announced)
	b = append(b, 0, 0)
	for ; n > 0; n -= 64 {
		b = append(b, 63<<2|2, 1, 0)
	}
	return b
}

// xerialBomb is the framed form that Java clients use.
func xerialBomb(n int) []byte {
	b := append([]byte{0x82}, "SNAPPY\x00"...)
	b = append(b, 0, 0, 0, 1, 0, 0, 0, 1)
	block := snappyBomb(n, uint64(n))
	return append(binary.BigEndian.AppendUint32(b, uint32(len(block))), block...)
}

// lz4Bomb is a frame of blocks that repeat one zero; the header checksum is the
// one that belongs to these two bytes.
func lz4Bomb(blocks int) []byte {
	b := []byte{0x04, 0x22, 0x4d, 0x18, 0x60, 0x70, 0x73}
	block := []byte{0x1f, 0, 1, 0}
	for range (4<<20 - 64) / 255 {
		block = append(block, 0xff)
	}
	block = append(block, 0, 0x50, 0, 0, 0, 0, 0)
	for range blocks {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(block)))
		b = append(b, block...)
	}
	return append(b, 0, 0, 0, 0)
}

// zstdBomb is a frame of RLE blocks of 128 KiB each, 4 bytes per block.
func zstdBomb(blocks int, window byte) []byte {
	b := []byte{0x28, 0xb5, 0x2f, 0xfd, 0x00, window}
	for i := range blocks {
		head := uint32(128<<10)<<3 | 1<<1
		if i == blocks-1 {
			head |= 1
		}
		b = append(b, byte(head), byte(head>>8), byte(head>>16), 0)
	}
	return b
}
