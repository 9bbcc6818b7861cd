package source

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/partigo/parti/internal/backoff"
	"github.com/partigo/parti/kv"
)

// putChunk stores a chunk. One that is there already is stored again, so that a sweep of an earlier list leaves it.
func (s *KVSource) putChunk(ctx context.Context, hash string, value []byte) error {
	store, err := s.open(ctx)
	if err != nil {
		return err
	}
	for wait := firstPause; ; wait = min(2*wait, maxPause) {
		e, err := store.Get(ctx, s.chunkKey(hash))
		if err == nil || errors.Is(err, kv.ErrNotFound) {
			_, err = s.put(ctx, store, s.chunkKey(hash), value, e.Revision)
		}
		if err == nil {
			return nil
		}
		if !kv.IsConflict(err) && !kv.IsUnknown(err) { // both leave the same bytes, or nothing, and are tried again
			return fmt.Errorf("source: write a chunk of %s/%s: %w", s.bucket, s.key, err)
		}
		if perr := backoff.Sleep(ctx, wait); perr != nil {
			return fmt.Errorf("source: write a chunk of %s/%s: %w", s.bucket, s.key, errors.Join(perr, err))
		}
	}
}

// sweep removes what keep does not name of the chunks that are older than the list at revision of the key, which just landed.
//
// Revisions are one order over all keys of the bucket. Who stores a list has read the one before it, then stored the chunks, then the
// list over the one that it had read. So a chunk that is older than the latest list, and is not named by it, can be
// named only by a list that will be refused. Each goes at the revision at which it was seen.
func (s *KVSource) sweep(ctx context.Context, keep []string, revision uint64) error {
	store, err := s.open(ctx)
	if err != nil {
		return err
	}
	all, err := store.ListKeys(ctx, s.chunkKey("*"))
	if err != nil {
		return err
	}
	var errs []error
	for key, e := range all {
		if e.Revision < revision && !slices.Contains(keep, strings.TrimPrefix(key, s.chunkKey(""))) {
			errs = append(errs, store.Forget(ctx, key, e.Revision))
		}
	}
	return errors.Join(errs...)
}
