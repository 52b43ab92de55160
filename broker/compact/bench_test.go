package compact

import (
	"fmt"
	"testing"

	"github.com/hanzoai/stream/compress"
)

// benchLog is batches of 100 records of about 1 KB with n keys in turn.
func benchLog(b *testing.B, keys int, codec compress.Codec) (log [][]byte, size int64) {
	value := string(make([]byte, 1000))
	for base := 0; base < 10_000; base += 100 {
		var rs []string
		for i := range 100 {
			rs = append(rs, fmt.Sprintf("key-%08d=%s", (base+i)%keys, value))
		}
		p := data{base: int64(base), records: rs, codec: codec}.bytes(b)
		log, size = append(log, p), size+int64(len(p))
	}
	return log, size
}

// BenchmarkFilter: untouched keeps all records, half every second of a batch.
func BenchmarkFilter(b *testing.B) {
	for _, codec := range []compress.Codec{compress.None, compress.LZ4, compress.Zstd} {
		for _, c := range []struct {
			name string
			keys int
		}{{"untouched", 10_000}, {"gone", 5_000}, {"half", 10_000}} {
			b.Run(fmt.Sprintf("%v/%s", codec, c.name), func(b *testing.B) {
				log, size := benchLog(b, c.keys, codec)
				k, e := NewKeys(1<<22), Env{Upto: 10_000, Budget: 1 << 22}
				for _, p := range log {
					if _, err := Index(k, &e, p); err != nil {
						b.Fatal(err)
					}
				}
				if c.name == "half" {
					for i := 0; i < 10_000; i += 2 {
						k.Add(fmt.Appendf(nil, "key-%08d", i), 1<<40)
					}
				}
				b.SetBytes(size)
				b.ReportAllocs()
				for b.Loop() {
					e.Restart()
					for _, p := range log {
						if _, _, _, err := Filter(k, &e, p); err != nil {
							b.Fatal(err)
						}
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/10_000, "ns/record")
			})
		}
	}
}

func BenchmarkIndex(b *testing.B) {
	for _, codec := range []compress.Codec{compress.None, compress.LZ4} {
		b.Run(codec.String(), func(b *testing.B) {
			log, size := benchLog(b, 10_000, codec)
			k, e := NewKeys(1<<22), Env{Budget: 1 << 22}
			b.SetBytes(size)
			b.ReportAllocs()
			for b.Loop() {
				k.Reset()
				for _, p := range log {
					if _, err := Index(k, &e, p); err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/10_000, "ns/record")
		})
	}
}

// TestUntouchedDoesNotAllocate: what stays as it is costs no memory.
func TestUntouchedDoesNotAllocate(t *testing.T) {
	for _, codec := range []compress.Codec{compress.None, compress.Gzip, compress.Snappy, compress.LZ4, compress.Zstd} {
		var rs []string
		for i := range 100 {
			rs = append(rs, fmt.Sprintf("key-%d=value", i))
		}
		p := data{records: rs, codec: codec}.bytes(t)
		k, e := NewKeys(1<<16), Env{Upto: 100, Budget: 1 << 20}
		if _, err := Index(k, &e, p); err != nil {
			t.Fatal(err)
		}
		// A codec's reader may cost a little a batch, a record nothing.
		most := 10.0
		if codec == compress.None {
			most = 0
		}
		if n := testing.AllocsPerRun(100, func() {
			if out, _, _, err := Filter(k, &e, p); err != nil || &out[0] != &p[0] {
				t.Fatal(err)
			}
		}); n > most {
			t.Errorf("%v: %v allocations for a batch of 100 records", codec, n)
		}
	}
}
