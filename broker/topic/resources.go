package topic

import (
	"context"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
)

// Configs of groups (KIP-848, KIP-932, KIP-1071) and subscriptions of client
// metrics (KIP-714) are checked, kept and shown as Kafka does. They mean nothing
// here: there are no groups of those protocols, and clients are not asked for
// metrics. Tools that set them up work all the same.

// otherKey is one config of a group or a subscription.
type otherKey struct {
	name  string
	typ   int8
	def   string
	check func(string) error
	// low and high bound a group's number as Kafka's broker configs do by default
	// (group.consumer.min.session.timeout.ms, …); 0 is no bound.
	low, high int64
	from      string // the broker config that the default comes from, or ""
}

func millis(name string, low, high int64) otherKey {
	k := otherKey{name: name, typ: typeInt, check: number(typeInt, 1, math.MaxInt32), low: low, high: high, from: "group." + name}
	switch k.def = "5000"; {
	case strings.HasSuffix(name, "session.timeout.ms"):
		k.def = "45000"
	case strings.HasSuffix(name, "assignment.interval.ms"):
		k.def, k.check = "1000", number(typeInt, 0, math.MaxInt32)
	}
	return k
}

// groupKeys are the configs of groups in Kafka 4.3, by name
// (org.apache.kafka.coordinator.group.GroupConfig).
var groupKeys = []otherKey{
	millis("consumer.assignment.interval.ms", 0, 15000),
	millis("consumer.heartbeat.interval.ms", 5000, 15000),
	millis("consumer.session.timeout.ms", 45000, 60000),
	millis("share.assignment.interval.ms", 0, 15000),
	{name: "share.auto.offset.reset", typ: typeString, def: "latest", check: shareReset},
	{"share.delivery.count.limit", typeInt, "5", number(typeInt, 2, math.MaxInt32), 2, 10, "group.share.delivery.count.limit"},
	millis("share.heartbeat.interval.ms", 5000, 15000),
	{name: "share.isolation.level", typ: typeString, def: "read_uncommitted", check: oneOf("read_committed", "read_uncommitted")},
	{"share.partition.max.record.locks", typeInt, "2000", number(typeInt, 100, math.MaxInt32), 100, 10000, "group.share.partition.max.record.locks"},
	{"share.record.lock.duration.ms", typeInt, "30000", number(typeInt, 1000, math.MaxInt32), 15000, 60000, "group.share.record.lock.duration.ms"},
	{name: "share.renew.acknowledge.enable", typ: typeBoolean, def: "true", check: boolean},
	millis("share.session.timeout.ms", 45000, 60000),
	millis("streams.assignment.interval.ms", 0, 15000),
	millis("streams.heartbeat.interval.ms", 5000, 15000),
	{"streams.initial.rebalance.delay.ms", typeInt, "3000", number(typeInt, 0, math.MaxInt32), 0, 0, "group.streams.initial.rebalance.delay.ms"},
	{"streams.num.standby.replicas", typeInt, "0", number(typeInt, 0, math.MaxInt32), 0, 2, "group.streams.num.standby.replicas"},
	millis("streams.session.timeout.ms", 45000, 60000),
}

// metricsKeys are the configs of a subscription, by name
// (org.apache.kafka.server.metrics.ClientMetricsConfigs).
var metricsKeys = []otherKey{
	{name: "interval.ms", typ: typeInt, def: "300000", check: number(typeInt, math.MinInt32, math.MaxInt32)},
	{name: "match", typ: typeList, check: noEmpty},
	{name: "metrics", typ: typeList, check: noEmpty},
}

func find(keys []otherKey, name string) *otherKey {
	if i := slices.IndexFunc(keys, func(k otherKey) bool { return k.name == name }); i >= 0 {
		return &keys[i]
	}
	return nil
}

func noEmpty(v string) error {
	if slices.Contains(list(v), "") {
		return sentence("Configuration '%s' values must not be empty.")
	}
	return nil
}

// isoDuration is what java.time.Duration.parse takes that is not negative.
var isoDuration = regexp.MustCompile(`^(?i)\+?P(\+?\d{1,10}D)?(T(\+?\d{1,10}H)?(\+?\d{1,10}M)?(\+?\d{1,10}([.,]\d{0,9})?S)?)?$`)

// shareReset is ShareGroupAutoOffsetResetStrategy.Validator.
func shareReset(v string) error {
	v = strings.TrimSpace(v)
	d, by := strings.CutPrefix(v, "by_duration:")
	if v == "earliest" || v == "latest" || by && isoDuration.MatchString(d) && strings.ContainsAny(d, "0123456789") && !strings.HasSuffix(strings.ToUpper(d), "T") {
		return nil
	}
	return fmt.Errorf("Invalid value `%s` for configuration %%name. The value must be either 'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'.", v) //nolint:staticcheck // Kafka's words
}

