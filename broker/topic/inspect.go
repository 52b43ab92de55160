package topic

import (
	"context"
	"fmt"
	"slices"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/types"
)

// Inspection compares records with streams.
type Inspection struct {
	Topics []*Topic
	// Unreadable explains, by key, records that cannot be read.
	Unreadable map[string]string
	// Streams are those that exist under the prefix, by name.
	Streams map[string]pubsub.LogInfo
	// Silent are streams that exist and did not answer.
	Silent []string
	// Unexplained are streams that no record explains; Ended are left over from
	// topics that are gone: gateways remove them.
	Unexplained, Ended []string
	// Known are the ids of all records that can be read, of topics that are being
	// made or deleted as well.
	Known map[types.TopicID]bool
}

// Inspect reads everything and changes nothing. It needs no Run; of Deps only
// Table, Store, Cluster and Incarnation.
func (ts *Topics) Inspect(ctx context.Context) (*Inspection, error) {
	if err := ts.askAll(ctx); err != nil {
		return nil, fmt.Errorf("list topics: %w", err)
	}
	logs, silent, err := ts.deps.Store.Logs(ctx, ts.config.Prefix+".>")
	if err != nil {
		return nil, fmt.Errorf("list streams: %w", err)
	}
	in := &Inspection{Topics: ts.Known(), Silent: silent, Streams: make(map[string]pubsub.LogInfo, len(logs)), Unreadable: map[string]string{}, Known: map[types.TopicID]bool{}}
	ts.mu.RLock()
	defer ts.mu.RUnlock()
	for key, e := range ts.entries {
		if e.err != nil {
			in.Unreadable[key] = e.err.Error()
		}
		if e.record != nil {
			in.Known[e.record.ID] = true
		}
	}
	for _, l := range logs {
		in.Streams[l.Name] = l
		i, ok := identify(ts.deps.Cluster, l.LogConfig)
		if !ok {
			in.Unexplained = append(in.Unexplained, l.Name)
			continue
		}
		e := ts.entries[pubsub.Token(i.topic)]
		if e == nil {
			e = &entry{}
		}
		switch {
		case e.err != nil || e.record != nil && e.record.number() == i.n && i.partition < int32(e.count()):
		case ended(i.n, e.record, e.rev):
			in.Ended = append(in.Ended, l.Name)
		default:
			in.Unexplained = append(in.Unexplained, l.Name)
		}
	}
	slices.Sort(in.Unexplained)
	slices.Sort(in.Ended)
	return in, nil
}
