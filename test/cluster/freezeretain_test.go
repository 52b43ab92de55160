package cluster

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/test/testkit"
	"github.com/hanzoai/stream/types"
)

// TestFrozenRetention: the holder of the maintenance lease freezes while it lets go
// of records. The topic is made again meanwhile, and keeps all it has; or an
// operator has its records kept, and they are. A pass of retention comes every 15 s.
func TestFrozenRetention(t *testing.T) {
	t.Parallel()
	for _, r := range []struct {
		name, point string
		ci          bool // as topicFreeze's
		remade      bool
		// claimed: the record has the term of the holder then, and waits for the next
		// one's.
		claimed bool
	}{
		{"the term, records are kept after all", kv + "partitions.%i.0", false, false, false},
		{"the log start, records are kept after all", kv + "partitions.%i.0:2", false, false, true},
		{"the log start, topic made again", kv + "partitions.%i.0:2", false, true, true},
		{"the purge, topic made again", api + "PURGE.kafka-%s-0", true, true, true},
	} {
		if !r.ci && !allFreezes {
			continue
		}
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			const topic = "retained"
			z := newFreezing(t, shape{gateways: 2, mode: shared})
			z.peers[0].create(topic, 1)
			id, _, err := z.peers[0].metadata(topic)
			if err != nil {
				t.Fatal(err)
			}
			var old []string
			for n := range 10 {
				old = append(old, fmt.Sprint("old ", n))
				z.peers[0].produce(topic, 0, batch{producer: -1, values: old[n:]})
			}
			key := types.TopicID(id).String() + ".0"
			record := func() (snapshot bool, term uint64, err error) {
				all, err := z.bucket("kafka-partitions")
				if err != nil {
					return false, 0, err
				}
				var r struct {
					Snapshot json.RawMessage `json:"snapshot"`
					Term     uint64          `json:"term"`
				}
				err = json.Unmarshal([]byte(all[key]), &r)
				return r.Snapshot != nil, r.Term, err
			}
			// The holder has none to write then, and its second write is the log start.
			testkit.Poll(t, time.Minute, "a snapshot", func() error {
				there, _, err := record()
				if err == nil && !there {
					err = fmt.Errorf("none")
				}
				return err
			})
			holder, other := z.holder()
			point := strings.NewReplacer("%s", topic, "%i", types.TopicID(id).String()).Replace(r.point)
			z.arm(holder, point)
			retain := func(bytes string) {
				if err := code(must[*kmsg.IncrementalAlterConfigsResponse](z.peers[other], alterRequest(topic, "retention.bytes", bytes)).Resources[0].ErrorCode); err != nil {
					t.Fatalf("retention.bytes=%s: %v", bytes, err)
				}
			}
			retain("1")
			subject := z.froze(holder, point)
			z.heldDead()
			_, before, err := record()
			if err != nil || (before > 0) != r.claimed {
				t.Errorf("the record has term %d: %v", before, err)
			}
			want := []string{"new 0", "new 1"}
			if r.remade {
				z.remake(z.peers[other], topic, 1, want...)
			} else {
				want = old
				retain("-1")
			}
			if r.claimed && !r.remade {
				testkit.Poll(t, time.Minute, "the next holder has made a pass", func() error {
					_, now, err := record()
					if err == nil && now == before {
						err = fmt.Errorf("term %d as before", now)
					}
					return err
				})
			}
			z.wake(holder, subject)
			z.again(holder)
			z.wantStreams(topic, 1)
			z.holds(topic, want...)
			z.explained()
			z.holds(topic, want...)
		})
	}
}