// AlterGroup changes the configs of a group, which need not exist.
//
// Refusals, as Kafka's (GroupConfig.validate): INVALID_CONFIG, INVALID_REQUEST, and
// POLICY_VIOLATION if more are kept than there is room for.
func (ts *Topics) AlterGroup(ctx context.Context, name string, a Alteration) error {
	return ts.alterOther(ctx, section{inGroups, name}, a, func(configs map[string]string) error {
		if name == "" {
			return refuse(kerr.InvalidRequest, "Default group resources are not allowed.")
		}
		if err := checkOthers(groupKeys, configs, kerr.InvalidConfig, "Unknown group config name: %s"); err != nil {
			return err
		}
		value := func(name string) int64 {
			v, set := configs[name]
			if !set {
				v = find(groupKeys, name).def
			}
			n, _ := strconv.ParseInt(strings.TrimSpace(v), 10, 64)
			return n
		}
		for _, k := range groupKeys {
			if _, set := configs[k.name]; !set {
				continue
			}
			kind, rest, _ := strings.Cut(k.name, ".")
			switch n := value(k.name); {
			case k.low > 0 && n < k.low:
				return refuse(kerr.InvalidConfig, "%s must be greater than or equal to group.%s.min.%s", k.name, kind, rest)
			case k.high > 0 && n > k.high:
				return refuse(kerr.InvalidConfig, "%s must be less than or equal to group.%s.max.%s", k.name, kind, strings.TrimPrefix(rest, "num."))
			}
		}
		for _, kind := range []string{"consumer", "share", "streams"} {
			if s, h := kind+".session.timeout.ms", kind+".heartbeat.interval.ms"; value(s) <= value(h) {
				return refuse(kerr.InvalidConfig, "%s must be greater than %s", s, h)
			}
		}
		return nil
	})
}

// patterns are what a subscription may match clients by.
var patterns = []string{"client_instance_id", "client_id", "client_software_name", "client_software_version", "client_source_address", "client_source_port"}

// AlterMetrics changes a subscription of client metrics; without configs there is
// none.
//
// Refusals, as Kafka's (ClientMetricsConfigs.validate): INVALID_CONFIG,
// INVALID_REQUEST, and POLICY_VIOLATION if more are kept than there is room for.
func (ts *Topics) AlterMetrics(ctx context.Context, name string, a Alteration) error {
	return ts.alterOther(ctx, section{inMetrics, name}, a, func(configs map[string]string) error {
		if name == "" {
			return refuse(kerr.InvalidRequest, "Subscription name can't be empty")
		}
		if err := checkOthers(metricsKeys, configs, kerr.InvalidRequest, "Unknown client metrics configuration: %s"); err != nil {
			return err
		}
		if v, set := configs["interval.ms"]; set {
			if n, _ := strconv.ParseInt(strings.TrimSpace(v), 10, 64); n < 100 || n > 3_600_000 {
				return refuse(kerr.InvalidRequest, "Invalid value %d for interval.ms, interval must be between 100 and 3600000 (1 hour)", n)
			}
		}
		for _, p := range list(configs["match"]) {
			param, value, ok := strings.Cut(strings.TrimRight(p, "="), "=")
			_, err := regexp.Compile(strings.TrimSpace(value)) // Kafka's is RE2 too
			if !ok || strings.Contains(value, "=") || !slices.Contains(patterns, strings.TrimSpace(param)) || err != nil {
				return refuse(kerr.InvalidConfig, "Illegal client matching pattern: %s", p)
			}
		}
		return nil
	})
}

func checkOthers(keys []otherKey, configs map[string]string, unknown *kerr.Error, format string) error {
	names := slices.Sorted(maps.Keys(configs))
	for _, name := range names {
		if find(keys, name) == nil {
			return refuse(unknown, format, name)
		}
	}
	for _, name := range names {
		if err := find(keys, name).check(configs[name]); err != nil {
			return refuse(kerr.InvalidConfig, "%s", reason(name, configs[name], err))
		}
	}
	return nil
}

// alterOther changes what was set of a group or a subscription. Kafka's controller
// knows no list among their configs.
func (ts *Topics) alterOther(ctx context.Context, in section, a Alteration, check func(configs map[string]string) error) error {
	if err := a.check(); err != nil {
		return err
	}
	return ts.alterSettings(ctx, in, a.ValidateOnly, func(old map[string]string) (map[string]string, error) {
		configs, err := a.apply(old, func(string) (string, bool) { return "", false }, noList)
		if err != nil {
			return nil, err
		}
		return configs, check(configs)
	})
}

// GroupConfigs lists all configs of a group, by name, whether it exists or not.
func (ts *Topics) GroupConfigs(name string) []ConfigValue {
	return others(groupKeys, ts.dynamic.Load().Groups[name], FromGroup)
}

// MetricsConfigs lists all configs of a subscription, by name, whether it exists or
// not.
func (ts *Topics) MetricsConfigs(name string) []ConfigValue {
	return others(metricsKeys, ts.dynamic.Load().Metrics[name], FromMetrics)
}

// Configured names the groups and the subscriptions that configs were set for, in
// order.
func (ts *Topics) Configured() (groups, metrics []string) {
	s := ts.dynamic.Load()
	return slices.Sorted(maps.Keys(s.Groups)), slices.Sorted(maps.Keys(s.Metrics))
}

func others(keys []otherKey, configs map[string]string, source Source) []ConfigValue {
	vs := make([]ConfigValue, len(keys))
	for i, k := range keys {
		v := ConfigValue{Name: k.name, Value: k.def, Source: FromDefault, Type: k.typ}
		if set, ok := configs[k.name]; ok {
			v.Value, v.Source = canonical(k.typ, set), source
			v.Synonyms = append(v.Synonyms, Synonym{k.name, v.Value, source})
		}
		if source == FromGroup {
			name := k.from
			if name == "" {
				name = k.name
			}
			v.Synonyms = append(v.Synonyms, Synonym{name, k.def, FromDefault})
		}
		vs[i] = v
	}
	return vs
}
