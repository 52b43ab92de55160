package partition

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/types"
)

// A partition that is destroyed may still be written to by a gateway that does not
// know of it yet, or was frozen: siblings, and keys below its record, which name no
// revision that could conflict. That it was destroyed is told by the marker in the
// place of its record: topic ids are never used again, so whatever is found of it
// can go. Whoever wrote finds out when it writes the record, and removes it; if it
// does not come so far, the holder of the maintenance lease does.

// destroyed reports whether a partition was: false if it lives, or nothing is known
// of it.
func (h *Host) destroyed(ctx context.Context, key string) (bool, error) {
	v, err := h.records.Get(ctx, key)
	switch {
	case err == nil:
		return false, nil
	case errors.Is(err, pubsub.ErrNotFound):
		return v.Rev > 0, nil
	}
	return false, fmt.Errorf("read record %s: %w", key, err)
}

// tidyDestroyed removes what this gateway has written after the partition was
// destroyed. It reports whether it was; what fails is left to the sweep.
func (p *Partition) tidyDestroyed() bool {
	h := p.host
	ctx, cancel := context.WithTimeout(h.ctx, openTimeout)
	defer cancel()
	gone, err := h.destroyed(ctx, p.key)
	if err != nil || !gone {
		return false
	}
	logs, _, err := h.store.Logs(ctx, siblingSubjects(p.log.Name()))
	for _, l := range logs {
		if l.Metadata[siblingKey] == p.key && err == nil {
			err = h.deleteSibling(ctx, p.key, l.Name)
		}
	}
	if err = errors.Join(err, h.deleteKeys(ctx, []string{p.key + ".>"}, nil)); err != nil && h.ctx.Err() == nil {
		h.warn(p, "what was written of a partition that is gone may be left; a sweep removes it", err)
	}
	return true
}

// SweepDestroyed removes what was written of partitions after they were destroyed:
// siblings, on subjects that filter matches, and keys. Only the holder of the
// maintenance lease does it.
func (h *Host) SweepDestroyed(ctx context.Context, filter string) error {
	t := h.tenure()
	if err := t.check(0); err != nil {
		return err
	}
	return errors.Join(h.sweepDestroyedLogs(ctx, t, filter), h.sweepDestroyedKeys(ctx, t))
}

// ifDestroyed calls fn if the partition of a record is destroyed and the lease still
// held.
func (h *Host) ifDestroyed(ctx context.Context, t tenure, key string, fn func() error) error {
	gone, err := h.destroyed(ctx, key)
	if err != nil || !gone {
		return err
	}
	if err := t.check(0); err != nil {
		return err
	}
	return fn()
}

func (h *Host) sweepDestroyedLogs(ctx context.Context, t tenure, filter string) error {
	logs, _, err := h.store.Logs(ctx, filter)
	if err != nil {
		return fmt.Errorf("list siblings: %w", err)
	}
	for _, l := range logs {
		key := l.Metadata[siblingKey]
		if key == "" || !strings.Contains(l.Name, siblingMark) {
			continue
		}
		if err := h.ifDestroyed(ctx, t, key, func() error { return h.deleteSibling(ctx, key, l.Name) }); err != nil {
			return err
		}
	}
	return nil
}

func (h *Host) sweepDestroyedKeys(ctx context.Context, t tenure) error {
	over := map[string]bool{} // markers of records
	left := map[string]bool{} // records with something below them
	err := h.records.Scan(ctx, pubsub.WatchOptions{HeadersOnly: true}, 0, func(v pubsub.Value) error {
		f := strings.SplitN(v.Key, ".", 3)
		if len(f) < 2 {
			return nil
		}
		if _, err := types.ParseTopicID(f[0]); err != nil {
			return nil // none of ours
		}
		switch key := f[0] + "." + f[1]; {
		case len(f) == 2 && v.Deleted:
			over[key] = true
		case len(f) == 3 && !v.Deleted:
			left[key] = true
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("list the keys of partitions: %w", err)
	}
	for key := range left {
		if !over[key] {
			continue
		}
		if err := h.ifDestroyed(ctx, t, key, func() error { return h.deleteKeys(ctx, []string{key + ".>"}, nil) }); err != nil {
			return err
		}
	}
	return nil
}
