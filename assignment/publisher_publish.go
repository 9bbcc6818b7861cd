package assignment

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/google/uuid"
	"github.com/partigo/parti/assignment/plan"
	"github.com/partigo/parti/assignment/record"
	"github.com/partigo/parti/kv"
	"github.com/partigo/parti/types"
)

// PublishInput is what a commit shall say.
type PublishInput struct {
	// State is who gets what, at a version that NextVersion gave. It must not be changed afterwards.
	State *plan.State
	// Source is the list of partitions that State was made from.
	Source []types.Partition
	// SourceRevision is the revision of Source, where SourceRevisionKnown.
	SourceRevision      uint64
	SourceRevisionKnown bool
	// Lifecycle is the reason, one of types.Lifecycle*.
	Lifecycle string
	// Extra are further writes of the same atomic batch, the aliases of plain workers: all land with the commit, or none. Aliases
	// that are not among them are deleted after the commit.
	Extra []kv.Write
}

// Publish makes a commit out of the input and returns it. It checks that State covers Source, stores what is not stored yet,
// and writes the commit in one atomic batch with the leader's lease. Only what differs from the last commit costs anything.
//
// Errors wrap
//   - types.ErrCoverageMismatch, types.ErrMalformed, types.ErrPayloadTooLarge: nothing was written;
//   - types.ErrLeadershipLost: no commit was made, and this publisher can make none any more;
//   - types.ErrCommitConflict: no commit was made, since somebody changed the store; Bootstrap and decide anew;
//   - types.ErrOutcomeUnknown: the commit may have been made or may yet be; the committer resolves that before it writes
//     anything else, so a later Publish either builds on the former state rightly or gets ErrCommitConflict;
//   - ErrPayloadHashCollisionOrCorruption, ErrNotBootstrapped, ctx.Err() and errors of the store: no commit was made.
//
// Once a batch was tried its version is used up, whatever came of it. Once ctx has ended no commit goes out.
func (p *AssignmentPublisher) Publish(ctx context.Context, in PublishInput) (types.AssignmentCommit, error) {
	start := time.Now()
	commit, err := p.publish(ctx, in)
	var version int64
	if in.State != nil {
		version = in.State.Version
	}
	p.cfg.Metrics.CommitPublished(version, time.Since(start), err)
	if err != nil {
		return types.AssignmentCommit{}, fmt.Errorf("assignment: publish version %d: %w", version, err)
	}
	p.cfg.Logger.Debug("commit published", "version", version, "reason", in.Lifecycle, "workers", commit.WorkerCount,
		"partitions", commit.PartitionCount, "took", time.Since(start))
	if p.cfg.GCTrigger != nil {
		p.cfg.GCTrigger()
	}
	return commit, nil
}

func (p *AssignmentPublisher) publish(ctx context.Context, in PublishInput) (types.AssignmentCommit, error) {
	var none types.AssignmentCommit
	last, err := p.mayPublish(in)
	if err != nil {
		return none, err
	}
	if err := CheckCoverage(in.State, in.Source); err != nil {
		return none, err
	}
	draft, err := p.encode(ctx, last, in)
	if err != nil {
		return none, err
	}
	defer p.release() // whether it became the last commit, is pending, or never will be
	if err := p.storeBlobs(ctx, draft); err != nil {
		return none, err
	}
	if err := p.use(in.State.Version); err != nil {
		return none, err
	}
	next := &commitBase{commit: &draft.commit, state: in.State, proved: true}
	next.remember(&draft.commit, draft.refs)
	if err := p.writeCommit(ctx, draft, next, in.Extra); err != nil {
		return none, err
	}
	p.noteAliases(in.Extra)
	_ = p.SweepAliases(ctx) // what fails stays due
	return *p.LastCommit(), nil
}

