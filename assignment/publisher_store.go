package assignment

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/partigo/parti/assignment/plan"
	"github.com/partigo/parti/assignment/record"
	"github.com/partigo/parti/internal/backoff"
	"github.com/partigo/parti/kv"
	"github.com/partigo/parti/types"
)

// storeAttempts bounds the guarded writes that one value is tried with. More than two are needed only if somebody else writes
// the same key at the same time, again and again.
const storeAttempts = 8

// draft is a commit in the making.
type draft struct {
	commit types.AssignmentCommit
	refs   []types.AssignmentPayloadRef
	keys   map[string]struct{} // everything that the commit refers to, known to be stored or not
	blobs  []packed            // what may not be stored yet
}

// packed is a value under a content address, as it lies in the store.
type packed struct {
	hash   string
	root   record.Stored
	chunks []record.Stored
}

// encode turns the input into a draft on top of last. It writes nothing.
func (p *AssignmentPublisher) encode(ctx context.Context, last *commitBase, in PublishInput) (*draft, error) {
	enc := encoder{last: last, seen: make(map[string]struct{})}
	refs := make([]types.AssignmentPayloadRef, len(in.State.Slices))
	err := forEachParallel(ctx, len(refs), runtime.GOMAXPROCS(0), func(_ context.Context, i int) error {
		var err error
		refs[i], err = enc.slice(&in.State.Slices[i])
		return err
	})
	if err != nil {
		return nil, err
	}
	index, err := record.BuildIndex(refs)
	if err != nil {
		return nil, err
	}
	for _, raw := range index.Blobs {
		if _, err := enc.blob(raw); err != nil {
			return nil, err
		}
	}
	var parked string
	if len(in.State.Parked) > 0 {
		raw, err := record.EncodeParked(in.State.Parked)
		if err != nil {
			return nil, err
		}
		if parked, err = enc.blob(raw); err != nil {
			return nil, err
		}
	}
	if err := p.checkSizes(enc.blobs); err != nil {
		return nil, err
	}
	d := &draft{refs: refs, blobs: enc.blobs, commit: types.AssignmentCommit{
		Schema:              types.CommitSchema,
		Version:             in.State.Version,
		LeaderRevision:      p.cfg.Term,
		TermHolder:          p.cfg.Holder,
		BatchDigest:         record.BatchDigest(refs, parked),
		WorkerCount:         len(refs),
		PartitionCount:      len(in.Source),
		ParkedCount:         parkedOfSource(in.State.Parked),
		Refs:                index.Refs,
		Shards:              index.Shards,
		Parked:              parked,
		Lifecycle:           in.Lifecycle,
		SourceRevision:      in.SourceRevision,
		SourceRevisionKnown: in.SourceRevisionKnown,
		PreviousRevision:    last.revision,
		PublishedAt:         time.Now().UTC(),
		Nonce:               uuid.NewString(),
	}}
	d.keys = commitKeys(&d.commit, refs)
	return d, nil
}

// parkedOfSource counts the entries without an owner that the source has; the others are kept for their history only.
func parkedOfSource(entries []types.ParkedEntry) (n int) {
	for i := range entries {
		if !entries[i].Retired {
			n++
		}
	}
	return n
}

// checkSizes finds out what the server would refuse before anything is written.
func (p *AssignmentPublisher) checkSizes(blobs []packed) error {
	const headers = 1 << 10 // room for what is sent beside the value
	limit := int(p.cfg.Store.JetStream().Conn().MaxPayload())
	check := func(s record.Stored) error {
		if len(s.Value)+headers > limit {
			return fmt.Errorf("%w: %q has %d bytes, the server takes %d: raise its max_payload to 1 MB",
				types.ErrPayloadTooLarge, s.Key, len(s.Value), limit)
		}
		return nil
	}
	for _, b := range blobs {
		for _, c := range b.chunks {
			if err := check(c); err != nil {
				return err
			}
		}
		if err := check(b.root); err != nil {
			return err
		}
	}
	return nil
}

// encoder collects the values of a draft. Its methods may be called concurrently.
type encoder struct {
	last  *commitBase
	mu    sync.Mutex
	seen  map[string]struct{} // by hash
	blobs []packed
}

// slice returns the reference for s, and keeps its payload if it may not be stored yet. A slice that the last commit has too
// keeps its payload as it was stored, by whichever release: it is neither encoded nor written.
func (e *encoder) slice(s *plan.Slice) (types.AssignmentPayloadRef, error) {
	ref := types.AssignmentPayloadRef{WorkerID: s.Worker, Incarnation: s.Incarnation, GraceUntil: s.GraceUntil}
	if old, entries, ok := e.last.slice(s.Worker); ok && sameEntries(entries, s.Entries) {
		ref.PayloadHash, ref.SetDigest = old.PayloadHash, old.SetDigest
		return ref, nil
	}
	raw, err := record.EncodePayload(s.Entries)
	if err != nil {
		return ref, fmt.Errorf("payload of %q: %w", s.Worker, err)
	}
	ref.SetDigest = record.SetDigest(s.Entries)
	ref.PayloadHash, err = e.blob(raw)
	return ref, err
}

