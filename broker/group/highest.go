package group

import (
	"context"
	"fmt"
	"strconv"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/types"
)

// Highest is the largest offset that any group ever committed for a partition
// and that is still stored, also in a transaction, 0 if there is none: the log had
// reached it.
func Highest(ctx context.Context, table pubsub.Table, id types.TopicID, tp types.TopicPartition) (types.Offset, error) {
	highest := types.Offset(0)
	pattern := "*." + pubsub.Token(tp.Topic) + "." + strconv.Itoa(int(tp.Partition))
	err := table.Scan(ctx, pubsub.WatchOptions{Patterns: []string{pattern}}, 0, func(v pubsub.Value) error {
		if v.Deleted {
			return nil
		}
		if _, val, err := parseOffset(v); err == nil && val != nil {
			for _, c := range val.commits() {
				if c.TopicID == id {
					highest = max(highest, c.Offset)
				}
			}
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("read committed offsets of %s: %w", tp, err)
	}
	return highest, nil
}
