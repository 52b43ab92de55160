package topic

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/broker/partition"
	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/pubsub/memory"
)

// settled is a gateway with a table of broker configs.
func settled(t *testing.T, c *cluster, name string, change func(*Config, *Deps)) *gateway {
	t.Helper()
	client := c.srv.Client(memory.Faults{})
	t.Cleanup(func() { client.Close() })
	meta, err := client.Table(t.Context(), pubsub.TableConfig{Name: "kafka-meta"})
	if err != nil {
		t.Fatal(err)
	}
	return c.gateway(t, name, memory.Faults{}, func(c *Config, d *Deps) {
		d.Settings = meta
		if change != nil {
			change(c, d)
		}
	})
}

func changes(words ...string) (cs []Change) {
	for _, w := range words {
		op, rest, _ := strings.Cut(w, ":")
		c := Change{Op: map[string]Op{"set": Set, "unset": Unset, "append": Append, "subtract": Subtract}[op]}
		name, v, ok := strings.Cut(rest, "=")
		if c.Name = name; ok {
			c.Value = &v
		}
		cs = append(cs, c)
	}
	return cs
}

// Each call changes what it says, neither more nor less.
func TestC43Alter(t *testing.T) {
	t.Parallel()
	g, _ := simple(t, nil)
	top := mustCreate(t, g, spec("t"))
	for _, c := range []struct {
		what    string
		a       Alteration
		refused *kerr.Error
		want    string // k=v k=v after it
	}{
		{"set", Alteration{Changes: changes("set:retention.ms=5", "set:segment.ms=6")}, nil, "retention.ms=5 segment.ms=6"},
		{"set another", Alteration{Changes: changes("set:flush.ms=7")}, nil, "flush.ms=7 retention.ms=5 segment.ms=6"},
		{"unset", Alteration{Changes: changes("unset:segment.ms", "unset:no.such=1")}, nil, "flush.ms=7 retention.ms=5"},
		{"only checked", Alteration{Changes: changes("set:retention.ms=9"), ValidateOnly: true}, nil, "flush.ms=7 retention.ms=5"},
		{"one of two is bad", Alteration{Changes: changes("set:retention.ms=9", "set:flush.ms=zzz")}, kerr.InvalidConfig, "flush.ms=7 retention.ms=5"},
		{"unknown", Alteration{Changes: changes("set:retention.ms=9", "set:no.such=1")}, kerr.InvalidConfig, "flush.ms=7 retention.ms=5"},
		{"null", Alteration{Changes: changes("set:retention.ms")}, kerr.InvalidRequest, "flush.ms=7 retention.ms=5"},
		{"twice", Alteration{Changes: changes("set:retention.ms=1", "unset:retention.ms")}, kerr.InvalidRequest, "flush.ms=7 retention.ms=5"},
		{"no operation", Alteration{Changes: []Change{{Name: "retention.ms", Op: 9, Value: str("1")}}}, kerr.InvalidRequest, "flush.ms=7 retention.ms=5"},
		{"append to a number", Alteration{Changes: changes("append:retention.ms=1")}, kerr.InvalidConfig, "flush.ms=7 retention.ms=5"},
		{"more than the store takes", Alteration{Changes: changes("set:max.message.bytes=2000000000")}, kerr.InvalidConfig, "flush.ms=7 retention.ms=5"},
		{"replace", Alteration{Changes: changes("set:cleanup.policy=compact"), Replace: true}, nil, "cleanup.policy=compact"},
		{"append", Alteration{Changes: changes("append:cleanup.policy=delete,compact")}, nil, "cleanup.policy=compact,delete"},
		{"subtract", Alteration{Changes: changes("subtract:cleanup.policy=compact")}, nil, "cleanup.policy=delete"},
		{"replace by nothing", Alteration{Replace: true}, nil, ""},
		{"append to the default", Alteration{Changes: changes("append:cleanup.policy=compact")}, nil, "cleanup.policy=delete,compact"},
		{"append nothing", Alteration{Changes: changes("append:cleanup.policy=")}, kerr.InvalidConfig, "cleanup.policy=delete,compact"},
		{"subtract nothing", Alteration{Changes: changes("subtract:cleanup.policy=")}, nil, "cleanup.policy=delete,compact"},
		{"subtract all", Alteration{Changes: changes("subtract:cleanup.policy=compact,delete")}, nil, "cleanup.policy="},
		{"append nothing to nothing", Alteration{Changes: changes("append:cleanup.policy=")}, nil, "cleanup.policy="},
	} {
		wantCode(t, c.what, g.Alter(t.Context(), top, c.a), c.refused)
		want := map[string]string{}
		for kv := range strings.FieldsSeq(c.want) {
			k, v, _ := strings.Cut(kv, "=")
			want[k] = v
		}
		if now, err := g.Newest(t.Context(), top); err != nil || !maps.Equal(now.Configs, want) {
			t.Errorf("%s: %v, %v, want %v", c.what, now.Configs, err, want)
		}
	}
	if err := g.Delete(t.Context(), top); err != nil {
		t.Fatal(err)
	}
	wantCode(t, "a topic that is gone", g.Alter(t.Context(), top, Alteration{Changes: changes("set:retention.ms=5")}), kerr.UnknownTopicOrPartition)
	mustCreate(t, g, spec("t"))
	wantCode(t, "another one of the name", g.Alter(t.Context(), top, Alteration{Changes: changes("set:retention.ms=5")}), kerr.UnknownTopicOrPartition)
}

