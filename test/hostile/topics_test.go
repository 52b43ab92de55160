//go:build hostile

package hostile

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/test/testkit"
)

// createTopic asks for one topic and returns its code.
func createTopic(t testing.TB, c *client, name string, partitions int32, replicas int16, configs ...string) int16 {
	t.Helper()
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, partitions, replicas
	for i := 0; i < len(configs); i += 2 {
		topic.Configs = append(topic.Configs, kmsg.CreateTopicsRequestTopicConfig{Name: configs[i], Value: &configs[i+1]})
	}
	req := at(5, kmsg.NewPtrCreateTopicsRequest())
	req.TimeoutMillis, req.Topics = 20_000, append(req.Topics, topic)
	return ask[*kmsg.CreateTopicsResponse](t, c, req).Topics[0].ErrorCode
}

// Row 21: names that are none reach no part of NATS, whatever API carries them.
func TestRow21TopicNames(t *testing.T) {
	addr := testkit.FreeAddr(t)
	r := start(t, "--nats-listen", addr)
	nc, err := nats.Connect("nats://" + addr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	var mu sync.Mutex
	var seen []string
	sub, err := nc.Subscribe(">", func(m *nats.Msg) {
		for _, own := range []string{"$KV.kafka-gateways.", "_INBOX.", "kafka.good.", "$JS.ACK.", "$JS.FC.", "kafka-news."} {
			if strings.HasPrefix(m.Subject, own) {
				return
			}
		}
		if strings.HasSuffix(m.Subject, "INFO") || strings.Contains(m.Subject, "kafka-good-0") {
			return // the good client's, and readiness
		}
		// DescribeConfigs asks for the brokers' configs first, whatever the topic
		// is called; the server tells its auditors of it.
		const meta = "$JS.API.STREAM.MSG.GET.KV_kafka-meta"
		switch m.Subject {
		case meta:
			if string(m.Data) == `{"last_by_subj":"$KV.kafka-meta.configs"}` {
				return
			}
		case "$JS.EVENT.ADVISORY.API":
			if strings.Contains(string(m.Data), `"subject":"`+meta+`"`) || strings.Contains(string(m.Data), `"subject":"$JS.API.INFO"`) {
				return
			}
		}
		mu.Lock()
		seen = append(seen, m.Subject+" "+string(m.Data))
		mu.Unlock()
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	c := r.dial(t)
	r.under(t, func() {
		for _, n := range names {
			if code := createTopic(t, c, n, 1, 1); code != 17 {
				t.Errorf("CreateTopics %.20q: %d", n, code)
			}
			m := at(8, kmsg.NewPtrMetadataRequest())
			m.AllowAutoTopicCreation = true
			m.Topics = []kmsg.MetadataRequestTopic{{Topic: &n}}
			if code := ask[*kmsg.MetadataResponse](t, c, m).Topics[0].ErrorCode; code != 17 {
				t.Errorf("Metadata %.20q: %d", n, code)
			}
			none := func(what string, code int16) {
				if code != 17 && code != 3 {
					t.Errorf("%s %.20q: %d", what, n, code)
				}
			}
			none("Produce", codes(ask[*kmsg.ProduceResponse](t, c, produce(9, -1, part{n, 0, one(10)})))[0])
			none("Fetch", ask[*kmsg.FetchResponse](t, c, fetch(12, n, 0, 0, 1000, 0)).Topics[0].Partitions[0].ErrorCode)
			look := at(7, kmsg.NewPtrListOffsetsRequest())
			look.ReplicaID = -1
			look.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: n, Partitions: []kmsg.ListOffsetsRequestTopicPartition{{CurrentLeaderEpoch: -1, Timestamp: -1}}}}
			none("ListOffsets", ask[*kmsg.ListOffsetsResponse](t, c, look).Topics[0].Partitions[0].ErrorCode)
			none("OffsetCommit", commit(t, c, 8, "g", n, 0, 1, "", "", -1))
			del := at(4, kmsg.NewPtrDeleteTopicsRequest())
			del.TimeoutMillis, del.TopicNames = 10_000, []string{n}
			none("DeleteTopics", ask[*kmsg.DeleteTopicsResponse](t, c, del).Topics[0].ErrorCode)
			conf := at(1, kmsg.NewPtrDescribeConfigsRequest())
			conf.Resources = []kmsg.DescribeConfigsRequestResource{{ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: n}}
			none("DescribeConfigs", ask[*kmsg.DescribeConfigsResponse](t, c, conf).Resources[0].ErrorCode)
		}
	})
	_ = c.Close()
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	_ = sub.Unsubscribe()
	mu.Lock()
	defer mu.Unlock()
	if len(seen) > 0 {
		t.Errorf("%d messages in NATS, the first on %q", len(seen), seen[0])
	}
	r.goroutines += 10 // of this test's NATS connection
}

// Row 29; that a principal with ClusterAction may fetch as a replica belongs to
// authorisation.
func TestRow29LargeFetch(t *testing.T) {
	r := start(t, "--fetch-max-wait", "1s", "--fetch-max-bytes", "4MiB")
	c := r.dial(t)
	c.create(t, "wide", 20)
	for n := range int32(20) {
		c.produced(t, "fill", 9, []int16{0}, part{"wide", n, one(900 << 10)})
	}
	r.under(t, func() {
		for _, v := range []int16{4, 12} {
			req := fetch(v, "wide", 0, 0, 1<<31-1, 0)
			req.MaxWaitMillis, req.MinBytes = 1<<31-1, 1<<31-1
			one := req.Topics[0].Partitions[0]
			req.Topics[0].Partitions = nil
			for i := range int32(10_000) {
				p := one
				p.Partition = i % 20
				req.Topics[0].Partitions = append(req.Topics[0].Partitions, p)
			}
			before := r.scrape(t)
			began := time.Now()
			resp := ask[*kmsg.FetchResponse](t, c, req)
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("v%d took %v", v, took)
			}
			size := 0
			for _, p := range resp.Topics[0].Partitions {
				size += len(p.RecordBatches)
			}
			if size == 0 || size > 4<<20 {
				t.Errorf("v%d: %d bytes", v, size)
			}
			r.grown(t, "capped", limited("fetch.max.bytes"), before[limited("fetch.max.bytes")]+1)
			wait := fetch(v, "wide", 0, 1, 1<<20, 0) // at the end
			wait.MaxWaitMillis = 1<<31 - 1
			began = time.Now()
			ask[*kmsg.FetchResponse](t, c, wait)
			if took := time.Since(began); took < 500*time.Millisecond || took > 5*time.Second {
				t.Errorf("v%d waited %v", v, took)
			}
		}
		replica := fetch(12, "wide", 0, 0, 1000, 0)
		replica.ReplicaID = 5
		if code := ask[*kmsg.FetchResponse](t, c, replica).Topics[0].Partitions[0].ErrorCode; code != 31 {
			t.Errorf("replica id 5: %d", code)
		}
	})
	_ = c.Close()
	r.goroutines += 20 * 3
}

