package topic

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/broker/partition"
	"github.com/hanzoai/stream/pubsub/memory"
)

// kafkaDefaults are the topic configs that Apache Kafka 4.3.1 shows on a fresh
// topic, with types.
var kafkaDefaults = map[string]struct {
	value string
	typ   int8
}{
	"cleanup.policy": {"delete", 7}, "compression.type": {"producer", 2}, "compression.gzip.level": {"-1", 3},
	"compression.lz4.level": {"9", 3}, "compression.zstd.level": {"3", 3}, "delete.retention.ms": {"86400000", 5},
	"file.delete.delay.ms": {"60000", 5}, "flush.messages": {"9223372036854775807", 5}, "flush.ms": {"9223372036854775807", 5},
	"index.interval.bytes": {"4096", 3}, "leader.replication.throttled.replicas": {"", 7}, "follower.replication.throttled.replicas": {"", 7},
	"local.retention.bytes": {"-2", 5}, "local.retention.ms": {"-2", 5}, "max.compaction.lag.ms": {"9223372036854775807", 5},
	"max.message.bytes": {"1048588", 3}, "message.timestamp.type": {"CreateTime", 2}, "message.timestamp.after.max.ms": {"3600000", 5},
	"message.timestamp.before.max.ms": {"9223372036854775807", 5}, "min.cleanable.dirty.ratio": {"0.5", 6}, "min.compaction.lag.ms": {"0", 5},
	"min.insync.replicas": {"1", 3}, "preallocate": {"false", 1}, "remote.storage.enable": {"false", 1}, "remote.log.copy.disable": {"false", 1},
	"remote.log.delete.on.disable": {"false", 1}, "retention.bytes": {"-1", 5}, "retention.ms": {"604800000", 5}, "segment.bytes": {"1073741824", 3},
	"segment.index.bytes": {"10485760", 3}, "segment.jitter.ms": {"0", 5}, "segment.ms": {"604800000", 5}, "unclean.leader.election.enable": {"false", 1},
}

func TestTopicConfigsAreKafkas(t *testing.T) {
	t.Parallel()
	g, _ := simple(t, nil)
	vs := g.TopicConfigs(&Topic{})
	if len(vs) != 33 || len(kafkaDefaults) != 33 {
		t.Errorf("%d configs, want 33", len(vs))
	}
	if !slices.IsSortedFunc(vs, func(a, b ConfigValue) int { return strings.Compare(a.Name, b.Name) }) {
		t.Error("not sorted by name")
	}
	for _, v := range vs {
		want, ok := kafkaDefaults[v.Name]
		if !ok || v.Value != want.value || v.Default != want.value || v.Type != want.typ || v.Set || v.Doc == "" {
			t.Errorf("%+v, want %+v", v, want)
		}
		if err := checkConfigs(map[string]string{v.Name: v.Default}, 2<<20); err != nil {
			t.Errorf("the default of %s is refused: %v", v.Name, err)
		}
	}
}

func TestConfigValues(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		configs string // k=v k=v
		ok      bool
		text    string // part of the refusal
	}{
		{"", true, ""},
		{"no.such=1", false, "Unknown topic config name: no.such"},
		{"cleanup.policy=zzz", false, "String must be one of: compact, delete"},
		{"cleanup.policy=", false, "empty"},
		{"cleanup.policy=compact", true, ""},
		{"cleanup.policy=delete", true, ""},
		{"cleanup.policy=compact,delete", false, "so far"},
		{"cleanup.policy=delete,delete", false, "duplicates"},
		{"retention.ms=-1", true, ""},
		{"retention.ms=604800000", true, ""},
		{"retention.ms=1000", false, "so far"},
		{"retention.ms=-2", false, "at least -1"},
		{"retention.ms=abc", false, "Not a number of type LONG"},
		{"retention.ms=9223372036854775808", false, "Not a number of type LONG"},
		{"retention.ms=1000 cleanup.policy=compact", true, ""},
		{"retention.bytes=-1", true, ""},
		{"retention.bytes=1000000", false, "so far"},
		{"retention.bytes=1000000 cleanup.policy=compact", true, ""},
		{"compression.type=producer", true, ""},
		{"compression.type=gzip", false, "so far"},
		{"compression.type=brotli", false, "String must be one of"},
		{"compression.gzip.level=-1", true, ""},
		{"compression.gzip.level=0", false, "at least 1"},
		{"compression.gzip.level=9", true, ""},
		{"max.message.bytes=1000", true, ""},
		{"max.message.bytes=1048588", true, ""},
		{"max.message.bytes=2097152", true, ""},
		{"max.message.bytes=2097153", false, "the store takes at most 2097152"},
		{"max.message.bytes=-1", false, "at least 0"},
		{"max.message.bytes=3000000000", false, "Not a number of type INT"},
		{"message.timestamp.type=LogAppendTime", true, ""},
		{"message.timestamp.type=logappendtime", false, "String must be one of"},
		{"message.timestamp.before.max.ms=5", true, ""},
		{"message.timestamp.after.max.ms=9223372036854775807", true, ""},
		{"message.timestamp.after.max.ms=-1", false, "at least 0"},
		{"min.insync.replicas=1", true, ""},
		{"min.insync.replicas=0", false, "at least 1"},
		{"min.cleanable.dirty.ratio=0.50", true, ""},
		{"min.cleanable.dirty.ratio=0.1", false, "so far"},
		{"min.cleanable.dirty.ratio=NaN", false, "between"},
		{"min.cleanable.dirty.ratio=1.1", false, "between"},
		{"min.compaction.lag.ms=60000", true, ""},
		{"max.compaction.lag.ms=1", false, "so far"},
		{"max.compaction.lag.ms=1 min.compaction.lag.ms=2", false, "conflict"},
		{"delete.retention.ms=100", true, ""},
		{"segment.bytes=52428800", false, "so far"},
		{"segment.bytes=14", false, "at least 1048576"},
		{"flush.messages=1", false, "so far"},
		{"preallocate=FALSE", true, ""},
		{"preallocate=true", false, "so far"},
		{"preallocate=maybe", false, "true or false"},
		{"unclean.leader.election.enable=true", false, "so far"},
		{"remote.storage.enable=true", false, "so far"},
		{"leader.replication.throttled.replicas=", true, ""},
		{"leader.replication.throttled.replicas=*", false, "so far"},
		{"leader.replication.throttled.replicas=0:1,1:2", false, "so far"},
		{"leader.replication.throttled.replicas=x", false, "partitionId"},
	} {
		configs := map[string]string{}
		for kv := range strings.FieldsSeq(c.configs) {
			k, v, _ := strings.Cut(kv, "=")
			configs[k] = v
		}
		err := checkConfigs(configs, 2<<20)
		if c.ok {
			wantCode(t, c.configs, err, nil)
			continue
		}
		wantCode(t, c.configs, err, kerr.InvalidConfig)
		if err != nil && !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v, want a text with %q", c.configs, err, c.text)
		}
	}
}

