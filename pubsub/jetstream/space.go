package jetstream

import (
	"context"
	"fmt"

	"github.com/hanzoai/stream/pubsub"
)

// accountInfo is what $JS.API.INFO says of our account. Limits below 1 are none,
// or belong to tiers of replicas and are told elsewhere.
type accountInfo struct {
	answer
	Memory  int64 `json:"memory"`
	Storage int64 `json:"storage"`
	Streams int64 `json:"streams"`
	Limits  struct {
		MaxMemory  int64 `json:"max_memory"`
		MaxStorage int64 `json:"max_storage"`
		MaxStreams int64 `json:"max_streams"`
	} `json:"limits"`
	API struct {
		Level int `json:"level"`
	} `json:"api"`
}

// Space implements pubsub.Store: for files of an embedded server the disk, else
// the limit of our account.
func (st *Store) Space(ctx context.Context, memory bool) (pubsub.Space, error) {
	if st.cfg.Disk != nil && !memory {
		dir, total, free, err := st.cfg.Disk()
		if err != nil {
			return pubsub.Space{}, fmt.Errorf("ask for the space on the disk: %w", err)
		}
		return pubsub.Space{Dir: dir, Total: total, Free: free}, nil
	}
	var info accountInfo
	if err := st.ask(ctx, st.cfg.APITimeout, "INFO", nil, &info); err != nil {
		return pubsub.Space{}, fmt.Errorf("ask for the account's limits: %w", readError(err))
	}
	used, limit := info.Storage, info.Limits.MaxStorage
	if memory {
		used, limit = info.Memory, info.Limits.MaxMemory
	}
	if limit <= 0 {
		return pubsub.Space{Total: -1, Free: -1}, nil
	}
	return pubsub.Space{Total: limit, Free: max(limit-used, 0)}, nil
}
