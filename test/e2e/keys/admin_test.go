package keys

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/hanzoai/stream/test/e2e/broker"
	"github.com/hanzoai/stream/test/e2e/tools"
)

// TestJavaAdmin: every method of the Java admin client gives what it gives on
// Apache Kafka, but for what adminDifferences lists.
func TestJavaAdmin(t *testing.T) {
	broker.Each(t, []string{broker.Embedded}, func(t *testing.T, b *broker.Broker) {
		res := tools.KafkaSource(t, "Admin.java", b.Addr).Must(t)
		var got []note
		for line := range strings.Lines(res.Stdout) {
			if name, answer, ok := strings.Cut(strings.TrimSpace(line), ": "); ok {
				got = append(got, note{name, answer})
			}
		}
		path := filepath.Join("testdata", "admin.txt")
		if recording {
			write(t, path, got)
			return
		}
		compare(t, b.Kind, got, read(t, path), adminDifferences)
	})
}

// adminDifferences are what is not served yet, or never, and what a cluster
// without replicas of its own says otherwise.
var adminDifferences = map[string]difference{
	"alterReplicaLogDirs":    {"{admin-a-0-1=UnsupportedVersionException}", never},
	"describeMetadataQuorum": {unsupported, never},
	"updateFeatures":         {unsupported, never},
	"unregisterBroker":       {unsupported, never},

	"describeConfigs, min.insync.replicas": {"[min.insync.replicas=1 DEFAULT_CONFIG INT]", "Kafka sets it for the cluster when eligible.leader.replicas.version is 1 (KIP-966)"},

	"describeFeatures, supported": {"{metadata.version=SupportedVersionRange[min_version:7, max_version:30], transaction.version=SupportedVersionRange[min_version:0, max_version:2]}", "docs/parity.md: features"},
	"describeFeatures, in force":  {"{metadata.version=FinalizedVersionRange[min_version_level:30, max_version_level:30], transaction.version=FinalizedVersionRange[min_version_level:2, max_version_level:2]}", "docs/parity.md: features"},

	"describeAcls": {unsupported, notYet}, "createAcls": {unsupported, notYet}, "deleteAcls": {unsupported, notYet},
	"describeClientQuotas": {unsupported, notYet}, "alterClientQuotas": {unsupported, notYet},
	"describeUserScramCredentials": {unsupported, notYet}, "alterUserScramCredentials": {unsupported, notYet},
	"createDelegationToken": {unsupported, notYet}, "renewDelegationToken": {unsupported, notYet},
	"expireDelegationToken": {unsupported, notYet}, "describeDelegationToken": {unsupported, notYet},
	"describeShareGroups": {"{admin-s=UnsupportedVersionException}", notYet}, "listShareGroupOffsets": {unsupported, notYet},
	"alterShareGroupOffsets": {unsupported, notYet}, "deleteShareGroupOffsets": {unsupported, notYet},
	"deleteShareGroups":     {"{admin-s=GroupIdNotFoundException}", notYet + ": no call before could make the group"},
	"describeStreamsGroups": {"{admin-t=UnsupportedVersionException}", notYet},
}

const (
	unsupported = "UnsupportedVersionException"
	never       = "docs/parity.md: never"
	notYet      = "docs/parity.md: not yet"
)
