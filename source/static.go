package source

import (
	"context"
	"fmt"

	"github.com/partigo/parti/types"
)

var _ types.PartitionSource = (*StaticSource)(nil)

// StaticSource is a list that never changes; see [Static].
type StaticSource struct {
	partitions []types.Partition
	fault      error
}

// Static returns a source of exactly these partitions. A faulty list is reported by Validate, and by every
// ListPartitions.
func Static(partitions ...types.Partition) *StaticSource {
	return &StaticSource{partitions: clone(partitions), fault: validate(partitions)}
}

// Validate reports all that is wrong with the list, and types.ErrNoPartitions where it is empty: a list that never changes will
// never have any.
func (s *StaticSource) Validate() error {
	if s.fault == nil && len(s.partitions) == 0 {
		return fmt.Errorf("%w: source.Static was given none: list them, or use source.NewKV for a list that may grow", types.ErrNoPartitions)
	}
	return s.fault
}

// ListPartitions returns a copy of the list.
func (s *StaticSource) ListPartitions(context.Context) ([]types.Partition, error) {
	if s.fault != nil {
		return nil, s.fault
	}
	return clone(s.partitions), nil
}

func validate(ps []types.Partition) error {
	if err := types.ValidatePartitions(ps); err != nil {
		return fmt.Errorf("source: %w", err)
	}
	return nil
}

// clone returns a copy that shares no memory with ps. All keys lie in one block: half a million partitions cost two
// allocations.
func clone(ps []types.Partition) []types.Partition {
	n := 0
	for i := range ps {
		n += len(ps[i].Keys)
	}
	keys := make([]string, 0, n)
	out := make([]types.Partition, len(ps))
	for i, p := range ps {
		start := len(keys)
		keys = append(keys, p.Keys...)
		p.Keys = keys[start:len(keys):len(keys)]
		out[i] = p
	}
	return out
}
