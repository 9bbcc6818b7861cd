package election

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/partigo/parti/kv"
	"github.com/partigo/parti/types"
)

// Key is the key in the control bucket that belongs to the leader.
const Key = "election.leader"

// record is the value of the key, as JSON. Unknown fields are ignored.
type record struct {
	types.Holder
	// Term is the revision at which the key was acquired; 0 in the write that acquires it.
	Term uint64 `json:"term,omitempty"`
	// LeaseSeconds is the holder's lease, so that workers with another setting wait long enough; 0: not told.
	LeaseSeconds int64 `json:"lease_seconds,omitempty"`
	// AcquiredAt is the holder's wall clock. Diagnostic only.
	AcquiredAt time.Time `json:"acquired_at"`
	// CommitVersion is the highest commit version that the holder knew of.
	CommitVersion int64 `json:"commit_version"`
	// Nonce names the attempt to write.
	Nonce string `json:"nonce"`
}

func (r record) lease() time.Duration { return time.Duration(r.LeaseSeconds) * time.Second }

// term returns the term of a record that is stored at revision.
func (r record) term(revision uint64) uint64 {
	if r.Term == 0 {
		return revision
	}
	return r.Term
}

func decode(e kv.Entry) (record, error) {
	var r record
	if err := json.Unmarshal(e.Value, &r); err != nil {
		return record{}, fmt.Errorf("%w: %s at revision %d: %w", types.ErrMalformed, Key, e.Revision, err)
	}
	if r.Worker == "" || r.Incarnation == "" || r.Nonce == "" || r.LeaseSeconds < 0 || r.LeaseSeconds > int64(maxLease/time.Second) || r.Term > e.Revision {
		return record{}, fmt.Errorf("%w: %s at revision %d names no holder, nonce or possible lease and term", types.ErrMalformed, Key, e.Revision)
	}
	if r.CommitVersion != 0 && !types.ValidVersion(r.CommitVersion) {
		return record{}, fmt.Errorf("%w: %s at revision %d has commit_version %d, versions lie between 0 and %d",
			types.ErrMalformed, Key, e.Revision, r.CommitVersion, types.VersionLimit())
	}
	return r, nil
}

// Info is what is known of the leader.
type Info struct {
	types.Holder
	// Revision is the leader's term.
	Revision uint64
	// CommitVersion is the highest commit version that the leader knew of when it wrote the key last.
	CommitVersion int64
	// SeenAt is the local moment (monotonic) at which Observe last got something new. The elector's own writes and reads do
	// not count (except for the very first read), only their echoes: SeenAt tells whether the subscription works, also on the
	// leader itself.
	SeenAt time.Time
}

// DecodeInfo returns what a live or read entry of Key says. It fails with types.ErrMalformed, also for markers.
func DecodeInfo(e kv.Entry) (Info, error) {
	if e.Absent() {
		return Info{}, fmt.Errorf("%w: %s at revision %d is a marker", types.ErrMalformed, Key, e.Revision)
	}
	r, err := decode(e)
	if err != nil {
		return Info{}, err
	}
	return Info{Holder: r.Holder, Revision: r.term(e.Revision), CommitVersion: r.CommitVersion}, nil
}

// leaseKey is the key in its bucket.
type leaseKey struct {
	store *kv.Store
	ttl   time.Duration
}

// get reads the key, which may be stale. A key without even a marker is a marker at revision 0, so that Revision is always
// what a write over it has to expect.
func (l leaseKey) get(ctx context.Context) (kv.Entry, error) {
	e, err := l.store.Get(ctx, Key)
	if errors.Is(err, kv.ErrNotFound) {
		return kv.Entry{Key: Key, Op: kv.Delete}, nil
	}
	return e, err
}

// put acquires or renews the key over revision expect.
func (l leaseKey) put(ctx context.Context, r record, expect uint64) (uint64, error) {
	raw, err := json.Marshal(r)
	if err != nil {
		return 0, fmt.Errorf("election: encode: %w", err)
	}
	return l.store.Put(ctx, Key, raw, expect, l.ttl)
}

// batch renews the key over revision expect and makes the writes, all or none. It returns the key's new revision first.
func (l leaseKey) batch(ctx context.Context, r record, expect uint64, writes []kv.Write) ([]uint64, error) {
	raw, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("election: encode: %w", err)
	}
	all := make([]kv.Write, 0, len(writes)+1)
	all = append(all, kv.Write{Key: Key, Value: raw, Expect: expect, TTL: l.ttl})
	return l.store.Batch(ctx, append(all, writes...))
}

// remove releases the key if it is at revision expect.
func (l leaseKey) remove(ctx context.Context, expect uint64) (uint64, error) {
	return l.store.Delete(ctx, Key, expect)
}
