package faults

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/test/testkit"
)

// produceOne sends a batch of one record until it gets an answer that is not
// retriable, and wants it at an offset.
func produceOne(t *testing.T, addr, topic string, want int64) {
	t.Helper()
	c := &client{addr: addr}
	defer c.close()
	testkit.Poll(t, time.Minute, "produce to "+topic, func() error {
		code, base, err := c.produce(t.Context(), topic, 0, plainBatch(fmt.Sprint(want)))
		switch {
		case err != nil:
			return err
		case code != 0 && kerr.IsRetriable(kerr.ErrorForCode(code)):
			return kerr.ErrorForCode(code)
		case code != 0 || base != want:
			t.Fatalf("produce to %s through %s: code %d, offset %d, want %d", topic, addr, code, base, want)
		}
		return nil
	})
}

// bounds wants start and end of a partition, once they can be had.
func bounds(t *testing.T, addr, topic string, start, end int64) {
	t.Helper()
	c := &client{addr: addr}
	defer c.close()
	testkit.Poll(t, time.Minute, fmt.Sprintf("%s from %d to %d through %s", topic, start, end, addr), func() error {
		code, hw, err := c.endOffset(t.Context(), topic, 0)
		if err == nil && code == 0 {
			var f fetched
			f, err = c.fetch(t.Context(), topic, 0, hw, 0)
			if code = f.code; err == nil && code == 0 && (hw != end || f.start != start || f.hw != end || len(f.records) != 0) {
				return fmt.Errorf("start %d, end %d and %d, %d records", f.start, hw, f.hw, len(f.records))
			}
		}
		return errors.Join(err, kerr.ErrorForCode(code))
	})
}

// TestC39AllRecordsGone: (meanwhile, on the same servers, what minInsync shows)
// retention, then DeleteRecords take all 33 records of a
// partition with three replicas; all NATS servers are restarted twice and all
// gateways are new: the next record gets 33, whoever is asked.
func TestC39AllRecordsGone(t *testing.T) {
	t.Parallel()
	servers := testkit.StartNATSCluster(t, 3, testkit.NATSOptions{})
	a := startOnCluster(t, servers)
	b := startOnCluster(t, servers)
	createWith(t, a.Addr, "gone", 1, map[string]string{"retention.ms": "1"})
	for n := range int64(33) {
		produceOne(t, a.Addr, "gone", n)
	}
	js := jetStream(t, servers[0].URL)
	messages := func() uint64 {
		info, err := js.StreamInfo("kafka-gone-0")
		if err != nil {
			return 0
		}
		return info.State.Msgs
	}
	minInsync(t, a, servers)
	testkit.Poll(t, time.Minute, "retention to leave one message", func() error {
		if n := messages(); n != 1 {
			return fmt.Errorf("%d messages", n)
		}
		return nil
	})
	c := &client{addr: b.Addr}
	defer c.close()
	req := kmsg.NewPtrDeleteRecordsRequest()
	rt, rp := kmsg.NewDeleteRecordsRequestTopic(), kmsg.NewDeleteRecordsRequestTopicPartition()
	rt.Topic, rp.Offset = "gone", -1
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics, req.TimeoutMillis = append(req.Topics, rt), 20_000
	if sp := must[*kmsg.DeleteRecordsResponse](t, c, req, 2).Topics[0].Partitions[0]; sp.ErrorCode != 0 || sp.LowWatermark != 33 {
		t.Fatalf("delete all records: %+v", sp)
	}
	for range 2 {
		for _, s := range servers {
			s.Stop()
		}
		for _, s := range servers {
			if err := s.Start(); err != nil {
				t.Fatal(err)
			}
		}
		inSync(t, servers)
	}
	a.Kill(t)
	b.Kill(t)
	a.Restart(t)
	b.Restart(t)
	bounds(t, a.Addr, "gone", 33, 33)
	bounds(t, b.Addr, "gone", 33, 33)
	produceOne(t, b.Addr, "gone", 33)
	produceOne(t, a.Addr, "gone", 34)
}

