package group

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
)

// remove begins the end of a group without members: the record says so first,
// then its keys go, then the record. Whoever finds a record that says so
// finishes, so that no crash leaves offsets for a later group of the name.
func (s *State) removeGroup() error {
	switch {
	case !s.exists:
		return kerr.GroupIDNotFound
	case s.phase != Empty:
		return kerr.NonEmptyGroup
	}
	s.deleting, s.dirty = true, true
	clear(s.pending)
	return nil
}

// Delete deletes a group without members, and its offsets.
func (co *Coordinator) Delete(ctx context.Context, name string) error {
	var out error
	err := co.do(ctx, name, func(t *turn) {
		if out = t.State.removeGroup(); out == nil {
			t.Remove()
		}
	})
	if err != nil {
		return err
	}
	return out
}
