package source

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/partigo/parti/internal/backoff"
	"github.com/partigo/parti/kv"
	"github.com/partigo/parti/types"
)

const (
	firstPause = 5 * time.Millisecond
	maxPause   = 500 * time.Millisecond
	// tryTimeout bounds one write, so that one whose answer was lost is looked into while ctx still has time.
	tryTimeout = 2 * time.Second
)

// errRetry: somebody else wrote first, or may have; start over.
var errRetry = errors.New("source: list changed meanwhile")

// Add adds partitions; one that is there already gets the given weight and label.
func (s *KVSource) Add(ctx context.Context, ps ...types.Partition) error {
	if err := validate(ps); err != nil {
		return err
	}
	return s.Modify(ctx, func(have []types.Partition) ([]types.Partition, error) {
		at := make(map[string]int, len(have))
		for i, p := range have {
			at[p.ID()] = i
		}
		for _, p := range ps {
			if i, ok := at[p.ID()]; ok {
				have[i] = p
			} else {
				have = append(have, p)
			}
		}
		return have, nil
	})
}

// Remove removes partitions by identity; one that is not there is no error.
func (s *KVSource) Remove(ctx context.Context, ps ...types.Partition) error {
	gone := make(map[string]bool, len(ps))
	for _, p := range ps {
		gone[p.ID()] = true
	}
	return s.Modify(ctx, func(have []types.Partition) ([]types.Partition, error) {
		return slices.DeleteFunc(have, func(p types.Partition) bool { return gone[p.ID()] }), nil
	})
}

// Set replaces the list, whatever is stored, also what is no list at all. Only a list of a newer release stays, and the error is
// types.ErrUnsupportedSchema.
func (s *KVSource) Set(ctx context.Context, ps ...types.Partition) error {
	return s.modify(ctx, true, func([]types.Partition) ([]types.Partition, error) { return ps, nil })
}

// Modify replaces the list by what change makes of it. change gets a copy, sorted by ID, that it may change, runs again when
// somebody else wrote at the same time, and must have no side effect. A list with a fault is refused and nothing is written; one
// that is the same as before is not written again.
//
// It tries until ctx ends. A write that gets no answer is resolved, not repeated: the change takes effect once.
// types.ErrOutcomeUnknown means that ctx ended before that was possible, or that the list was deleted or changed many times meanwhile.
func (s *KVSource) Modify(ctx context.Context, change func([]types.Partition) ([]types.Partition, error)) error {
	return s.modify(ctx, false, change)
}

func (s *KVSource) modify(ctx context.Context, overwrite bool, change func([]types.Partition) ([]types.Partition, error)) error {
	for wait := firstPause; ; wait = min(2*wait, maxPause) {
		err := s.tryModify(ctx, overwrite, change)
		if !errors.Is(err, errRetry) {
			return err
		}
		if perr := backoff.Sleep(ctx, wait/2+rand.N(wait)); perr != nil {
			return fmt.Errorf("source: change %s/%s: others kept writing: %w", s.bucket, s.key, perr)
		}
	}
}

func (s *KVSource) tryModify(ctx context.Context, overwrite bool, change func([]types.Partition) ([]types.Partition, error)) error {
	before, err := s.read(ctx)
	if overwrite && errors.Is(err, types.ErrMalformed) {
		before, err = s.readFaulty(ctx)
	}
	if err != nil {
		return err
	}
	var have []types.Partition
	if before.list != nil {
		have = before.list.Partitions
	}
	want, err := change(clone(have))
	if err != nil {
		return err
	}
	if err := validate(want); err != nil {
		return err
	}
	want = sorted(want)
	if before.root == nil && before.list == nil && len(want) == 0 || before.list != nil && slices.EqualFunc(have, want, identical) {
		return nil
	}
	return s.write(ctx, before, want)
}

// identical is stricter than Equal: it tells a stated default weight from none.
func identical(p, q types.Partition) bool { return p.Equal(q) && p.Weight == q.Weight }

// readFaulty returns what is stored as if it were no list. Its chunks, if any, are left to the sweep.
func (s *KVSource) readFaulty(ctx context.Context) (*stored, error) {
	e, err := s.readRoot(ctx)
	return &stored{root: e.Value, revision: e.Revision}, err
}