// TestC39RestoredStream: the stream of a partition is put back as it was ten
// records ago, beside everything else as it is: no offset is given a second time,
// the partition stops and says so.
func TestC39RestoredStream(t *testing.T) {
	t.Parallel()
	server := testkit.StartNATS(t, testkit.NATSOptions{})
	s := testkit.Start(t, testkit.Options{PubsubURL: server.URL})
	createTopic(t, s.Addr, "restored", 1)
	for n := range int64(10) {
		produceOne(t, s.Addr, "restored", n)
	}
	folder := filepath.Join(server.Dir, "jetstream", "$G", "streams", "kafka-restored-0")
	copied := filepath.Join(t.TempDir(), "copy")
	server.Stop()
	if err := os.CopyFS(copied, os.DirFS(folder)); err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	for n := int64(10); n < 20; n++ {
		produceOne(t, s.Addr, "restored", n)
	}
	s.Stop(t) // which leaves a record of what is stored
	server.Stop()
	if err := os.RemoveAll(folder); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(folder, os.DirFS(copied)); err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	s.Restart(t)
	c := &client{addr: s.Addr}
	defer c.close()
	testkit.Poll(t, time.Minute, "the partition to stop", func() error {
		code, base, err := c.produce(t.Context(), "restored", 0, plainBatch("again"))
		if code == 0 {
			t.Fatalf("offset %d was given a second time", base)
		}
		return errors.Join(err, stopped(s))
	})
	if code, _, err := c.endOffset(t.Context(), "restored", 0); err != nil || code != kerr.KafkaStorageError.Code {
		t.Errorf("end offset of a stopped partition: code %d, %v", code, err)
	}
}

// stopped is nil once the gateway has said that a partition stopped.
func stopped(s *testkit.Stream) error {
	if !strings.Contains(s.Log(), "partition stopped: its log contradicts itself or our record") {
		return errors.New("no word of it")
	}
	return nil
}

// minInsync: a topic with min.insync.replicas=2 and three replicas
// takes writes with acks=all while two NATS servers live; with one left they are
// refused, NOT_ENOUGH_REPLICAS, and nothing of them is stored; it heals by itself.
func minInsync(t *testing.T, s *testkit.Stream, servers []*testkit.NATSServer) {
	t.Helper()
	createWith(t, s.Addr, "min", 1, map[string]string{"min.insync.replicas": "2"})
	produceOne(t, s.Addr, "min", 0)
	js := jetStream(t, servers[0].URL)
	// The leader stays, so that somebody can tell that the others are gone.
	leader := -1
	testkit.Poll(t, 20*time.Second, "a leader", func() error {
		info, err := js.StreamInfo("kafka-min-0")
		if err == nil && info.Cluster.Leader == "" {
			err = errNot
		}
		if err == nil {
			_, err = fmt.Sscanf(info.Cluster.Leader, "n%d", &leader)
		}
		return err
	})
	servers[(leader+1)%3].Kill()
	produceOne(t, s.Addr, "min", 1)
	produceOne(t, s.Addr, "min", 2)
	servers[(leader+2)%3].Kill()
	c := &client{addr: s.Addr}
	defer c.close()
	began := time.Now()
	seen := map[int16]int{}
	for seen[kerr.NotEnoughReplicas.Code] == 0 && time.Since(began) < 40*time.Second {
		code, base, err := c.produce(t.Context(), "min", 0, plainBatch("too few"))
		if err != nil || code == 0 {
			t.Fatalf("acks=all with one server of three: code %d, offset %d, %v", code, base, err)
		}
		seen[code]++
	}
	t.Logf("answers without a majority, within %v: %v", time.Since(began).Round(time.Millisecond), seen)
	for _, i := range []int{1, 2} {
		if err := servers[(leader+i)%3].Start(); err != nil {
			t.Fatal(err)
		}
	}
	inSync(t, servers)
	testkit.Poll(t, time.Minute, "writes to be taken again", func() error {
		code, _, err := c.produce(t.Context(), "min", 0, plainBatch("again"))
		return errors.Join(err, kerr.ErrorForCode(code))
	})
}
