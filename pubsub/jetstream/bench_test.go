//go:build unix

package jetstream_test

import (
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/pubsub/embedded"
	"github.com/hanzoai/stream/pubsub/jetstream"
)

func benchStore(b *testing.B) *jetstream.Store {
	b.Helper()
	srv, err := embedded.Start(b.Context(), embedded.Config{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(srv.Stop)
	st, err := jetstream.Connect(b.Context(), jetstream.Config{InProcess: srv})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(st.Close)
	return st
}

// cpu reports processor time beside the wall time, which a busy machine
// stretches. Client and server are one process here.
func cpu(b *testing.B) (stop func()) {
	now := func() time.Duration {
		var r syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
			b.Fatal(err)
		}
		return time.Duration(r.Utime.Nano() + r.Stime.Nano())
	}
	begin := now()
	return func() { b.ReportMetric(float64(now()-begin)/float64(b.N), "cpu-ns/op") }
}

// BenchmarkAppend measures whole appends, one in flight per log.
func BenchmarkAppend(b *testing.B) {
	for _, logs := range []int{1, 4} {
		for _, size := range []int{1 << 10, 64 << 10} {
			b.Run(fmt.Sprintf("logs=%d/size=%d", logs, size), func(b *testing.B) {
				st := benchStore(b)
				e := pubsub.Entry{Data: make([]byte, size), Header: pubsub.Header{
					"V": {"1"}, "Id": {"topic-id-of-22-charact"}, "Seq": {"1"}, "App": {"0123456789abcdef"}, "Prev": {"0123456789abcdef"},
					"Base": {"123456"}, "Last": {"123465"}, "B": {"1000,42,0,17,10,0,1700000000000,1700000000000,0"},
				}}
				var ls []pubsub.Log
				for i := range logs {
					name, subject := fmt.Sprintf("b-%d", i), fmt.Sprintf("b.%d", i)
					if err := st.CreateLog(b.Context(), pubsub.LogConfig{Name: name, Subject: subject}); err != nil {
						b.Fatal(err)
					}
					ls = append(ls, st.Log(name, subject))
				}
				b.SetBytes(int64(size))
				b.ReportAllocs()
				b.ResetTimer()
				defer cpu(b)()
				var wg sync.WaitGroup
				for i, l := range ls {
					wg.Go(func() {
						var seq pubsub.Seq
						for range (b.N + i) / logs {
							var err error
							if seq, err = l.Append(b.Context(), seq, e); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				wg.Wait()
			})
		}
	}
}

// BenchmarkRead reads a log from its beginning, 1 MiB at a time.
func BenchmarkRead(b *testing.B) {
	for _, size := range []int{1 << 10, 64 << 10} {
		for _, batched := range []bool{true, false} {
			b.Run(fmt.Sprintf("size=%d/batched=%v", size, batched), func(b *testing.B) {
				st := benchStore(b)
				st.SetBatched(batched)
				if err := st.CreateLog(b.Context(), pubsub.LogConfig{Name: "b", Subject: "b.0"}); err != nil {
					b.Fatal(err)
				}
				l := st.Log("b", "b.0")
				const n = 1000
				for i := range pubsub.Seq(n) {
					if _, err := l.Append(b.Context(), i, pubsub.Entry{Data: make([]byte, size), Header: pubsub.Header{"Base": {"1"}, "Last": {"2"}}}); err != nil {
						b.Fatal(err)
					}
				}
				b.SetBytes(int64(size))
				b.ReportAllocs()
				b.ResetTimer()
				defer cpu(b)()
				for done := 0; done < b.N; {
					from := pubsub.Seq(done%n + 1)
					ms, err := l.Read(b.Context(), from, pubsub.Limit{MaxMessages: b.N - done})
					if err != nil || len(ms) == 0 {
						b.Fatal(len(ms), err)
					}
					done += len(ms)
				}
			})
		}
	}
}
