package topic

import (
	"fmt"
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
		if !ok || v.Value != want.value || v.Type != want.typ || v.Source != FromDefault || v.ReadOnly || v.Doc == "" {
			t.Errorf("%+v, want %+v", v, want)
		}
		if err := checkConfigs(map[string]string{v.Name: v.Value}); err != nil {
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
		{"cleanup.policy=", true, ""},
		{"cleanup.policy=,delete", false, "Configuration 'cleanup.policy' values must not be empty."},
		{"cleanup.policy=compact", true, ""},
		{"cleanup.policy=delete", true, ""},
		{"cleanup.policy=compact,delete", true, ""},
		{"cleanup.policy=delete,delete", true, ""},
		{"retention.ms=-1", true, ""},
		{"retention.ms=604800000", true, ""},
		{"retention.ms=1000", true, ""},
		{"retention.ms=-2", false, "at least -1"},
		{"retention.ms=abc", false, "Not a number of type LONG"},
		{"retention.ms=9223372036854775808", false, "Not a number of type LONG"},
		{"retention.ms=1000 cleanup.policy=compact", true, ""},
		{"retention.bytes=-1", true, ""},
		{"retention.bytes=1000000", true, ""},
		{"retention.bytes=1000000 cleanup.policy=compact", true, ""},
		{"compression.type=producer", true, ""},
		{"compression.type=gzip", true, ""},
		{"compression.type=brotli", false, "String must be one of"},
		{"compression.gzip.level=-1", true, ""},
		{"compression.gzip.level=0", false, "between 1 and 9 or equal to -1"},
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
		{"min.cleanable.dirty.ratio=0.1", true, ""},
		{"min.cleanable.dirty.ratio=2", false, "Invalid value 2.0 for"}, // as it was read
		{"min.insync.replicas=-07", false, "Invalid value -7 for"},
		{"min.cleanable.dirty.ratio=NaN", false, "at least 0"},
		{"min.cleanable.dirty.ratio=1.1", false, "no more than 1"},
		{"min.compaction.lag.ms=60000", true, ""},
		{"max.compaction.lag.ms=1", true, ""},
		{"max.compaction.lag.ms=1 min.compaction.lag.ms=2", false, "conflict"},
		{"delete.retention.ms=100", true, ""},
		{"segment.bytes=52428800", true, ""},
		{"segment.bytes=14", false, "at least 1048576"},
		{"flush.messages=1", true, ""},
		{"preallocate=FALSE", true, ""},
		{"preallocate=true", true, ""},
		{"preallocate=maybe", false, "true or false"},
		{"unclean.leader.election.enable=true", true, ""},
		{"remote.storage.enable=true", false, "Tiered Storage functionality is disabled"},
		{"leader.replication.throttled.replicas=", true, ""},
		{"leader.replication.throttled.replicas=*", true, ""},
		{"leader.replication.throttled.replicas=0:1,1:2", true, ""},
		{"leader.replication.throttled.replicas=x", false, "partitionId"},
	} {
		configs := map[string]string{}
		for kv := range strings.FieldsSeq(c.configs) {
			k, v, _ := strings.Cut(kv, "=")
			configs[k] = v
		}
		err := checkConfigs(configs)
		if err == nil {
			err = checkLimits(configs, func(string) bool { return true }, 2<<20, 1)
		}
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

func TestMinInsyncReplicas(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		insync, replicas int
		ok               bool
	}{{1, 1, true}, {2, 1, true}, {2, 3, true}, {3, 3, false}, {4, 3, true}, {1, 3, true}, {2, 2, true}, {3, 5, true}, {4, 5, false}, {5, 5, false}} {
		configs := map[string]string{"min.insync.replicas": strconv.Itoa(c.insync)}
		err := checkLimits(configs, func(string) bool { return true }, 1<<20, c.replicas)
		if err := checkLimits(configs, func(string) bool { return false }, 1<<20, c.replicas); err != nil {
			t.Errorf("what was not changed is refused: %v", err)
		}
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
		if set != (v.Source == FromTopic) || set && v.Value != strings.TrimSpace(*want) {
			t.Errorf("%+v", v)
		}
	}
}

// Connect and Schema Registry take their topics only if the policy is precisely
// "compact"; an own key survives retention.
func TestC42PolicyIsShownAsSet(t *testing.T) {
	t.Parallel()
	g, _ := simple(t, nil)
	for i, c := range []struct {
		set                *string
		shown              string
		keys, retained, ok bool
	}{
		{str("compact"), "compact", true, false, true},
		{str("delete"), "delete", false, true, true},
		{nil, "delete", false, true, true},
		{str("compact,delete"), "compact,delete", true, true, true},
		{str("delete,compact"), "delete,compact", true, true, true},
		{str(""), "", false, false, true},
		{str("Compact"), "", false, false, false},
		{str("compact;delete"), "", false, false, false},
		{str("none"), "", false, false, false},
	} {
		s := spec(fmt.Sprint("t", i))
		// Both retentions would take everything at once.
		s.Configs = map[string]*string{"retention.ms": str("1"), "retention.bytes": str("1")}
		if c.set != nil {
			s.Configs[cleanupPolicy] = c.set
		}
		_, err := g.Create(t.Context(), s)
		if !c.ok {
			wantCode(t, *c.set, err, kerr.InvalidConfig)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		top, err := g.Get(t.Context(), s.Name)
		if err != nil {
			t.Fatal(err)
		}
		vs := g.TopicConfigs(top)
		at := slices.IndexFunc(vs, func(v ConfigValue) bool { return v.Name == cleanupPolicy })
		if at < 0 || vs[at].Value != c.shown || vs[at].Null || (vs[at].Source == FromTopic) != (c.set != nil) {
			t.Errorf("%s: %+v", c.shown, vs)
		}
		if e := g.Effective(top); e.Compacted != c.keys || e.Retained != c.retained {
			t.Errorf("%s: %+v", c.shown, e)
		}
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
			Retained: true, RetentionMillis: 604800000, RetentionBytes: -1, Compression: "producer", MinInsync: 1, MinDirtyRatio: 0.5, MaxLagMillis: long, DeleteRetentionMillis: 86400000}},
		{map[string]string{
			"max.message.bytes": "777", "message.timestamp.type": "LogAppendTime", "cleanup.policy": "compact",
			"message.timestamp.after.max.ms": "5", "message.timestamp.before.max.ms": "6",
		}, partition.Config{MaxMessageBytes: 777, LogAppendTime: true, MaxAheadMillis: 5, MaxBehindMillis: 6, Compacted: true,
			RetentionMillis: 604800000, RetentionBytes: -1, Compression: "producer", MinInsync: 1, MinDirtyRatio: 0.5, MaxLagMillis: long, DeleteRetentionMillis: 86400000}},
		{map[string]string{
			"cleanup.policy": "compact, delete", "min.cleanable.dirty.ratio": " 0.25", "min.compaction.lag.ms": "7", "max.compaction.lag.ms": "8", "delete.retention.ms": "0", "retention.ms": "-1", "retention.bytes": "9", "min.insync.replicas": "2",
			"compression.type": "zstd", "compression.zstd.level": "-7",
		}, partition.Config{MaxMessageBytes: 1048588, MaxAheadMillis: 3600000, MaxBehindMillis: long, Compacted: true, Retained: true,
			RetentionMillis: -1, RetentionBytes: 9, Compression: "zstd", CompressionLevel: -7, MinInsync: 2, MinDirtyRatio: 0.25, MinLagMillis: 7, MaxLagMillis: 8}},
		{map[string]string{"compression.type": "gzip"}, partition.Config{MaxMessageBytes: 1048588, MaxAheadMillis: 3600000, MaxBehindMillis: long,
			Retained: true, RetentionMillis: 604800000, RetentionBytes: -1, Compression: "gzip", CompressionLevel: -1, MinInsync: 1, MinDirtyRatio: 0.5, MaxLagMillis: long, DeleteRetentionMillis: 86400000}},
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
			if v.Name == "max.message.bytes" && (v.Value != strconv.Itoa(most)) {
				t.Errorf("%v: shown as %+v", configs, v)
			}
		}
	}
	for _, v := range g.BrokerConfigs("1", nil) {
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
	vs := g.BrokerConfigs("1", map[string]string{"group.max.size": "50", "our.own": "x"})
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
		if v := got[name]; v.Value != want || (v.Source == FromStatic) != (brokerByKey[name] == nil || v.Value != brokerByKey[name].def) {
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
