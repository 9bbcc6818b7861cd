package assignment

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/partigo/parti/assignment/plan"
	"github.com/partigo/parti/assignment/record"
	"github.com/partigo/parti/internal/backoff"
	"github.com/partigo/parti/kv"
	"github.com/partigo/parti/types"
)

// readAttempts is how often a commit that seems to be damaged is read, within some two seconds: a replica may lag behind.
const readAttempts = 5

// Bootstrap reads the commit to build on, everything that it says about who owns what, and the versions in use. It returns a
// nil state where the store has no commit. The caller must not change the state.
//
// What it read may be stale; then Publish finds out and returns types.ErrCommitConflict, and Bootstrap is to be called again.
// A commit that the store has only in part, or damaged, gives ErrCommitUnreadable after some two seconds of trying. Bootstrap may
// be called again then, in case that a replica only lags; StartFromScratch goes on without that commit. A commit of a newer
// schema gives types.ErrUnsupportedSchema: this process must not lead. Other errors are those of the store and pass.
func (p *AssignmentPublisher) Bootstrap(ctx context.Context) (*plan.State, error) {
	p.forget()
	if _, err := p.DiscoverHighestVersion(ctx); err != nil {
		return nil, err
	}
	wait := backoff.New(200*time.Millisecond, time.Second)
	for attempt := 1; ; attempt++ {
		next, err := p.readBase(ctx)
		switch {
		case err == nil:
			p.adopt(next)
			return next.state, nil
		case !lostForGood(err):
			return nil, fmt.Errorf("assignment: read the last commit: %w", err)
		case attempt == readAttempts:
			p.setUnreadable(next.revision)
			return nil, fmt.Errorf("%w: revision %d: %w", ErrCommitUnreadable, next.revision, err)
		}
		p.cfg.Logger.Warn("the stored commit cannot be read", "attempt", attempt, "error", err)
		if err := backoff.Sleep(ctx, wait.Next()); err != nil {
			return nil, err
		}
	}
}

// adopt makes what was read the commit to build on.
func (p *AssignmentPublisher) adopt(b *commitBase) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = b
	if b.commit != nil && b.commit.Version >= p.pendingVersion {
		p.pending, p.pendingVersion = nil, 0 // it landed, or never will
	}
}

// StartFromScratch gives up a commit that Bootstrap reported as ErrCommitUnreadable: the next Publish replaces it at its
// revision, as if the store had lost it. So the next state must give every entry a new epoch, and name every incarnation seen
// as an earlier holder.
func (p *AssignmentPublisher) StartFromScratch() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.unreadable == 0 {
		return fmt.Errorf("%w: no unreadable commit was found that could be given up", ErrNotBootstrapped)
	}
	p.cfg.Logger.Warn("giving up a commit that cannot be read", "revision", p.unreadable)
	p.last = &commitBase{revision: p.unreadable, observed: time.Now()}
	p.unreadable = 0
	return nil
}

func (p *AssignmentPublisher) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last, p.unreadable = nil, 0
}

func (p *AssignmentPublisher) setUnreadable(revision uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unreadable = revision
}

// readBase reads the commit and everything that it refers to. The revision is right also where the error is about the values.
func (p *AssignmentPublisher) readBase(ctx context.Context) (*commitBase, error) {
	b := &commitBase{}
	entries, err := p.cfg.Store.List(ctx, record.CommitKey)
	if err != nil {
		return b, err
	}
	e := entries[record.CommitKey] // the zero Entry stands for nothing stored
	b.revision, b.observed = e.Revision, time.Now()
	if e.Revision == 0 || e.Absent() {
		return b, nil
	}
	commit, err := record.DecodeCommit(e.Value)
	if err != nil {
		return b, err
	}
	if err := p.readState(ctx, &commit, b); err != nil {
		return b, fmt.Errorf("version %d: %w", commit.Version, err)
	}
	b.commit = &commit
	return b, nil
}

func (p *AssignmentPublisher) readState(ctx context.Context, commit *types.AssignmentCommit, b *commitBase) error {
	refs, err := record.FetchIndex(ctx, p.get, commit)
	if err != nil {
		return err
	}
	parked, err := record.FetchParked(ctx, p.get, commit)
	if err != nil {
		return err
	}
	state := &plan.State{Version: commit.Version, Slices: make([]plan.Slice, len(refs)), Parked: parked}
	err = forEachParallel(ctx, len(refs), p.cfg.Parallelism, func(ctx context.Context, i int) error {
		payload, err := record.FetchAndVerifyCommitPayload(ctx, p.get, refs[i])
		if err != nil {
			return err
		}
		state.Slices[i] = plan.Slice{Holder: refs[i].Holder(), GraceUntil: refs[i].GraceUntil, Entries: payload.Entries}
		return nil
	})
	if err != nil {
		return err
	}
	b.state = state
	b.remember(commit, refs)
	return nil
}

// remember notes the references of commit, and the keys that they lie under.
func (b *commitBase) remember(commit *types.AssignmentCommit, refs []types.AssignmentPayloadRef) {
	b.refs = make(map[string]types.AssignmentPayloadRef, len(refs))
	b.keys = commitKeys(commit, refs)
	for _, r := range refs {
		b.refs[r.WorkerID] = r
	}
}

// refsInOrder returns the references in the order of the state.
func (b *commitBase) refsInOrder() []types.AssignmentPayloadRef {
	refs := make([]types.AssignmentPayloadRef, len(b.state.Slices))
	for i := range refs {
		refs[i] = b.refs[b.state.Slices[i].Worker]
	}
	return refs
}

// commitKeys returns the keys of everything that a commit with these references refers to, except for chunks.
func commitKeys(commit *types.AssignmentCommit, refs []types.AssignmentPayloadRef) map[string]struct{} {
	keys := make(map[string]struct{}, len(refs)+len(commit.Shards)+1)
	for i := range refs {
		keys[record.PayloadKey(refs[i].PayloadHash)] = struct{}{}
	}
	for _, s := range commit.Shards {
		keys[record.PayloadKey(s.Hash)] = struct{}{}
	}
	if commit.Parked != "" {
		keys[record.PayloadKey(commit.Parked)] = struct{}{}
	}
	return keys
}

// lostForGood tells what is wrong with the stored values from what may be wrong with reading them now.
func lostForGood(err error) bool {
	if errors.Is(err, types.ErrUnsupportedSchema) {
		return false
	}
	for _, fault := range []error{
		kv.ErrNotFound, types.ErrMalformed, record.ErrCommitPayloadDecompress, record.ErrCommitPayloadHashMismatch,
		record.ErrCommitPayloadDecode, record.ErrCommitPayloadDigestMismatch,
	} {
		if errors.Is(err, fault) {
			return true
		}
	}
	return false
}