// Defaults of the brokers: what stands above what, and where a value comes from.
func TestC43Layers(t *testing.T) {
	t.Parallel()
	c := newCluster(memory.Config{MaxReplicas: 3})
	a := settled(t, c, "a", func(c *Config, _ *Deps) { c.Static = map[string]string{"log.retention.hours": "1"} })
	b := settled(t, c, "b", nil)
	top := mustCreate(t, a, spec("t"))
	own := spec("own")
	own.Configs = map[string]*string{"retention.ms": str("9")}
	mine := mustCreate(t, a, own)
	value := func(g *gateway, top *Topic) ConfigValue {
		for _, v := range g.TopicConfigs(top) {
			if v.Name == "retention.ms" {
				return v
			}
		}
		return ConfigValue{}
	}
	for _, c := range []struct {
		what     string
		broker   string
		a        Alteration
		value    string
		source   Source
		synonyms string
	}{
		{"nothing", "", Alteration{}, "3600000", FromDefault, "[]"},
		{"the cluster's", "", Alteration{Changes: changes("set:log.retention.ms=60000")}, "60000", FromCluster,
			"[{log.retention.ms 60000 3} {log.retention.hours 1 4} {log.retention.hours 168 5}]"},
		{"the broker's", "1", Alteration{Changes: changes("set:log.retention.ms=50000")}, "50000", FromBroker,
			"[{log.retention.ms 50000 2} {log.retention.ms 60000 3} {log.retention.hours 1 4} {log.retention.hours 168 5}]"},
		{"another broker's", "2", Alteration{Changes: changes("set:log.retention.ms=40000")}, "50000", FromBroker,
			"[{log.retention.ms 50000 2} {log.retention.ms 60000 3} {log.retention.hours 1 4} {log.retention.hours 168 5}]"},
		{"no limit", "1", Alteration{Changes: changes("set:log.retention.ms=-5")}, "-1", FromBroker,
			"[{log.retention.ms -5 2} {log.retention.ms 60000 3} {log.retention.hours 1 4} {log.retention.hours 168 5}]"},
		{"the broker's is gone", "1", Alteration{Replace: true}, "60000", FromCluster,
			"[{log.retention.ms 60000 3} {log.retention.hours 1 4} {log.retention.hours 168 5}]"},
		{"all are gone", "", Alteration{Changes: changes("unset:log.retention.ms")}, "3600000", FromDefault, "[]"},
	} {
		if err := a.AlterBroker(t.Context(), c.broker, c.a); err != nil {
			t.Errorf("%s: %v", c.what, err)
		}
		v := value(a, top)
		if v.Value != c.value || v.Source != c.source || fmt.Sprint(v.Synonyms) != c.synonyms {
			t.Errorf("%s: %+v", c.what, v)
		}
		if got := a.Effective(top).RetentionMillis; fmt.Sprint(got) != c.value {
			t.Errorf("%s: partitions obey %d", c.what, got)
		}
		if v := value(a, mine); v.Value != "9" || v.Source != FromTopic || v.Synonyms[0] != (Synonym{"retention.ms", "9", FromTopic}) {
			t.Errorf("%s: of the topic's own: %+v", c.what, v)
		}
		// The other gateway has other static settings and the same dynamic ones.
		if c.source != FromDefault {
			eventually(t, c.what+" on the other gateway", func() bool { return value(b, top).Value == c.value })
		}
	}
	for what, c := range map[string]struct {
		a    Alteration
		want *kerr.Error
	}{
		"read-only":              {Alteration{Changes: changes("set:num.partitions=2")}, kerr.InvalidRequest},
		"a setting of a process": {Alteration{Changes: changes("set:max.connections=2")}, kerr.InvalidRequest},
		"unknown":                {Alteration{Changes: changes("set:no.such=2")}, kerr.InvalidConfig},
		"bad value":              {Alteration{Changes: changes("set:log.retention.bytes=5", "set:log.roll.ms=zzz")}, kerr.InvalidRequest},
		"append to a number":     {Alteration{Changes: changes("append:log.roll.ms=5")}, kerr.InvalidConfig},
		"null":                   {Alteration{Changes: changes("set:log.roll.ms")}, kerr.InvalidRequest},
		"more than can be":       {Alteration{Changes: changes("set:message.max.bytes=2000000000")}, kerr.InvalidRequest},
		"only checked":           {Alteration{Changes: changes("set:log.roll.ms=5"), ValidateOnly: true}, nil},
	} {
		wantCode(t, what, a.AlterBroker(t.Context(), "", c.a), c.want)
		if vs := a.ClusterConfigs(); len(vs) != 0 {
			t.Errorf("%s: %v", what, vs)
		}
	}
}