// TestOnlyObeyedValues: a config that nothing carries out is taken at its
// default only. The list is what is obeyed, so that a new key must be thought
// about.
func TestOnlyObeyedValues(t *testing.T) {
	t.Parallel()
	obeyed := []string{
		"compression.gzip.level", "compression.lz4.level", "compression.zstd.level", "delete.retention.ms", "max.message.bytes",
		"message.timestamp.after.max.ms", "message.timestamp.before.max.ms", "message.timestamp.type", "min.compaction.lag.ms", "min.insync.replicas",
	}
	other := map[int8]string{1: "true", 3: "1048577", 5: "1048577", 6: "0.25"}
	for _, k := range keys {
		v := other[k.typ]
		if strings.HasPrefix(k.name, "compression.") {
			v = "7"
		}
		switch k.name {
		case "compression.type":
			v = "zstd"
		case "cleanup.policy":
			v = "compact,delete"
		case "message.timestamp.type":
			v = "LogAppendTime"
		case "leader.replication.throttled.replicas", "follower.replication.throttled.replicas":
			v = "*"
		}
		if err := k.check(v); err != nil {
			t.Errorf("%s=%s is not even valid: %v", k.name, v, err)
		}
		err := checkConfigs(map[string]string{k.name: v}, 2<<20)
		if got, want := err == nil, slices.Contains(obeyed, k.name); got != want {
			t.Errorf("%s=%s: %v, accepted should be %v", k.name, v, err, want)
		}
	}
}

func TestMinInsyncReplicas(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		insync, replicas int
		ok               bool
	}{{1, 1, true}, {2, 1, false}, {2, 3, true}, {3, 3, false}, {1, 3, true}, {2, 2, true}, {3, 5, true}} {
		err := checkInsync(map[string]string{"min.insync.replicas": strconv.Itoa(c.insync)}, c.replicas)
		if (err == nil) != c.ok {
			t.Errorf("min.insync.replicas %d of %d: %v", c.insync, c.replicas, err)
		}
	}
}

