package topic

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write docs/topic-configs.md")

const docsFile = "../../docs/topic-configs.md"

// TestDocs compares docs/topic-configs.md with the tables in keys.go and
// broker_keys.go.
func TestDocs(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString(`# Topic configs

Every topic config of Apache Kafka 4.3, and what becomes of it here. This page is
written from the code: go test ./broker/topic -run TestDocs -rewrite.

- **obeyed**: what happens is what Kafka documents for the value.
- **accepted, means nothing here**: checked, kept and shown as in Kafka, without
  effect, because it steers what does not exist here: files of a broker, its
  replication.
- **refused**: only the default is taken.

A change (kafka-configs, kafka-topics, IncrementalAlterConfigs, AlterConfigs) is in
force on the gateway that answered at once and on every other within a second, open
partitions included. Deleting a config brings the inherited value back. Values are
checked as Kafka checks them, and two limits are added: max.message.bytes cannot be
more than the store takes in one message (max_payload of the NATS server less 4 KiB),
and min.insync.replicas cannot be more than a majority of the topic's replicas unless
it is more than all of them (which then means all of them, as in Kafka: one or two
replicas take writes, three and more refuse them with NOT_ENOUGH_REPLICAS).

cleanup.policy can change at any time. compact keeps the last record of each key, with its
offset; a record without value (a tombstone) removes its key and goes itself
delete.retention.ms later. compact,delete does both, an empty policy keeps everything. One
gateway compacts, one partition at a time, the dirtiest first; the newest stored message of
a partition and what transactions may still abort are left alone. Nothing is compacted while
a gateway is running whose version does not know compacted topics. Now, whatever the ratio:
stream topic compact NAME --wait.

| Config | Default | Here | Inherits from | |
|---|---|---|---|---|
`)
	for _, k := range keys {
		var from []string
		for _, o := range k.from {
			from = append(from, o.name)
		}
		def := k.def
		if def == "" {
			def = "(empty)"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", k.name, def, k.use, strings.Join(from, ", "), k.doc)
	}
	b.WriteString(`
## Broker configs that can be changed while gateways run

For all brokers (--entity-default) or for the one that clients see (--entity-name 1),
whose values stand above. They are kept in the bucket kafka-meta, key configs, and all
gateways obey them. Below them stand the defaults of the configuration (topic.defaults
in config.md). Everything else is a setting of the process and read-only.

| Config | Default | |
|---|---|---|
`)
	for _, k := range brokerKeys {
		if dynamic[k.name] == nil {
			continue
		}
		def := k.def
		if def == unset {
			def = "(unset)"
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", k.name, def, k.doc)
	}
	b.WriteString(`
## Configs of groups and client metrics

What Kafka 4.3 lets be set on groups of the consumer, share and streams protocols, and
on subscriptions of client metrics, is checked as Kafka checks it, kept and shown
(kafka-configs --entity-type groups, --entity-type client-metrics, kafka-client-metrics).
It means nothing here: there are no groups of those protocols, and clients are not asked
for metrics. Groups: `)
	for i, k := range groupKeys {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(k.name)
	}
	b.WriteString(". Subscriptions: interval.ms, match, metrics. Together with what is set of brokers they may\ntake 256 kB.\n")
	if *rewrite {
		if err := os.WriteFile(docsFile, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(docsFile)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != b.String() {
		t.Error("docs/topic-configs.md is not what the code says; write it again with -rewrite")
	}
}

// TestKeysMeanSomething: the list of what is obeyed is written down here too, so
// that a change of keys.go is thought about.
func TestKeysMeanSomething(t *testing.T) {
	t.Parallel()
	var got []string
	for _, k := range keys {
		if k.use == obeyed {
			got = append(got, k.name)
		}
		for _, o := range k.from {
			if brokerByKey[o.name] == nil {
				t.Errorf("%s inherits from %s, which is not shown", k.name, o.name)
			}
		}
	}
	want := []string{
		"cleanup.policy", "compression.gzip.level", "compression.lz4.level", "compression.type", "compression.zstd.level", "delete.retention.ms", "max.compaction.lag.ms",
		"max.message.bytes", "message.timestamp.after.max.ms", "message.timestamp.before.max.ms", "message.timestamp.type", "min.cleanable.dirty.ratio", "min.compaction.lag.ms", "min.insync.replicas", "retention.bytes", "retention.ms",
	}
	if !slices.Equal(got, want) {
		t.Errorf("obeyed are %q, want %q", got, want)
	}
}
