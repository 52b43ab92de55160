package topic

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// static are the broker configs that this process's configuration sets to
// something else than Kafka's default. others are decided elsewhere and win.
func (ts *Topics) static(others map[string]string) map[string]string {
	m := map[string]string{
		"auto.create.topics.enable":  strconv.FormatBool(ts.config.AutoCreate),
		"default.replication.factor": strconv.Itoa(ts.config.Replicas),
		"message.max.bytes":          strconv.Itoa(min(ts.config.MaxMessageBytes, largest(ts.deps.Store))),
		"num.partitions":             strconv.Itoa(int(ts.config.Partitions)),
	}
	maps.Copy(m, ts.config.Static)
	maps.Copy(m, others)
	maps.DeleteFunc(m, func(name, v string) bool {
		k := brokerByKey[name]
		return k != nil && canonical(k.typ, v) == k.def
	})
	return m
}

// layers are the places where a broker config may be set, the strongest first.
func (ts *Topics) layers(broker string, static map[string]string) []layer {
	s := ts.dynamic.Load()
	return []layer{{FromBroker, s.broker(broker)}, {FromCluster, s.Cluster}, {FromStatic, static}}
}

type layer struct {
	source Source
	values map[string]string
}

// synonyms are the places that give a broker config its value, those of the keys
// that stand in for it included, in Kafka's order (ConfigHelper.configSynonyms):
// none if the key itself has no value anywhere.
func synonyms(name string, layers []layer) []Synonym {
	chain := chains[name]
	if chain == nil {
		chain = []string{name}
	}
	var all []Synonym
	for _, l := range layers {
		for _, n := range chain {
			if v, ok := l.values[n]; ok {
				all = append(all, Synonym{n, v, l.source})
			}
		}
	}
	for _, n := range chain {
		if k := brokerByKey[n]; k != nil && k.def != unset {
			all = append(all, Synonym{n, k.def, FromDefault})
		}
	}
	i := slices.IndexFunc(all, func(s Synonym) bool { return s.Name == name })
	if i < 0 {
		return nil
	}
	return all[i:]
}

// value is what is in force of a topic config, whose default comes from layers.
func (ts *Topics) value(configs map[string]string, k *key, layers []layer) string {
	v, ok := configs[k.name]
	if !ok {
		v = inherited(k, layers)
	}
	v = canonical(k.typ, v)
	if k.name == maxMessageBytes { // perhaps set on a store with a larger limit
		if n, err := strconv.ParseInt(v, 10, 64); err == nil && n > int64(largest(ts.deps.Store)) {
			v = strconv.Itoa(largest(ts.deps.Store))
		}
	}
	return v
}

// inherited is a topic config's value where the topic has none.
func inherited(k *key, layers []layer) string {
	for _, o := range k.from {
		for _, l := range layers {
			v, ok := l.values[o.name]
			if !ok {
				continue
			}
			if n, err := strconv.ParseInt(strings.TrimSpace(v), 10, 64); err == nil && k.name == retentionMillis && n < 0 {
				return "-1"
			} else if err == nil && o.times > 1 {
				return strconv.FormatInt(n*o.times, 10)
			}
			return v
		}
	}
	return k.def
}

// TopicConfigs lists all configs of a topic, by name. Values are shown as Kafka
// shows them: numbers without spaces, lists without repetitions.
func (ts *Topics) TopicConfigs(t *Topic) []ConfigValue {
	layers := ts.layers(ts.deps.Self(), ts.static(nil))
	vs := make([]ConfigValue, len(keys))
	for i := range keys {
		k := &keys[i]
		v := ConfigValue{Name: k.name, Value: ts.value(t.Configs, k, layers), Source: FromDefault, Type: k.typ, Doc: k.doc}
		if _, set := t.Configs[k.name]; set {
			v.Synonyms = append(v.Synonyms, Synonym{k.name, v.Value, FromTopic})
		}
		if len(k.from) > 0 {
			v.Synonyms = append(v.Synonyms, synonyms(k.from[0].name, layers)...)
		}
		if len(v.Synonyms) > 0 {
			v.Source = v.Synonyms[0].Source
		}
		vs[i] = v
	}
	return vs
}

// BrokerConfigs lists the configs of a broker under Kafka's names, by name. others
// are values in force that are decided elsewhere (listeners, group limits, …),
// and win over ours; one that is not in the list is added to it.
func (ts *Topics) BrokerConfigs(id string, others map[string]string) []ConfigValue {
	static := ts.static(others)
	layers := ts.layers(id, static)
	vs := make([]ConfigValue, 0, len(brokerKeys)+len(others))
	for i := range brokerKeys {
		k := &brokerKeys[i]
		v := brokerValue(k, synonyms(k.name, layers))
		vs = append(vs, v)
	}
	for name, value := range static {
		if brokerByKey[name] == nil {
			vs = append(vs, ConfigValue{Name: name, Value: value, Source: FromStatic, Synonyms: []Synonym{{name, value, FromStatic}}, Type: typeString, ReadOnly: true})
		}
	}
	slices.SortFunc(vs, func(a, b ConfigValue) int { return strings.Compare(a.Name, b.Name) })
	return vs
}

// BrokerValue is what is in force of one of the listed broker configs on this
// gateway; others are as in BrokerConfigs. "" if it has no value, or is not listed.
func (ts *Topics) BrokerValue(name string, others map[string]string) string {
	if all := synonyms(name, ts.layers(ts.deps.Self(), ts.static(others))); len(all) > 0 && brokerByKey[name] != nil {
		return canonical(brokerByKey[name].typ, all[0].Value)
	}
	return ""
}

func brokerValue(k *brokerKey, all []Synonym) ConfigValue {
	v := ConfigValue{Name: k.name, Null: true, Source: FromDefault, Synonyms: all, Type: k.typ, ReadOnly: dynamic[k.name] == nil, Doc: k.doc}
	if len(all) > 0 {
		v.Value, v.Null, v.Source = canonical(k.typ, all[0].Value), false, all[0].Source
	}
	return v
}

// ClusterConfigs lists what was set for all brokers, by name: DescribeConfigs of
// the broker with the empty name.
func (ts *Topics) ClusterConfigs() []ConfigValue {
	cluster := ts.dynamic.Load().Cluster
	var vs []ConfigValue
	for _, name := range slices.Sorted(maps.Keys(cluster)) {
		k := brokerByKey[name]
		if k == nil { // set by a later version
			k = &brokerKey{name: name, typ: typeString}
		}
		vs = append(vs, brokerValue(k, []Synonym{{name, cluster[name], FromCluster}}))
	}
	return vs
}
