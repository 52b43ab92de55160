package protocol

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestAPIVersions(t *testing.T) {
	t.Parallel()
	s := startServer(t, newWorld(), nil)
	p := s.dial(t)
	versions(t, &apiVersionsAPI, func(t *testing.T, v int16) {
		r := ask[*kmsg.ApiVersionsResponse](p, v, &kmsg.ApiVersionsRequest{ClientSoftwareName: "a-b.c", ClientSoftwareVersion: "1.2-rc.3"})
		if len(r.ApiKeys) != len(apis) || r.ErrorCode != 0 {
			t.Fatalf("%+v", r)
		}
		for i, k := range r.ApiKeys {
			if a := apis[i]; k.ApiKey != a.key || k.MinVersion != a.min || k.MaxVersion != a.max {
				t.Errorf("%+v, the table says %d: %d–%d", k, a.key, a.min, a.max)
			}
		}
		if v < 3 {
			return
		}
		var supported, finalized []string
		for _, f := range r.SupportedFeatures {
			supported = append(supported, fmt.Sprint(f.Name, " ", f.MinVersion, "-", f.MaxVersion))
		}
		for _, f := range r.FinalizedFeatures {
			finalized = append(finalized, fmt.Sprint(f.Name, " ", f.MinVersionLevel, "-", f.MaxVersionLevel))
		}
		want := []string{"metadata.version 7-30"}
		if v >= 4 { // below, a minimum of 0 cannot be told
			want = append(want, "transaction.version 0-2")
		}
		same(t, "supported", supported, want)
		same(t, "in force", finalized, []string{"metadata.version 30-30", "transaction.version 2-2"})
		if r.FinalizedFeaturesEpoch < 0 {
			t.Errorf("features' epoch %d", r.FinalizedFeaturesEpoch)
		}
		for _, c := range [][2]string{{"", "1"}, {"x", ""}, {"-x", "1"}, {"x", "1."}, {"a b", "1"}, {"x", "1\n"}, {"ü", "1"}, {"x_y", "1"}} {
			if r := ask[*kmsg.ApiVersionsResponse](p, v, &kmsg.ApiVersionsRequest{ClientSoftwareName: c[0], ClientSoftwareVersion: c[1]}); r.ErrorCode != kerr.InvalidRequest.Code || len(r.ApiKeys) != 0 {
				t.Errorf("%q: %+v", c, r)
			}
		}
	})
	// What the last good request said is what handlers see.
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		if c.softwareName != "a-b.c" || c.softwareVersion != "1.2-rc.3" || c.host != "127.0.0.1" || c.listener != "PLAINTEXT" {
			t.Errorf("%q %q %q %q", c.softwareName, c.softwareVersion, c.host, c.listener)
		}
	}
}

// TestC02VersionSet: what clients conclude from the list as a whole; that it lies
// within what Kafka serves is TestParityTable.
func TestC02VersionSet(t *testing.T) {
	t.Parallel()
	have := map[int16]*api{}
	for i, a := range apis {
		if have[a.key] != nil || i > 0 && apis[i-1].key >= a.key {
			t.Errorf("key %d is out of order", a.key)
		}
		have[a.key] = a
		if (a.serve == nil) == (a.submit == nil) {
			t.Errorf("key %d: exactly one of serve and submit", a.key)
		}
		if a.min < 0 || a.min > a.max {
			t.Errorf("key %d: v%d–v%d", a.key, a.min, a.max)
		}
		if req := kmsg.RequestForKey(a.key); req == nil || req.MaxVersion() < a.max {
			t.Errorf("key %d v%d: kmsg does not know it", a.key, a.max)
		}
	}
	// The highest versions of 4.3.1, of the lowest that clients in use need.
	for key, r := range map[int16][2]int16{0: {0, 13}, 1: {4, 18}, 2: {1, 11}, 3: {0, 13}, 8: {2, 10}, 9: {1, 10}, 10: {0, 6}, 11: {0, 9}, 12: {0, 4}, 13: {0, 5},
		14: {0, 5}, 15: {0, 6}, 16: {0, 5}, 18: {0, 4}, 19: {2, 7}, 20: {1, 6}, 22: {0, 5}, 32: {1, 4}, 42: {0, 2}, 60: {0, 2}} {
		if a := have[key]; a == nil || a.min != r[0] || a.max != r[1] {
			t.Errorf("key %d: %+v, want v%d–v%d", key, a, r[0], r[1])
		}
	}
	// Transactions are served whole: what Produce 12 and TxnOffsetCommit 5 promise
	// needs EndTxn 5, and the level of transaction.version.
	for key, r := range map[int16][2]int16{24: {0, 5}, 25: {0, 4}, 26: {0, 5}, 27: {1, 2}, 28: {0, 5}, 61: {0, 0}, 65: {0, 0}, 66: {0, 2}} {
		if a := have[key]; a == nil || a.min != r[0] || a.max != r[1] {
			t.Errorf("key %d: %+v, want v%d–v%d", key, a, r[0], r[1])
		}
	}
	// Ids are served everywhere or nowhere.
	for key, v := range map[int16]int16{0: 13, 1: 13, 8: 10, 9: 10} {
		if have[key].max >= v && have[3].max < 12 {
			t.Errorf("key %d offers topic ids, Metadata does not", key)
		}
	}
}
