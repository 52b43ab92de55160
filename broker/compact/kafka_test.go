package compact

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/hanzoai/stream/serde"
	"github.com/hanzoai/stream/test/testkit"
)

// TestKafkaCleaner compacts random histories and compares with what Apache
// Kafka's own cleaner left of the same ones, which testdata has. STREAM_RECORD=1
// runs it (test/e2e/java/LogCleaner.java, after make setup), writes that file
// anew and holds COMPACT_SEEDS further histories against it; it also reads
// what Filter wrote with Kafka's classes.
func TestKafkaCleaner(t *testing.T) {
	t.Parallel()
	const recorded = 8
	file := filepath.Join("testdata", "kafka-cleaner.txt")
	var kafka *cleaner
	seeds, want := recorded, ""
	if os.Getenv("STREAM_RECORD") != "" {
		kafka = startCleaner(t)
		if n, err := strconv.Atoi(os.Getenv("COMPACT_SEEDS")); err == nil {
			seeds += n
		}
	} else {
		p, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		want = string(p)
	}
	var text strings.Builder
	for seed := range seeds {
		part := kafkaHistory(t, uint64(seed), kafka)
		if kafka == nil && !strings.HasPrefix(want, part) {
			t.Fatalf("seed %d: got\n%swant\n%s", seed, part, want[:min(len(want), len(part))])
		}
		if seed < recorded {
			text.WriteString(part)
		}
		want = want[min(len(want), len(part)):]
	}
	if want != "" {
		t.Errorf("%d bytes of the file were not compared", len(want))
	}
	if kafka != nil {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// kafkaHistory tells what each run left of one history. kafka may be nil.
func kafkaHistory(t *testing.T, seed uint64, kafka *cleaner) string {
	rnd := rand.New(rand.NewPCG(seed, 10))
	h := newHistory(t, rnd)
	h.keyless = rnd.IntN(3) == 0
	c := &compacted{h: h}
	retention := []int64{0, 30, 200}[rnd.IntN(3)]
	var text strings.Builder
	if kafka != nil {
		kafka.send(t, 1, retention)
	}
	for run := range 5 {
		before := len(h.log)
		c.write(10)
		if kafka != nil {
			for _, b := range h.log[before:] {
				kafka.send(t, 2, int32(len(b.raw)), b.raw)
			}
		}
		from, end := c.x, c.edge()
		c.run(end, &Env{Now: h.now, DeleteRetention: retention, Budget: 1 << 20, Aborted: h.aborted, LastOf: h.lastOf}, NewKeys(1<<16))
		var ours []byte
		for _, b := range c.log {
			if serde.Batch(b).BaseOffset() < end {
				ours = append(ours, b...)
			}
		}
		got := summary(t, ours)
		fmt.Fprintf(&text, "history %d, run %d below %d\n%s", seed, run, end, got)
		if kafka != nil {
			kafka.send(t, 3, from, end, h.now)
			if want := summary(t, kafka.read(t, int(kafka.int32(t)))); got != want {
				t.Fatalf("history %d, run %d from %d below %d at %d: got\n%swant\n%s", seed, run, from, end, h.now, got, want)
			}
			kafka.send(t, 4, int32(len(ours)), ours)
			if n := int(kafka.int32(t)); n != len(records(t, ours)) {
				t.Fatalf("history %d, run %d: Kafka reads %d records, want %d", seed, run, n, len(records(t, ours)))
			}
		}
		h.now += rnd.Int64N(150)
	}
	return text.String()
}

// summary is a line for each batch; base timestamps are left out where they are
// no delete horizon: Kafka takes the first record's, we leave the one that was.
func summary(t *testing.T, p []byte) string {
	var s strings.Builder
	for _, b := range batches(t, p) {
		rs := records(t, b)
		fmt.Fprintf(&s, "%d-%d attributes %#x epoch %d producer %d/%d/%d max %d", b.BaseOffset(), b.LastOffset(), b.Attributes(), b.LeaderEpoch(), b.ProducerID(), b.ProducerEpoch(), b.BaseSequence(), b.MaxTimestamp())
		if at, ok := b.DeleteHorizon(); ok {
			fmt.Fprintf(&s, " horizon %d", at)
		}
		s.WriteString(" records")
		for _, r := range rs {
			fmt.Fprintf(&s, " %d", r.offset)
		}
		fmt.Fprintf(&s, " sum %08x\n", crc32.ChecksumIEEE(fmt.Append(nil, rs)))
	}
	return s.String()
}

// cleaner is a process of LogCleaner.java.
type cleaner struct {
	in  io.Writer
	out io.Reader
	log *bytes.Buffer
}

func startCleaner(t *testing.T) *cleaner {
	t.Helper()
	cmd := exec.Command("java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dlog4j2.configurationFile="+filepath.Join(testkit.Root(), "test/e2e/kafka/log4j2.xml"),
		"-cp", filepath.Join(testkit.Cache(), "kafka/libs")+"/*", filepath.Join(testkit.Root(), "test/e2e/java/LogCleaner.java"), t.TempDir())
	c := &cleaner{log: &bytes.Buffer{}}
	cmd.Stderr = c.log
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v:\n%s", err, c.log)
		}
	})
	c.in, c.out = in, out
	return c
}

func (c *cleaner) send(t *testing.T, command byte, args ...any) {
	t.Helper()
	b := bytes.NewBuffer([]byte{command})
	for _, a := range args {
		if err := binary.Write(b, binary.BigEndian, a); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.in.Write(b.Bytes()); err != nil {
		t.Fatal(err)
	}
}

func (c *cleaner) read(t *testing.T, n int) []byte {
	t.Helper()
	p := make([]byte, n)
	if _, err := io.ReadFull(c.out, p); err != nil {
		t.Fatal(err)
	}
	return p
}

func (c *cleaner) int32(t *testing.T) int32 {
	t.Helper()
	return int32(binary.BigEndian.Uint32(c.read(t, 4)))
}
