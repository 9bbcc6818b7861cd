package grouptest

import (
	"context"
	"slices"
	"sync"

	"github.com/partigo/parti/types"
)

// Source is a partition list in memory that all workers of a group share: watchable, with a revision, and able to fail.
type Source struct {
	mu       sync.Mutex
	list     []types.Partition
	revision uint64
	fail     error
	watchers map[chan struct{}]struct{}
}

// NewSource returns a source with these partitions.
func NewSource(ps ...types.Partition) *Source {
	return &Source{list: ps, revision: 1, watchers: map[chan struct{}]struct{}{}}
}

// Set replaces the list and tells the watchers.
func (s *Source) Set(ps ...types.Partition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list, s.revision = ps, s.revision+1
	for ch := range s.watchers {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}

// Fail makes every look fail with err, until it is nil again.
func (s *Source) Fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = err
}

// ListPartitions returns a copy of the list.
func (s *Source) ListPartitions(ctx context.Context) ([]types.Partition, error) {
	snap, err := s.Snapshot(ctx)
	return snap.Partitions, err
}

// Snapshot returns a copy of the list with its revision.
func (s *Source) Snapshot(context.Context) (types.SourceSnapshot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return types.SourceSnapshot{Partitions: slices.Clone(s.list), Revision: s.revision}, s.fail
}

// Watch signals changes until ctx ends.
func (s *Source) Watch(ctx context.Context) (<-chan struct{}, error) {
	ch := make(chan struct{}, 1)
	s.mu.Lock()
	s.watchers[ch] = struct{}{}
	s.mu.Unlock()
	context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.watchers, ch)
		close(ch)
	})
	return ch, nil
}
