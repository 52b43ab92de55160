package partition

import (
	"context"
	"errors"
	"time"

	"github.com/hanzoai/stream/pubsub"
)

// chunkSpan is the number of intervals in one stored part of the index.
const chunkSpan = 1024

var errSnapshotLost = errors.New("snapshot cannot be read")

type snapshots struct{}

func (s *snapshots) unload()                                                 {}
func (s *snapshots) applied(d *meta)                                         {}
func (s *snapshots) appended(now time.Time)                                  {}
func (s *snapshots) loaded(h *head, from, to pubsub.Seq, bytes, headers int) {}
func (p *Partition) loadSnapshot(ctx context.Context, h *head) (*state, index, error) {
	return nil, index{}, errSnapshotLost
}
func (p *Partition) loadChunk(ctx context.Context, c chunkRef) ([]interval, error) {
	return nil, errSnapshotLost
}