// mayPublish returns the commit to build on.
func (p *AssignmentPublisher) mayPublish(in PublishInput) (*commitBase, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.lost != nil:
		return nil, p.lost
	case p.last == nil:
		return nil, ErrNotBootstrapped
	case in.State == nil || in.State.Version <= p.highest:
		return nil, fmt.Errorf("%w: the version must be above %d: take NextVersion", types.ErrInvalidConfig, p.highest)
	case len(in.Extra) > kv.MaxBatch-3: // beside the leader key, the commit and its log
		return nil, fmt.Errorf("%w: %d extra writes, at most %d fit into a batch", types.ErrInvalidConfig, len(in.Extra), kv.MaxBatch-3)
	}
	return p.last, nil
}

// writeCommit writes the batch and makes next the last commit.
func (p *AssignmentPublisher) writeCommit(ctx context.Context, d *draft, next *commitBase, extra []kv.Write) error {
	value, err := record.EncodeCommit(&d.commit)
	if err != nil {
		return err
	}
	writes := append([]kv.Write{
		{Key: record.CommitKey, Value: value, Expect: d.commit.PreviousRevision},
		// Nothing may be there: a version that was used before would show.
		{Key: record.LogKey(d.commit.Version), Value: value, TTL: p.cfg.KeepLog},
	}, extra...)
	select {
	case p.batch <- struct{}{}:
		defer func() { <-p.batch }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := ctx.Err(); err != nil { // stopped: nothing goes out any more
		return err
	}
	revs, err := p.cfg.Committer.Commit(ctx, p.cfg.Term, d.commit.Version, d.commit.Nonce, writes)
	switch {
	case errors.Is(err, types.ErrLeadershipLost):
		p.end(err)
	case errors.Is(err, types.ErrOutcomeUnknown):
		p.suspend(d.commit.Version)
	case errors.Is(err, types.ErrCommitConflict):
		p.doubt()
	case err == nil:
		next.revision = revs[0]
		p.advance(next)
	}
	return err
}

// advance makes b the commit to build on. In the same step its keys stop being live and become those of the last commit.
func (p *AssignmentPublisher) advance(b *commitBase) {
	p.mu.Lock()
	defer p.mu.Unlock()
	b.observed = time.Now()
	p.last, p.rebalanced = b, b.observed
	p.live, p.pending, p.pendingVersion = nil, nil, 0
}

// suspend keeps the live references for as long as the commit of version may still land.
func (p *AssignmentPublisher) suspend(version int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	pending := make(map[string]struct{}, len(p.live)+len(p.pending))
	maps.Copy(pending, p.pending)
	maps.Copy(pending, p.live)
	p.pending, p.pendingVersion = pending, version
}

func (p *AssignmentPublisher) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.live = nil
}

// doubt notes that the last commit is not what it was taken for, so that nothing is deleted on its word.
func (p *AssignmentPublisher) doubt() {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := *p.last
	b.proved = false
	p.last = &b
}

func (p *AssignmentPublisher) end(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lost = err
}

// remove deletes entries at the revisions that they were seen at, all or none, if the term still lasts and the last commit is
// still known for certain.
func (p *AssignmentPublisher) remove(ctx context.Context, entries []kv.Entry) error {
	return p.delete(ctx, entries, true)
}

// delete is remove where certain, and else needs no certainty about the last commit.
func (p *AssignmentPublisher) delete(ctx context.Context, entries []kv.Entry, certain bool) error {
	writes := make([]kv.Write, len(entries))
	for i, e := range entries {
		writes[i] = kv.Write{Key: e.Key, Expect: e.Revision, Delete: true}
	}
	select {
	case p.batch <- struct{}{}:
		defer func() { <-p.batch }()
	case <-ctx.Done():
		return ctx.Err()
	}
	last := p.base()
	if last == nil || last.commit == nil || certain && !last.proved {
		return fmt.Errorf("%w, or not this term's", ErrNotBootstrapped)
	}
	_, err := p.cfg.Committer.Commit(ctx, p.cfg.Term, last.commit.Version, uuid.NewString(), writes)
	if errors.Is(err, types.ErrLeadershipLost) {
		p.end(err)
	}
	return err
}