func TestRow32CreateTopics(t *testing.T) {
	r := start(t)
	c := r.dial(t)
	r.under(t, func() {
		for _, k := range []struct {
			what       string
			code       int16
			name       string
			partitions int32
			replicas   int16
			configs    []string
		}{
			{"100,000 partitions", 37, "INVALID_PARTITIONS", 100_000, 1, nil}, {"2^31-1 partitions", 37, "INVALID_PARTITIONS", 1<<31 - 1, 1, nil},
			{"0 partitions", 37, "INVALID_PARTITIONS", 0, 1, nil}, {"-5 partitions", 37, "INVALID_PARTITIONS", -5, 1, nil},
			{"replication 99", 38, "INVALID_REPLICATION_FACTOR", 1, 99, nil}, {"replication 0", 38, "INVALID_REPLICATION_FACTOR", 1, 0, nil},
			{"replication -7", 38, "INVALID_REPLICATION_FACTOR", 1, -7, nil},
			{"unknown config", 40, "INVALID_CONFIG", 1, 1, []string{"no.such", "1"}}, {"config of nonsense", 40, "INVALID_CONFIG", 1, 1, []string{"retention.ms", "soon"}},
			{"config of 32 KiB", 40, "INVALID_CONFIG", 1, 1, []string{strings.Repeat("x", 1<<15-1), string(content(1<<15 - 1))}},
		} {
			r.counted(t, k.what, answered("CreateTopics", k.name), 1, 0, func() {
				if code := createTopic(t, c, "new", k.partitions, k.replicas, k.configs...); code != k.code {
					t.Errorf("%s: %d, want %d", k.what, code, k.code)
				}
			})
		}
		twice := at(5, kmsg.NewPtrCreateTopicsRequest())
		twice.TimeoutMillis = 10_000
		for range 2 {
			topic := kmsg.NewCreateTopicsRequestTopic()
			topic.Topic, topic.NumPartitions, topic.ReplicationFactor = "twice", 1, 1
			twice.Topics = append(twice.Topics, topic)
		}
		resp := ask[*kmsg.CreateTopicsResponse](t, c, twice)
		if len(resp.Topics) != 1 || resp.Topics[0].ErrorCode != 42 {
			t.Errorf("twice: %+v", resp.Topics)
		}
		// 30,000 topics that are only validated: 10,000 partitions per request.
		many := at(5, kmsg.NewPtrCreateTopicsRequest())
		many.TimeoutMillis, many.ValidateOnly = 20_000, true
		for i := range 30_000 {
			topic := kmsg.NewCreateTopicsRequestTopic()
			topic.Topic, topic.NumPartitions, topic.ReplicationFactor = fmt.Sprint("n", i), 1, 1
			many.Topics = append(many.Topics, topic)
		}
		refused := 0
		for _, st := range ask[*kmsg.CreateTopicsResponse](t, c, many).Topics {
			if st.ErrorCode == 44 {
				refused++
			}
		}
		if refused < 20_000 {
			t.Errorf("%d of 30,000 topics refused", refused)
		}
		// Nothing of it exists.
		m := at(8, kmsg.NewPtrMetadataRequest())
		m.Topics = nil
		for _, st := range ask[*kmsg.MetadataResponse](t, c, m).Topics {
			if *st.Topic != "good" {
				t.Errorf("topic %q exists", *st.Topic)
			}
		}
	})
	_ = c.Close()
}