// Every topic and its followers hear of a change of the brokers' configs, and
// changes at once on two gateways are all kept.
func TestBrokerConfigsReachTopics(t *testing.T) {
	t.Parallel()
	c := newCluster(memory.Config{MaxReplicas: 3})
	var mu sync.Mutex
	heard := map[string]partition.Config{}
	a := settled(t, c, "a", nil)
	var b *gateway
	ready := make(chan struct{})
	b = settled(t, c, "b", nil)
	b.OnChange(func(_, now *Topic) {
		<-ready
		if now != nil {
			mu.Lock()
			defer mu.Unlock()
			heard[now.Name] = b.Effective(now)
		}
	})
	close(ready)
	for _, name := range []string{"x", "y"} {
		mustCreate(t, a, spec(name))
	}
	var wg sync.WaitGroup
	for i, g := range []*gateway{a, b, a, b, a, b} {
		wg.Go(func() {
			name := []string{"log.retention.ms", "log.retention.bytes", "compression.type", "log.message.timestamp.type", "message.max.bytes", "log.cleanup.policy"}[i]
			v := []string{"5", "6", "zstd", "LogAppendTime", "777", "compact"}[i]
			if err := g.AlterBroker(t.Context(), "", Alteration{Changes: changes("set:" + name + "=" + v)}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	want := partition.Config{MaxMessageBytes: 777, LogAppendTime: true, MaxAheadMillis: 3600000, MaxBehindMillis: 9223372036854775807,
		Compacted: true, RetentionMillis: 5, RetentionBytes: 6, Compression: "zstd", CompressionLevel: 3, MinInsync: 1,
		MinDirtyRatio: 0.5, MaxLagMillis: 9223372036854775807, DeleteRetentionMillis: 86400000}
	for _, name := range []string{"x", "y"} {
		eventually(t, "configs in force on the other gateway", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return heard[name] == want
		})
	}
	if err := a.Refresh(t.Context(), nil); err != nil { // the last change may be the other's
		t.Fatal(err)
	}
	if n := len(a.ClusterConfigs()); n != 6 {
		t.Errorf("%d configs", n)
	}
}

// A record of a later version is kept and never overwritten; fields that this
// version does not know are carried through.
func TestSettingsOfLaterVersions(t *testing.T) {
	t.Parallel()
	c := newCluster(memory.Config{})
	g := settled(t, c, "a", nil)
	table := g.deps.Settings
	rev, err := pubsub.Put(t.Context(), table, pubsub.Write{Key: settingsKey, Data: []byte(`{"v":1,"later":{"a":1},"cluster":{"log.roll.ms":"4","later.key":"x"}}`)})
	if err != nil {
		t.Fatal(err)
	}
	if err := g.AlterBroker(t.Context(), "1", Alteration{Changes: changes("set:log.retention.ms=5")}); err != nil {
		t.Fatal(err)
	}
	v, err := table.Get(t.Context(), settingsKey)
	if err != nil || v.Rev == rev || string(v.Data) != `{"brokers":{"1":{"log.retention.ms":"5"}},"cluster":{"later.key":"x","log.roll.ms":"4"},"later":{"a":1},"v":1}` {
		t.Errorf("%s, %v", v.Data, err)
	}
	if _, err := pubsub.Put(t.Context(), table, pubsub.Write{Key: settingsKey, Data: []byte(`{"v":2}`), Expect: v.Rev}); err != nil {
		t.Fatal(err)
	}
	if err := g.AlterBroker(t.Context(), "", Alteration{Changes: changes("set:log.retention.ms=6")}); !errors.Is(err, pubsub.ErrUnavailable) {
		t.Errorf("%v", err)
	}
	if n := len(g.ClusterConfigs()); n != 2 {
		t.Errorf("the last known are not in force: %d", n)
	}
}

// Changes of one resource at once, by two gateways, are all kept and all succeed.
func TestAlterTogether(t *testing.T) {
	t.Parallel()
	c := newCluster(memory.Config{MaxReplicas: 3})
	a, b := settled(t, c, "a", nil), settled(t, c, "b", nil)
	top := mustCreate(t, a, spec("t"))
	if _, err := b.Get(t.Context(), "t"); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 60 {
		g := []*gateway{a, b}[i%2]
		wg.Go(func() {
			// Appends would be lost, were an update.
			if err := g.Alter(t.Context(), top, Alteration{Changes: changes(fmt.Sprintf("append:leader.replication.throttled.replicas=%d:1", i))}); err != nil {
				t.Errorf("topic %d: %v", i, err)
			}
			if err := g.AlterGroup(t.Context(), fmt.Sprint("g", i/2), Alteration{Changes: changes([]string{"set:share.delivery.count.limit=6", "set:streams.num.standby.replicas=1"}[i%2])}); err != nil {
				t.Errorf("group %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	now, err := a.Newest(t.Context(), top)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(list(now.Configs["leader.replication.throttled.replicas"])); n != 60 {
		t.Errorf("%d of 60 changes", n)
	}
	for _, g := range []*gateway{a, b} {
		if err := g.Refresh(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		groups, _ := g.Configured()
		if len(groups) != 30 {
			t.Errorf("%d groups", len(groups))
		}
		for _, name := range groups {
			n := 0
			for _, v := range g.GroupConfigs(name) {
				if v.Source == FromGroup {
					n++
				}
			}
			if n != 2 {
				t.Errorf("%s: %d configs", name, n)
			}
		}
	}
}

// What clients can make us keep is bounded: one value, and all settings together.
func TestSettingsAreBounded(t *testing.T) {
	t.Parallel()
	c := newCluster(memory.Config{})
	g := settled(t, c, "a", nil)
	top := mustCreate(t, g, spec("t"))
	const key = "leader.replication.throttled.replicas"
	var err error
	for i := 0; err == nil && i < 10; i++ {
		var pairs []string
		for j := range 1000 {
			pairs = append(pairs, fmt.Sprintf("%d:1", 1000*i+j))
		}
		err = g.Alter(t.Context(), top, Alteration{Changes: changes("append:" + key + "=" + strings.Join(pairs, ","))})
	}
	wantCode(t, "a list that grows", err, kerr.InvalidConfig)
	now, err := g.Newest(t.Context(), top)
	if n := len(now.Configs[key]); err != nil || n > maxValue || n < maxValue-10_000 {
		t.Errorf("%d bytes, %v", n, err)
	}
	if err := g.Alter(t.Context(), top, Alteration{Changes: changes("subtract:" + key + "=1:1")}); err != nil {
		t.Error(err)
	}

	name := strings.Repeat("x", maxValue-3)
	set := Alteration{Changes: changes("set:metrics=a")}
	n := 0
	for err = nil; err == nil && n < 100; n++ {
		err = g.AlterMetrics(t.Context(), fmt.Sprint(name, n), set)
	}
	wantCode(t, "too many subscriptions", err, kerr.PolicyViolation)
	if _, metrics := g.Configured(); len(metrics) != n-1 || n*maxValue > maxSettings+2*maxValue {
		t.Errorf("%d subscriptions", len(metrics))
	}
	wantCode(t, "too many groups", g.AlterGroup(t.Context(), name, Alteration{Changes: changes("set:share.delivery.count.limit=6")}), kerr.PolicyViolation)
	wantCode(t, "only checked", g.AlterMetrics(t.Context(), fmt.Sprint(name, n), Alteration{Changes: set.Changes, ValidateOnly: true}), kerr.PolicyViolation)
	// What makes less is always possible, and makes room.
	if err := g.AlterMetrics(t.Context(), fmt.Sprint(name, 0), Alteration{Replace: true}); err != nil {
		t.Error(err)
	}
	if err := g.AlterBroker(t.Context(), "", Alteration{Changes: changes("set:log.retention.ms=5")}); err != nil {
		t.Error(err)
	}
}

// What Kafka's cleaner could not work with is refused, as there.
func TestCleanerConfigsAreChecked(t *testing.T) {
	t.Parallel()
	g := settled(t, newCluster(memory.Config{}), "a", nil)
	for _, c := range []struct {
		change  string
		refused *kerr.Error
	}{
		{"log.cleaner.dedupe.buffer.size=1048575", kerr.InvalidRequest}, {"log.cleaner.dedupe.buffer.size=-1", kerr.InvalidRequest}, {"log.cleaner.dedupe.buffer.size=1048576", nil},
		{"log.cleaner.threads=0", kerr.InvalidRequest}, {"log.cleaner.threads=2", nil}, {"log.cleaner.backoff.ms=-1", kerr.InvalidRequest},
	} {
		wantCode(t, c.change, g.AlterBroker(t.Context(), "", Alteration{Changes: changes("set:" + c.change)}), c.refused)
	}
}

// A change of groups' configs is none of topics.
func TestGroupConfigsAreNotTopics(t *testing.T) {
	t.Parallel()
	c := newCluster(memory.Config{})
	g := settled(t, c, "a", nil)
	mustCreate(t, g, spec("t"))
	g.OnChange(func(_, now *Topic) { t.Errorf("topic %s has changed", now.Name) })
	if err := g.AlterGroup(t.Context(), "g", Alteration{Changes: changes("set:share.delivery.count.limit=6")}); err != nil {
		t.Error(err)
	}
}

func TestShareReset(t *testing.T) {
	t.Parallel()
	for v, ok := range map[string]bool{
		"earliest": true, " latest ": true, "by_duration:PT1H": true, "by_duration:P1D": true, "by_duration:P1DT2H3M4.5S": true, "by_duration:pt0.001s": true, "by_duration:PT0S": true,
		"": false, "none": false, "Earliest": false, "by_duration:": false, "by_duration:P": false, "by_duration:PT": false, "by_duration:P1DT": false,
		"by_duration:1H": false, "by_duration:PT1D": false, "by_duration:-PT1H": false, "by_duration:PT-1H": false, "by_duration:P1Y": false,
	} {
		if err := shareReset(v); (err == nil) != ok {
			t.Errorf("%q: %v", v, err)
		}
	}
}

// TestLateChanges: what somebody else's write has overtaken is tried anew only by a
// gateway that has lived on since: one that was held for dead meanwhile changes
// nothing any more, neither this topic nor one that was made of its name.
func TestLateChanges(t *testing.T) {
	t.Parallel()
	for what, change := range map[string]func(g *gateway, top *Topic) error{
		"create": func(g *gateway, _ *Topic) error { _, err := g.Create(t.Context(), spec("new")); return err },
		"delete": func(g *gateway, top *Topic) error { return g.Delete(t.Context(), top) },
		"grow":   func(g *gateway, top *Topic) error { return g.Grow(t.Context(), top, Growth{Partitions: 5}) },
		"alter": func(g *gateway, top *Topic) error {
			return g.Alter(t.Context(), top, Alteration{Changes: changes("set:retention.ms=5")})
		},
		"alter broker": func(g *gateway, _ *Topic) error {
			return g.AlterBroker(t.Context(), "", Alteration{Changes: changes("set:log.retention.ms=5")})
		},
	} {
		for _, late := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, late is %v", what, late), func(t *testing.T) {
				t.Parallel()
				c := newCluster(memory.Config{})
				other := settled(t, c, "b", nil)
				top := mustCreate(t, other, spec("t"))
				var armed atomic.Bool
				overtake := func(op memory.Op) memory.WriteFault {
					if !armed.CompareAndSwap(true, false) {
						return memory.WriteFault{}
					}
					// Before the write arrives, another gateway's has.
					var err error
					switch what {
					case "create":
						err = other.Delete(t.Context(), mustCreate(t, other, spec("new")))
					case "alter broker":
						err = other.AlterBroker(t.Context(), "", Alteration{Changes: changes("set:log.retention.bytes=7")})
					default:
						err = other.Alter(t.Context(), top, Alteration{Changes: changes("set:flush.ms=7")})
					}
					if err != nil {
						t.Error(err)
					}
					return memory.WriteFault{}
				}
				client := c.srv.Client(memory.Faults{Set: overtake})
				t.Cleanup(func() { client.Close() })
				meta, err := client.Table(t.Context(), pubsub.TableConfig{Name: "kafka-meta"})
				if err != nil {
					t.Fatal(err)
				}
				g := c.gateway(t, "a", memory.Faults{Set: overtake}, func(_ *Config, d *Deps) {
					d.Settings = meta
					d.Unbroken = func() func(context.Context) bool { return func(context.Context) bool { return !late } }
				})
				eventually(t, "the topic is known", func() bool { return g.cached("t") != nil })
				armed.Store(true)
				want := (*kerr.Error)(nil)
				if late {
					want = kerr.RequestTimedOut
				}
				wantCode(t, what, change(g, top), want)
				if armed.Load() {
					t.Error("nothing was overtaken")
				}
				if _, err := other.Get(t.Context(), "new"); what == "create" && (err == nil) == late {
					t.Errorf("the topic: %v", err)
				}
			})
		}
	}
}