// blob returns the hash of raw, and keeps it packed if it may not be stored yet.
func (e *encoder) blob(raw []byte) (string, error) {
	hash := record.Hash(raw)
	if _, known := e.last.keys[record.PayloadKey(hash)]; known {
		return hash, nil
	}
	e.mu.Lock()
	_, seen := e.seen[hash]
	e.seen[hash] = struct{}{}
	e.mu.Unlock()
	if seen {
		return hash, nil
	}
	root, chunks, err := record.Pack(raw)
	if err != nil {
		return "", err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.blobs = append(e.blobs, packed{hash, root, chunks})
	return hash, nil
}

// slice returns what the commit gives to worker.
func (b *commitBase) slice(worker string) (types.AssignmentPayloadRef, []types.AssignmentEntry, bool) {
	ref, ok := b.refs[worker]
	if !ok {
		return ref, nil, false
	}
	i, ok := slices.BinarySearchFunc(b.state.Slices, worker, func(s plan.Slice, id string) int { return strings.Compare(s.Worker, id) })
	if !ok {
		return ref, nil, false
	}
	return ref, b.state.Slices[i].Entries, true
}

// sameEntries reports whether two lists of entries have one encoding. Lists that share memory cost nothing to compare.
func sameEntries(a, b []types.AssignmentEntry) bool {
	if len(a) != len(b) {
		return false
	}
	if len(a) == 0 || &a[0] == &b[0] {
		return true
	}
	return slices.EqualFunc(a, b, func(x, y types.AssignmentEntry) bool {
		return x.Epoch == y.Epoch && x.Weight == y.Weight && x.Label == y.Label &&
			slices.Equal(x.Keys, y.Keys) && slices.Equal(x.From, y.From)
	})
}

// storeBlobs creates the draft's values that may not be stored yet. Everything that the commit will refer to is a live reference
// before the first of them is touched.
//
// What the last commit refers to is not looked at: CommitGC deletes in this term only through this publisher, and only what
// was neither live nor in the last commit at a moment after it had listed the key at the revision that it deletes. So
// a key that this publish relies on was protected at that moment, or has been written since and has another revision.
// Former terms cannot delete any more since this one began, and if the last commit was stale, so is this publish.
func (p *AssignmentPublisher) storeBlobs(ctx context.Context, d *draft) error {
	p.register(d)
	var mu sync.Mutex
	var created, adopted int
	err := forEachParallel(ctx, len(d.blobs), p.cfg.Parallelism, func(ctx context.Context, i int) error {
		b := &d.blobs[i]
		fresh, err := p.storeBlob(ctx, b)
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err != nil:
			return fmt.Errorf("store %s: %w", b.root.Key, err)
		case fresh:
			created++
		default:
			adopted++
		}
		return nil
	})
	p.cfg.Metrics.PayloadsWritten(created, adopted)
	return err
}

// storeBlob stores the chunks and then the root that names them. It reports whether the root was new.
func (p *AssignmentPublisher) storeBlob(ctx context.Context, b *packed) (created bool, err error) {
	for _, c := range b.chunks {
		same := func(_ context.Context, stored []byte) error {
			if !bytes.Equal(stored, c.Value) {
				return record.ErrCommitPayloadHashMismatch
			}
			return nil
		}
		if _, err := p.ensure(ctx, c, same); err != nil {
			return false, err
		}
	}
	// The root of another release may name other chunks and still stand for the same bytes: what counts is the whole.
	return p.ensure(ctx, b.root, func(ctx context.Context, stored []byte) error {
		_, err := record.FetchBlob(ctx, func(ctx context.Context, key string) ([]byte, error) {
			if key == b.root.Key {
				return stored, nil
			}
			return p.get(ctx, key)
		}, b.hash)
		return err
	})
}

// ensure ends with a guarded write of s that succeeded, over nothing or over what was there: so a deletion at an older revision
// loses, and if the deletion came first, this creates the value again. What was there is replaced by s in any case; if verify
// finds fault with it, the store had damaged it, and now it is repaired.
func (p *AssignmentPublisher) ensure(ctx context.Context, s record.Stored, verify func(context.Context, []byte) error) (created bool, err error) {
	var (
		wait    = backoff.New(5*time.Millisecond, 200*time.Millisecond)
		expect  uint64
		existed bool
		damage  error // of what was there
	)
	for attempt := range storeAttempts {
		if attempt > 1 {
			if err := backoff.Sleep(ctx, wait.Next()); err != nil {
				return false, err
			}
		}
		err = p.put(ctx, s, expect)
		if err == nil {
			if damage != nil {
				p.cfg.Logger.Error("repaired a damaged value", "key", s.Key, "error", damage)
			}
			return !existed, nil
		}
		if !kv.IsConflict(err) && !kv.IsUnknown(err) && !errors.Is(err, kv.ErrUnavailable) {
			return false, err
		}
		switch e, getErr := p.entry(ctx, s.Key); {
		case errors.Is(getErr, kv.ErrNotFound):
			expect, damage = 0, nil
		case getErr != nil:
			err = getErr
		case e.Absent():
			expect, damage = e.Revision, nil
		default:
			expect, existed = e.Revision, true
			if damage = verify(ctx, e.Value); !lostForGood(damage) {
				damage = nil
			}
		}
	}
	if damage != nil {
		return false, fmt.Errorf("%w: %w: %w", ErrPayloadHashCollisionOrCorruption, damage, err)
	}
	return false, err
}

func (p *AssignmentPublisher) put(ctx context.Context, s record.Stored, expect uint64) error {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.RequestTimeout)
	defer cancel()
	_, err := p.cfg.Store.Put(ctx, s.Key, s.Value, expect, 0)
	return err
}

func (p *AssignmentPublisher) entry(ctx context.Context, key string) (kv.Entry, error) {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.RequestTimeout)
	defer cancel()
	return p.cfg.Store.Get(ctx, key)
}