func TestConfigsComeBackAsSet(t *testing.T) {
	t.Parallel()
	g, _ := simple(t, nil)
	s := spec("t")
	s.Configs = map[string]*string{"cleanup.policy": str("compact"), "retention.ms": str("604800000"), "max.message.bytes": str(" 2000 ")}
	if _, err := g.Create(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	top, err := g.Get(t.Context(), "t")
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range g.TopicConfigs(top) {
		want, set := s.Configs[v.Name]
		if v.Set != set || set && v.Value != *want || !set && v.Value != v.Default {
			t.Errorf("%+v", v)
		}
	}
	if !top.KeptWhole() {
		t.Error("a compacted topic is not said to be kept whole")
	}
}

func TestEffective(t *testing.T) {
	t.Parallel()
	g, _ := simple(t, nil)
	const long = 9223372036854775807
	for _, c := range []struct {
		configs map[string]string
		want    partition.Config
	}{
		{nil, partition.Config{MaxMessageBytes: 1048588, MaxAheadMillis: 3600000, MaxBehindMillis: long,
			Retained: true, RetentionMillis: 604800000, RetentionBytes: -1, Compression: "producer", MinInsync: 1}},
		{map[string]string{
			"max.message.bytes": "777", "message.timestamp.type": "LogAppendTime", "cleanup.policy": "compact",
			"message.timestamp.after.max.ms": "5", "message.timestamp.before.max.ms": "6",
		}, partition.Config{MaxMessageBytes: 777, LogAppendTime: true, MaxAheadMillis: 5, MaxBehindMillis: 6, KeysRequired: true,
			RetentionMillis: 604800000, RetentionBytes: -1, Compression: "producer", MinInsync: 1}},
		{map[string]string{
			"cleanup.policy": "compact, delete", "retention.ms": "-1", "retention.bytes": "9", "min.insync.replicas": "2",
			"compression.type": "zstd", "compression.zstd.level": "-7",
		}, partition.Config{MaxMessageBytes: 1048588, MaxAheadMillis: 3600000, MaxBehindMillis: long, KeysRequired: true, Retained: true,
			RetentionMillis: -1, RetentionBytes: 9, Compression: "zstd", CompressionLevel: -7, MinInsync: 2}},
		{map[string]string{"compression.type": "gzip"}, partition.Config{MaxMessageBytes: 1048588, MaxAheadMillis: 3600000, MaxBehindMillis: long,
			Retained: true, RetentionMillis: 604800000, RetentionBytes: -1, Compression: "gzip", CompressionLevel: -1, MinInsync: 1}},
	} {
		if got := g.Effective(&Topic{Configs: c.configs}); got != c.want {
			t.Errorf("%v: %+v, want %+v", c.configs, got, c.want)
		}
	}
}

// TestC14SmallStore: nothing is promised that the store cannot hold.
func TestC14SmallStore(t *testing.T) {
	t.Parallel()
	c := newCluster(memory.Config{MaxPayload: 1 << 20})
	g := c.gateway(t, "a", memory.Faults{}, nil)
	const most = 1<<20 - 4096
	for _, configs := range []map[string]string{nil, {"max.message.bytes": "1048588"}} {
		if got := g.Effective(&Topic{Configs: configs}).MaxMessageBytes; got != most {
			t.Errorf("%v: %d bytes are accepted, the store holds %d", configs, got, most)
		}
		for _, v := range g.TopicConfigs(&Topic{Configs: configs}) {
			if v.Name == "max.message.bytes" && (v.Value != strconv.Itoa(most) || v.Default != strconv.Itoa(most)) {
				t.Errorf("%v: shown as %+v", configs, v)
			}
		}
	}
	for _, v := range g.BrokerConfigs(nil) {
		if v.Name == "message.max.bytes" && v.Value != strconv.Itoa(most) {
			t.Errorf("%+v", v)
		}
	}
	s := spec("t")
	s.Configs = map[string]*string{"max.message.bytes": str("1048588")}
	_, err := g.Create(t.Context(), s)
	wantCode(t, "more than the store holds", err, kerr.InvalidConfig)
}

func TestBrokerConfigs(t *testing.T) {
	t.Parallel()
	g, _ := simple(t, func(c *Config, _ *Deps) { c.Partitions, c.AutoCreate = 4, false })
	vs := g.BrokerConfigs(map[string]string{"group.max.size": "50", "our.own": "x"})
	if !slices.IsSortedFunc(vs, func(a, b ConfigValue) int { return strings.Compare(a.Name, b.Name) }) {
		t.Error("not sorted by name")
	}
	got := map[string]ConfigValue{}
	for _, v := range vs {
		if _, twice := got[v.Name]; twice {
			t.Errorf("%s is listed twice", v.Name)
		}
		got[v.Name] = v
	}
	for name, want := range map[string]string{
		"num.partitions": "4", "auto.create.topics.enable": "false", "default.replication.factor": "1", "group.max.size": "50",
		"our.own": "x", "message.max.bytes": "1048588", "offsets.retention.minutes": "10080", "log.retention.hours": "168",
	} {
		if v := got[name]; v.Value != want || v.Set != (v.Value != v.Default) {
			t.Errorf("%s: %+v, want %s", name, v, want)
		}
	}
	// A broker config that a topic config's default comes from shows that default.
	for topicKey, brokerKey := range map[string]string{"cleanup.policy": "log.cleanup.policy", "segment.bytes": "log.segment.bytes", "min.insync.replicas": "min.insync.replicas"} {
		if got[brokerKey].Value != kafkaDefaults[topicKey].value {
			t.Errorf("%s is %s, %s's default is %s", brokerKey, got[brokerKey].Value, topicKey, kafkaDefaults[topicKey].value)
		}
	}
}

func TestConfigValidate(t *testing.T) {
	t.Parallel()
	if err := Defaults().Validate(); err != nil {
		t.Error(err)
	}
	if err := (Config{}).Validate(); err != nil {
		t.Error(err)
	}
	err := Config{Prefix: "a.b", Partitions: -1, Replicas: 6, MaxMessageBytes: -1, MaxPartitions: -1}.Validate()
	if err == nil || strings.Count(err.Error(), "\n") != 4 {
		t.Errorf("not every problem is reported: %v", err)
	}
}