// Answers that repeat what a request repeats would be thousands of times larger
// than it: each thing is answered once, and memory stays flat.
func TestRepeatedResources(t *testing.T) {
	r := start(t)
	c := r.dial(t)
	commit(t, c, 8, "g", "good", 0, 1, string(content(4000)), "", -1)
	r.under(t, func() {
		stop := r.peak()
		const n = 20_000
		conf := at(4, kmsg.NewPtrDescribeConfigsRequest())
		conf.IncludeDocumentation, conf.IncludeSynonyms = true, true
		groups := at(6, kmsg.NewPtrDescribeGroupsRequest())
		offsets := at(8, kmsg.NewPtrOffsetFetchRequest())
		parts := at(7, kmsg.NewPtrOffsetFetchRequest())
		parts.Group = "g"
		coords := at(4, kmsg.NewPtrFindCoordinatorRequest())
		for range n {
			conf.Resources = append(conf.Resources, kmsg.DescribeConfigsRequestResource{ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: "good"})
			groups.Groups = append(groups.Groups, "g")
			offsets.Groups = append(offsets.Groups, kmsg.OffsetFetchRequestGroup{Group: "g"})
			parts.Topics = append(parts.Topics, kmsg.OffsetFetchRequestTopic{Topic: "good", Partitions: []int32{0, 0}})
			coords.CoordinatorKeys = append(coords.CoordinatorKeys, "g")
		}
		for _, req := range []kmsg.Request{conf, groups, offsets, parts, coords} {
			if err := c.send(req); err != nil {
				t.Fatal(err)
			}
			b, err := c.frame(patience)
			if err != nil || len(b) > 1<<20 {
				t.Errorf("key %d: an answer of %d bytes, %v", req.Key(), len(b), err)
			}
		}
		r.flat(t, "repetitions", stop())
	})
	_ = c.Close()
}

// withoutNATS leaves out what NATS itself acts on.
func withoutNATS(h nats.Header) nats.Header {
	out := nats.Header{}
	for k, v := range h {
		if !strings.HasPrefix(k, "Nats-") {
			out[k] = v
		}
	}
	return out
}

