package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/hanzoai/stream/broker/cluster"
	"github.com/hanzoai/stream/logging"
	"github.com/hanzoai/stream/pubsub"
)

// The format in force is a number in kafka-meta/format: the newest version of
// stored values that may be written. Gateways say in their keys which versions
// they know, and the holder of the maintenance lease raises the number when all
// that live know a newer one, in three steps:
//
//   - It announces the version (next), by compare-and-set.
//   - It reads the keys of all gateways from the store's leader. If one that lives
//     does not know the version, it takes the announcement back.
//   - It puts the version in force, by compare-and-set on its announcement.
//
// A gateway that joins writes its key first and reads the number after that: it
// is either seen in the second step, or sees the announcement and does not start.
// One that was frozen meanwhile reads it again when it begins a new life, and
// ends.

// Format is the version of stored values that may be written now.
func (b *Broker) Format() int { return int(b.format.Load()) }

// admitted checks, once we are a member, that what is in force and what is
// announced is known to this build.
func (b *Broker) admitted(ctx context.Context) error {
	v, err := b.metaTable.Get(ctx, metaKey)
	if err != nil {
		return fmt.Errorf("read %s/%s: %w", b.metaTable.Name(), metaKey, err)
	}
	m, err := readMeta(b.metaTable, v, b.cfg.Cluster.Formats)
	if err == nil && m.Next != 0 {
		err = knows(b.cfg.Cluster.Formats, m.Next)
	}
	if err == nil {
		b.format.Store(int64(m.V))
	}
	return err
}

// knows refuses a format outside of a range.
func knows(f cluster.Formats, v int) error {
	switch {
	case v > f.Newest:
		return &FormatError{
			fmt.Sprintf("stored format %d is newer than this build's %d", v, f.Newest),
			"run the version of stream that wrote it, or a later one"}
	case v < f.Oldest:
		return &FormatError{
			fmt.Sprintf("stored format %d is older than this build's oldest, %d", v, f.Oldest),
			"run a version of stream in between first: it raises the format when all gateways run it"}
	}
	return nil
}

// guardFormat follows the format in force, and raises it when it is due and this
// gateway maintains. It returns a *FormatError when the format, or another life,
// leaves this build behind.
func (b *Broker) guardFormat(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	values := make(chan pubsub.Value, 1)
	watch := make(chan error, 1)
	go func() {
		watch <- b.metaTable.Watch(ctx, pubsub.WatchOptions{Patterns: []string{metaKey}}, func(v pubsub.Value) error {
			select {
			case values <- v:
			case <-ctx.Done():
			}
			return nil
		})
	}()
	defer func() { <-watch }()
	defer cancel()
	life := b.cluster.Self().Incarnation
	var since time.Time // all that live know a newer format
	for {
		changed, moved := b.cluster.Changed(), b.lease.Changed()
		if now := b.cluster.Self().Incarnation; now != life {
			err := b.admitted(ctx)
			if format := (*FormatError)(nil); errors.As(err, &format) {
				return err
			} else if err == nil {
				life = now
			}
		}
		var again <-chan time.Time
		switch target, behind := b.newer(); {
		case life != b.cluster.Self().Incarnation:
			again = time.After(time.Second) // it is not certain that we may live
		case !b.maintains(), target <= b.Format() && !behind:
			since = time.Time{}
		case behind: // an announcement that somebody cannot follow
			if err := b.raise(ctx, b.Format()); err != nil && ctx.Err() == nil {
				b.logger.Warn("the announcement of a format was not taken back; it is repeated", logging.Error, err)
				again = time.After(time.Second)
			}
		default:
			if since.IsZero() {
				since = time.Now()
			}
			if wait := b.hold() - time.Since(since); wait > 0 {
				again = time.After(wait)
				break
			}
			if err := b.raise(ctx, target); err != nil && ctx.Err() == nil {
				b.logger.Warn("the stored format was not raised; it is tried again", "format", target, logging.Error, err)
				again = time.After(time.Second)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case err := <-watch:
			watch <- nil
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("watch %s: %w", b.metaTable.Name(), err)
		case v := <-values:
			m, err := readMeta(b.metaTable, v, b.cfg.Cluster.Formats)
			if err != nil {
				return err
			}
			if old := b.format.Swap(int64(m.V)); int(old) != m.V {
				b.logger.Info("stored format is in force", "format", m.V, "was", old)
			}
			b.announced.Store(int64(m.Next))
		case <-changed:
		case <-moved:
		case <-again:
		}
	}
}

func (b *Broker) hold() time.Duration {
	if b.cfg.FormatHold > 0 {
		return b.cfg.FormatHold
	}
	return formatHold
}

// newer is the newest format that all who live know, as far as this gateway sees;
// behind says that it is older than the one announced.
func (b *Broker) newer() (target int, behind bool) {
	target = oldest(b.cluster.Peers(), b.cfg.Cluster.Formats.Newest)
	next := int(b.announced.Load())
	return target, next != 0 && target < next
}

// oldest is the newest format that all of the peers know, at most limit.
func oldest(peers []cluster.Peer, limit int) int {
	for _, p := range peers {
		limit = min(limit, p.Formats.Newest)
	}
	return limit
}

// raise puts a format in force, or with the present one takes an announcement
// back.
func (b *Broker) raise(ctx context.Context, target int) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	v, err := b.metaTable.Get(ctx, metaKey)
	if err != nil {
		return fmt.Errorf("read %s/%s: %w", b.metaTable.Name(), metaKey, err)
	}
	m, err := readMeta(b.metaTable, v, b.cfg.Cluster.Formats)
	if err != nil {
		return err
	}
	put := func() error {
		data, err := m.encode()
		if err != nil {
			return err
		}
		if v.Rev, err = pubsub.Put(ctx, b.metaTable, pubsub.Write{Key: metaKey, Data: data, Expect: v.Rev}); err != nil {
			return fmt.Errorf("write %s/%s: %w", b.metaTable.Name(), metaKey, err)
		}
		return nil
	}
	if target <= m.V {
		if m.Next == 0 {
			return nil
		}
		m.Next = 0
		return put()
	}
	if m.Next != target {
		m.Next = target
		if err := put(); err != nil {
			return err
		}
	}
	living, err := b.cluster.Living(ctx)
	if err != nil {
		return err
	}
	m.Next = 0
	if oldest(living, target) == target {
		m.V = target
		b.logger.Info("raising the stored format: all gateways know it", "format", target, "gateways", len(living))
	}
	return put()
}

func (m meta) encode() ([]byte, error) {
	data, err := json.Marshal(m)
	if err != nil || len(m.rest) == 0 {
		return data, err
	}
	all := map[string]json.RawMessage{}
	for k, v := range m.rest {
		all[k] = v
	}
	if err := json.Unmarshal(data, &all); err != nil {
		return nil, err
	}
	return json.Marshal(all)
}
