package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hanzoai/stream/broker/cluster"
	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/types"
)

const metaKey = "format"

// meta is the value of kafka-meta/format.
type meta struct {
	V         int    `json:"v"` // the format in force, see format.go
	ClusterID string `json:"cluster_id"`
	Next      int    `json:"next,omitempty"` // a newer one that is announced

	rest map[string]json.RawMessage // fields of later versions, carried through
}

// FormatError says that what is stored under the prefix cannot be served.
type FormatError struct{ Reason, Hint string }

func (e *FormatError) Error() string { return e.Reason }

// openMeta reads the cluster's identity, or makes one in an empty store.
func openMeta(ctx context.Context, store pubsub.Store, table pubsub.Table, prefix string, known cluster.Formats) (meta, error) {
	for denied := false; ; {
		v, err := table.Get(ctx, metaKey)
		if err == nil {
			return readMeta(table, v, known)
		}
		if !errors.Is(err, pubsub.ErrNotFound) {
			return meta{}, fmt.Errorf("read %s/%s: %w", table.Name(), metaKey, err)
		}
		// No identity: only an empty store may get a new one. Streams without
		// it are somebody's data, and a new cluster id would disown them.
		logs, missing, err := store.Logs(ctx, prefix+".>")
		if err != nil {
			return meta{}, fmt.Errorf("list streams: %w", err)
		}
		if v.Rev != 0 || len(logs)+len(missing) > 0 {
			if !denied {
				// A leader that woke from a freeze denies what is there, for a
				// moment.
				denied = true
				select {
				case <-ctx.Done():
					return meta{}, ctx.Err()
				case <-time.After(time.Second):
				}
				continue
			}
			names := missing
			for _, l := range logs {
				names = append(names, l.Name)
			}
			return meta{}, &FormatError{
				fmt.Sprintf("there are %d streams under %s.> (%s) but no %s/%s", len(names), prefix, abbreviate(names), table.Name(), metaKey),
				"restore the bucket " + table.Name() + ", delete those streams, or use another --prefix"}
		}
		m := meta{V: known.Newest, ClusterID: types.NewTopicID().String()}
		data, err := json.Marshal(m)
		if err != nil {
			return m, err
		}
		_, err = pubsub.Put(ctx, table, pubsub.Write{Key: metaKey, Data: data})
		if errors.Is(err, pubsub.ErrConflict) {
			continue // another gateway was first
		}
		if err != nil {
			return m, fmt.Errorf("write %s/%s: %w", table.Name(), metaKey, err)
		}
		return m, nil
	}
}

func abbreviate(names []string) string {
	if len(names) > 3 {
		names = append(names[:3:3], "…")
	}
	return strings.Join(names, ", ")
}
