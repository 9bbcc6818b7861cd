package source

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/partigo/parti/internal/backoff"
	"github.com/partigo/parti/kv"
)

// Any replica of a bucket answers a read, and one may lag behind, as a rule for milliseconds and for a second where it missed that
// something was committed. So a read may be older than what made somebody read. A source therefore remembers the latest revision of
// the key that it has heard of, and reads again while the answer is older.
const (
	// currentTries bounds that. Revisions begin anew in a bucket that is recreated, and go back in one that is restored.
	currentTries = 8
	firstReread  = 10 * time.Millisecond // doubles; 1.27 s in all
)

// readRoot returns the key's entry; one that is absent without a marker has revision 0. It is not older than what had been heard of
// before, unless several reads in a row are.
func (s *KVSource) readRoot(ctx context.Context) (kv.Entry, error) {
	store, err := s.open(ctx)
	if err != nil {
		return kv.Entry{}, err
	}
	latest := s.heard(0) // what is heard of from now on is for the next call
	wait := firstReread
	for try := 1; ; try++ {
		e, err := store.Get(ctx, s.key)
		if errors.Is(err, kv.ErrNotFound) {
			e, err = kv.Entry{Key: s.key, Op: kv.Delete}, nil
		}
		if err != nil {
			s.reopen(store)
			return kv.Entry{}, fmt.Errorf("source: read %s/%s: %w", s.bucket, s.key, err)
		}
		if e.Revision >= latest {
			s.heard(e.Revision)
			return e, nil
		}
		if try == currentTries {
			s.believe(e.Revision, latest)
			return e, nil
		}
		if err := backoff.Sleep(ctx, wait); err != nil {
			s.believe(e.Revision, latest) // else nobody with so little time could read a recreated bucket
			return kv.Entry{}, fmt.Errorf("source: read %s/%s: it is at revision %d, and was at %d: %w", s.bucket, s.key, e.Revision, latest, err)
		}
		wait *= 2
	}
}

// heard remembers a revision of the key, wherever it was seen, and returns the latest.
func (s *KVSource) heard(revision uint64) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.latest = max(s.latest, revision)
	return s.latest
}

// believe takes a lower revision for the latest, unless another one than before was heard of meanwhile.
func (s *KVSource) believe(revision, before uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.latest == before {
		s.latest = revision
	}
}