// write replaces what was before. errRetry means that it did not, and will not any more.
func (s *KVSource) write(ctx context.Context, before *stored, want []types.Partition) error {
	next := &list{Schema: listSchema, Nonces: []string{uuid.NewString()}, Previous: before.chunks, Partitions: want}
	next.Revision = uint64(max(time.Now().UnixMilli(), 1))
	if old := before.list; old != nil {
		next.Revision = max(next.Revision, old.Revision+1)
		next.Nonces = append(next.Nonces, old.Nonces[:min(len(old.Nonces), keepNonces-1)]...)
	}
	root, chunks, err := encodeList(next)
	if err != nil {
		return err
	}
	for hash, c := range chunks { // first what the root names
		if err := s.putChunk(ctx, hash, c); err != nil {
			return err
		}
	}
	revision, err := s.swap(ctx, root, before.revision, next)
	if err != nil {
		return err
	}
	s.heard(revision)
	if len(chunks) > 0 || len(before.chunks) > 0 || before.list != nil && len(before.list.Previous) > 0 {
		keep := slices.Concat(next.Previous, keysOf(chunks))
		if err := s.sweep(ctx, keep, revision); err != nil {
			s.logger.Warn("chunks of replaced lists are still there; the next change removes them", "bucket", s.bucket, "key", s.key, "error", err)
		}
	}
	return nil
}

func keysOf(m map[string][]byte) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	return keys
}

// swap stores root, which is next, over the key's revision expect and returns the new one. Without an answer it sends the same again:
// only one of them can land, and when none does any more, somebody else's list is there, which names our write if it was built on it.
// In that case the revision is not known, and 0.
func (s *KVSource) swap(ctx context.Context, root []byte, expect uint64, next *list) (uint64, error) {
	unsure := false // an earlier try may have landed
	for wait := firstPause; ; wait = min(2*wait, maxPause) {
		var revision uint64
		store, err := s.open(ctx)
		if err == nil {
			revision, err = s.put(ctx, store, s.key, root, expect)
		}
		switch {
		case err == nil:
			return revision, nil
		case kv.IsConflict(err) && unsure:
			return 0, s.landed(ctx, expect, next)
		case kv.IsConflict(err):
			return 0, errRetry
		case errors.Is(err, types.ErrPermission): // no use in trying again
			return 0, fmt.Errorf("source: write %s/%s: %w", s.bucket, s.key, err)
		case kv.IsUnknown(err):
			unsure = true
		case !unsure:
			return 0, fmt.Errorf("source: write %s/%s: %w", s.bucket, s.key, err)
		}
		if perr := backoff.Sleep(ctx, wait); perr != nil {
			return 0, unknown(err)
		}
	}
}

func (s *KVSource) put(ctx context.Context, store *kv.Store, key string, value []byte, expect uint64) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	return store.Put(ctx, key, value, expect, 0)
}

func unknown(err error) error {
	if kv.IsUnknown(err) {
		return err
	}
	return fmt.Errorf("%w: %w", types.ErrOutcomeUnknown, err)
}

// landed returns nil if the write of next is part of what is stored, and errRetry if not, now that the key is known to have left
// revision expect. It reads until it sees that too.
func (s *KVSource) landed(ctx context.Context, expect uint64, next *list) error {
	for wait := firstPause; ; wait = min(2*wait, maxPause) {
		st, err := s.read(ctx)
		if err == nil && st.after(expect, next) {
			return verdict(st, next.Nonces[0])
		}
		if errors.Is(err, types.ErrMalformed) || errors.Is(err, types.ErrUnsupportedSchema) {
			return unknown(err) // somebody overwrote it with something else
		}
		if perr := backoff.Sleep(ctx, wait); perr != nil {
			return unknown(errors.Join(perr, err))
		}
	}
}

// after reports whether st can be judged: it came after revision expect, over which next was to be written. A lower revision comes
// from a replica that lags behind, which says nothing about next; or from a bucket that was recreated, if it holds what was written
// later, or nothing any more.
func (st *stored) after(expect uint64, next *list) bool {
	if st.revision < expect {
		return st.list == nil || st.list.Revision > next.Revision
	}
	return st.revision > expect
}

func verdict(st *stored, nonce string) error {
	switch {
	case st.list == nil:
		return unknown(errors.New("source: the list was deleted meanwhile"))
	case slices.Contains(st.list.Nonces, nonce):
		return nil
	case len(st.list.Nonces) >= keepNonces:
		// Our write is not among the latest; it may be older than these, or never have landed.
		return unknown(fmt.Errorf("source: the list was changed %d times or more meanwhile", keepNonces))
	}
	return errRetry
}
