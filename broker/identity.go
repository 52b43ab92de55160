package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/hanzoai/stream/broker/cluster"
	"github.com/hanzoai/stream/pubsub"
)

// readMeta reads the value of kafka-meta/format. A *FormatError: it is none that
// can be served.
func readMeta(table pubsub.Table, v pubsub.Value, known cluster.Formats) (meta, error) {
	var m meta
	if err := json.Unmarshal(v.Data, &m); err != nil || m.ClusterID == "" {
		return m, &FormatError{
			fmt.Sprintf("%s/%s is unreadable: %q", table.Name(), metaKey, v.Data),
			"restore the bucket, or use another --prefix for a new cluster"}
	}
	if err := json.Unmarshal(v.Data, &m.rest); err != nil {
		return m, fmt.Errorf("%s/%s: %w", table.Name(), metaKey, err)
	}
	for _, f := range []string{"v", "cluster_id", "next"} {
		delete(m.rest, f)
	}
	return m, knows(known, m.V)
}

// ClusterID reads the identity of what is stored; "" if there is none. It makes
// nothing, unlike Start. A *FormatError means that it cannot be served.
func ClusterID(ctx context.Context, table pubsub.Table) (string, error) {
	v, err := table.Get(ctx, metaKey)
	if errors.Is(err, pubsub.ErrNotFound) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read %s/%s: %w", table.Name(), metaKey, err)
	}
	m, err := readMeta(table, v, builtFormats)
	return m.ClusterID, err
}
