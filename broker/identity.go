package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/hanzoai/stream/pubsub"
)

// readMeta reads the value of kafka-meta/format.
func readMeta(table pubsub.Table, v pubsub.Value) (meta, error) {
	var m meta
	if err := json.Unmarshal(v.Data, &m); err != nil || m.ClusterID == "" {
		return m, &FormatError{
			fmt.Sprintf("%s/%s is unreadable: %q", table.Name(), metaKey, v.Data),
			"restore the bucket, or use another --prefix for a new cluster"}
	}
	if m.V > formatVersion {
		return m, &FormatError{
			fmt.Sprintf("stored format %d is newer than this build's %d", m.V, formatVersion),
			"run the version of stream that wrote it, or a later one"}
	}
	return m, nil
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
	m, err := readMeta(table, v)
	return m.ClusterID, err
}