// Row 36: a plain NATS publisher who forges our headers writes a record, one who
// continues the log with headers of ours that do not fit stops the partition.
func TestRow36PlainNATS(t *testing.T) {
	addr := testkit.FreeAddr(t)
	r := start(t, "--nats-listen", addr)
	nc, err := nats.Connect("nats://" + addr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := nc.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	c := r.dial(t)
	for _, n := range []string{"plain", "forged"} {
		c.create(t, n, 1)
		c.produced(t, "first", 9, []int16{0}, part{n, 0, one(10)})
	}
	records := func(topic string) (int64, int16) {
		// Asking for the end catches up with what others have written.
		look := at(7, kmsg.NewPtrListOffsetsRequest())
		look.ReplicaID = -1
		look.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: topic, Partitions: []kmsg.ListOffsetsRequestTopicPartition{{CurrentLeaderEpoch: -1, Timestamp: -1}}}}
		ask[*kmsg.ListOffsetsResponse](t, c, look)
		p := ask[*kmsg.FetchResponse](t, c, fetch(12, topic, 0, 0, 20<<20, 0)).Topics[0].Partitions[0]
		return p.HighWatermark, p.ErrorCode
	}
	publish := func(topic string, h nats.Header, n int) error {
		_, err := js.PublishMsg(&nats.Msg{Subject: "kafka." + topic + ".0", Header: h, Data: content(n)})
		return err
	}
	r.under(t, func() {
		for i, h := range []nats.Header{
			nil, {}, {"Nats-Time-Stamp": {"x"}, "Nats-Sequence": {"9"}, "Nats-Stream": {"other"}, "Nats-Subject": {"a.b"}},
			{"Kafka-Key": {"k"}, "X": {"a", "b"}}, {"Kafka-Foo": {strings.Repeat("x", 1000)}}, {"Nats-Marker-Reason": {"Purge"}},
		} {
			if err := publish("plain", h, 10); err != nil {
				t.Fatalf("publish %v: %v", h, err)
			}
			testkit.Poll(t, patience, "a record for it", func() error {
				if end, code := records("plain"); end != int64(i+2) || code != 0 {
					return fmt.Errorf("end %d, error %d", end, code)
				}
				return nil
			})
		}
		if err := publish("plain", nil, 7<<20); err != nil {
			t.Errorf("7 MiB: %v", err)
		}
		if end, code := records("plain"); end != 8 || code != 0 {
			t.Errorf("after 7 MiB: end %d, error %d", end, code)
		}
		c.produced(t, "after plain records", 9, []int16{0}, part{"plain", 0, one(10)})

		// Our own headers, copied: not ours by their sequence, so one record.
		ours, err := js.GetMsg("kafka-plain-0", 1)
		if err != nil {
			t.Fatal(err)
		}
		// As they are, the store itself refuses them: they name a sequence.
		if err := publish("plain", ours.Header, 10); err == nil {
			t.Error("a copy with its expectation was stored")
		}
		if err := publish("plain", withoutNATS(ours.Header), 10); err != nil {
			t.Fatal(err)
		}
		if end, code := records("plain"); end != 10 || code != 0 {
			t.Errorf("after a copy: end %d, error %d", end, code)
		}
	})
	// Forged: the sequence is right, the rest is not. The partition stops, with
	// an alarm; others go on.
	info, err := js.StreamInfo("kafka-forged-0")
	if err != nil {
		t.Fatal(err)
	}
	ours, err := js.GetMsg("kafka-forged-0", info.State.LastSeq)
	if err != nil {
		t.Fatal(err)
	}
	forged := nats.Header{}
	for k, v := range withoutNATS(ours.Header) {
		forged[k] = v
		if k == "Stream-Log" {
			next := strings.Replace(v[0], fmt.Sprintf(" seq=%d ", info.State.LastSeq), fmt.Sprintf(" seq=%d ", info.State.LastSeq+1), 1)
			if next == v[0] {
				t.Fatalf("no sequence in %q", v[0])
			}
			forged[k] = []string{next}
		}
	}
	from := len(r.Log())
	if err := publish("forged", forged, 10); err != nil {
		t.Fatal(err)
	}
	testkit.Poll(t, patience, "the partition stops", func() error {
		if end, code := records("forged"); code != 56 {
			return fmt.Errorf("end %d, error %d", end, code)
		}
		return nil
	})
	c.produced(t, "to a stopped partition", 9, []int16{56}, part{"forged", 0, one(10)})
	c.produced(t, "to another", 9, []int16{0}, part{"plain", 0, one(10)})
	var ls []line
	testkit.Poll(t, patience, "a log line", func() error {
		if ls = r.lines(t, from); len(ls) == 0 {
			return errors.New("none")
		}
		return nil
	})
	if len(ls) > 3 {
		t.Errorf("%d log lines", len(ls))
	}
	_ = c.Close()
	r.goroutines += 20 // two topics, and this test's NATS connection
}
