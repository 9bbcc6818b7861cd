package assignment

import (
	"fmt"

	"github.com/partigo/parti/assignment/plan"
	"github.com/partigo/parti/types"
)

// CheckCoverage reports whether state places each partition of source exactly once: given to one worker or parked, and nothing
// else beside. Retired entries, which left the source and only remember who may still run them, are not placed; they
// must not be in the source. The error wraps types.ErrCoverageMismatch and names the first offender of each kind.
func CheckCoverage(state *plan.State, source []types.Partition) error {
	const (
		missing = iota // in the source, not placed
		placed
	)
	seen := make(map[string]int8, len(source))
	for i := range source {
		id := source[i].ID()
		if _, twice := seen[id]; twice {
			return fmt.Errorf("%w: the source lists %q twice", types.ErrCoverageMismatch, id)
		}
		seen[id] = missing
	}
	left := len(source)
	place := func(id, where string) error {
		switch was, ok := seen[id]; {
		case !ok:
			return fmt.Errorf("%w: %q is %s but not in the source", types.ErrCoverageMismatch, id, where)
		case was == placed:
			return fmt.Errorf("%w: %q is %s and somewhere else too", types.ErrCoverageMismatch, id, where)
		}
		seen[id] = placed
		left--
		return nil
	}
	for i := range state.Slices {
		s := &state.Slices[i]
		for j := range s.Entries {
			if err := place(s.Entries[j].ID(), "given to "+s.Worker); err != nil {
				return err
			}
		}
	}
	for i := range state.Parked {
		e := &state.Parked[i]
		id := e.ID()
		if !e.Retired {
			if err := place(id, "parked"); err != nil {
				return err
			}
		} else if _, ok := seen[id]; ok {
			return fmt.Errorf("%w: %q is retired but in the source", types.ErrCoverageMismatch, id)
		}
	}
	if left > 0 {
		for i := range source {
			if id := source[i].ID(); seen[id] == missing {
				return fmt.Errorf("%w: %d of %d partitions are not placed, the first is %q", types.ErrCoverageMismatch, left, len(source), id)
			}
		}
	}
	return nil
}
