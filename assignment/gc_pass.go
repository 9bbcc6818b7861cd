package assignment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/partigo/parti/assignment/record"
	"github.com/partigo/parti/kv"
	"github.com/partigo/parti/types"
)

// gcBatch is how many deletions share an atomic batch, and so a renewal of the leader's key that everybody hears.
const gcBatch = 200

// GCResult counts what a pass found and did.
type GCResult struct {
	// Kept values are referred to; Waiting ones are not, and their retention is not over yet.
	Kept, Waiting int
	// Deleted and Failed count values and logs; a deletion fails where the key was written meanwhile, or with the pass.
	Deleted, Failed int
	// Logs are the commit logs that are left.
	Logs int
}

// listed is everything that a pass looks at, sorted by kind. Values only, no markers.
type listed struct {
	now    time.Time // of the server
	keys   map[string]kv.Entry
	roots  []kv.Entry // payloads, shards, parked lists
	chunks []kv.Entry
	logs   []loggedEntry // newest version first
}

type loggedEntry struct {
	kv.Entry
	version int64
}

// RunOnce makes one pass, also of a collector that was not started. Before the first commit of the term it does nothing. An
// error means that the pass was given up; what it counts as deleted is deleted.
func (g *CommitGC) RunOnce(ctx context.Context) (GCResult, error) {
	select {
	case g.pass <- struct{}{}:
		defer func() { <-g.pass }()
	case <-ctx.Done():
		return GCResult{}, ctx.Err()
	}
	base := g.cfg.Publisher.base()
	if base == nil || !base.proved {
		return GCResult{}, nil
	}
	var r GCResult
	err := g.collect(ctx, base, &r)
	if r.Deleted+r.Failed > 0 {
		g.cfg.Logger.Info("garbage collected", "deleted", r.Deleted, "failed", r.Failed, "waiting", r.Waiting, "kept", r.Kept)
	}
	g.cfg.Metrics.GarbageCollected(r.Deleted, r.Failed)
	if err != nil {
		return r, fmt.Errorf("assignment: collect garbage: %w", err)
	}
	return r, nil
}

// collect makes a pass. What base refers to was stored before the listing began.
func (g *CommitGC) collect(ctx context.Context, base *commitBase, r *GCResult) error {
	l, err := g.list(ctx)
	if err != nil {
		return err
	}
	// If that is not there, the listing is stale, or somebody else deletes things. Then nothing is deleted here.
	if gone := base.missing(l.has); len(gone) > 0 {
		return g.cfg.Publisher.restore(ctx, base, gone)
	}
	keep, oldLogs, err := g.keep(ctx, l)
	if err != nil {
		return err
	}
	r.Logs = len(l.logs) - len(oldLogs)
	// Only now: whatever is listed and unknown to this test is written again before a later publish refers to it.
	_, protected := g.cfg.Publisher.protected()
	dead := func(e kv.Entry) bool {
		_, kept := keep[e.Key]
		return !kept && !protected(e.Key)
	}
	roots := g.expired(l.roots, l.now, dead, r)
	gone, err := g.remove(ctx, slices.Concat(oldLogs, roots), r)
	if err != nil {
		return err
	}
	// A chunk is needed as long as any root that still exists names it. It goes after the root.
	named, err := g.named(ctx, l, gone)
	if err != nil {
		return err
	}
	chunks := g.expired(l.chunks, l.now, func(e kv.Entry) bool {
		_, used := named[e.Key]
		return !used && !protected(e.Key)
	}, r)
	_, err = g.remove(ctx, chunks, r)
	return err
}

// list returns all values in one complete listing, without what is stored in them. The age of an entry is the time from its
// creation to the last renewal of the leader's key, both on the server's clock, so no clock of a worker plays a part.
func (g *CommitGC) list(ctx context.Context) (*listed, error) {
	entries, err := g.cfg.Publisher.cfg.Store.ListKeys(ctx, LeaderKey, record.PayloadPrefix+"*", record.ChunkPrefix+"*", record.LogPrefix+"*")
	if err != nil {
		return nil, err
	}
	leader, ok := entries[LeaderKey]
	if !ok || leader.Absent() {
		return nil, fmt.Errorf("%w: nobody holds the leader key", types.ErrLeadershipLost)
	}
	l := &listed{now: leader.Created, keys: entries}
	for key, e := range entries {
		switch version, isLog := record.ParseLogKey(key); {
		case e.Absent():
		case isLog:
			l.logs = append(l.logs, loggedEntry{e, version})
		case strings.HasPrefix(key, record.PayloadPrefix):
			l.roots = append(l.roots, e)
		case strings.HasPrefix(key, record.ChunkPrefix):
			l.chunks = append(l.chunks, e)
		}
	}
	slices.SortFunc(l.logs, func(a, b loggedEntry) int { return cmp.Compare(b.version, a.version) })
	return l, nil
}

// keep returns the keys that the kept commit logs refer to, and the logs that need not be kept.
func (g *CommitGC) keep(ctx context.Context, l *listed) (keys map[string]struct{}, oldLogs []kv.Entry, err error) {
	applied := make(map[int64]bool)
	for _, v := range g.cfg.Applied() {
		applied[v] = true
	}
	keys = make(map[string]struct{})
	known := make(map[uint64]map[string]struct{}, g.cfg.KeepCommits+len(applied))
	for i, e := range l.logs {
		if i >= g.cfg.KeepCommits && !applied[e.version] {
			oldLogs = append(oldLogs, e.Entry)
			continue
		}
		refers, ok := g.logs[e.Revision]
		if !ok {
			if refers, err = g.readLog(ctx, e, l); err != nil {
				return nil, nil, err
			}
		}
		known[e.Revision] = refers
		maps.Copy(keys, refers)
	}
	g.logs = known
	return keys, oldLogs, nil
}

// errStaleRead: a key was not read in the state in which it was listed. What it refers to is not known then, so nothing may be
// deleted.
var errStaleRead = errors.New("read of another state than listed")

// readListed returns the value of a listed entry, in exactly the state that was listed.
func (g *CommitGC) readListed(ctx context.Context, e kv.Entry) ([]byte, error) {
	now, err := g.cfg.Publisher.entry(ctx, e.Key)
	if errors.Is(err, kv.ErrNotFound) || err == nil && now.Revision != e.Revision {
		return nil, fmt.Errorf("%w: %q at revision %d", errStaleRead, e.Key, e.Revision)
	}
	return now.Value, err
}

// readLog returns what the commit of a log refers to. A log that the store has damaged, or whose index it has lost, keeps what
// can still be read of it: nobody can follow that commit.
func (g *CommitGC) readLog(ctx context.Context, e loggedEntry, l *listed) (map[string]struct{}, error) {
	value, err := g.readListed(ctx, e.Entry)
	if err != nil {
		return nil, err
	}
	commit, err := record.DecodeCommit(value)
	if err != nil {
		g.cfg.Logger.Warn("a commit log cannot be read", "version", e.version, "error", err)
		return nil, nil
	}
	refs, err := record.FetchIndex(ctx, g.cfg.Publisher.get, &commit)
	keys := commitKeys(&commit, refs)
	if err == nil {
		return keys, nil
	}
	if errors.Is(err, kv.ErrNotFound) && l.hasAll(keys) { // only this read did not find it
		return nil, fmt.Errorf("%w: %w", errStaleRead, err)
	}
	if !lostForGood(err) && !errors.Is(err, types.ErrUnsupportedSchema) {
		return nil, err
	}
	g.cfg.Logger.Warn("the index of a commit log cannot be read", "version", e.version, "error", err)
	return keys, nil
}

func (l *listed) hasAll(keys map[string]struct{}) bool {
	for k := range keys {
		if !l.has(k) {
			return false
		}
	}
	return true
}

func (l *listed) has(key string) bool {
	e, ok := l.keys[key]
	return ok && !e.Absent()
}

// expired returns the dead entries that may go: those whose retention is over, and the oldest of too many others.
func (g *CommitGC) expired(entries []kv.Entry, now time.Time, dead func(kv.Entry) bool, r *GCResult) []kv.Entry {
	var garbage []kv.Entry
	for _, e := range entries {
		if dead(e) {
			garbage = append(garbage, e)
		}
	}
	r.Kept += len(entries) - len(garbage)
	slices.SortFunc(garbage, func(a, b kv.Entry) int { return a.Created.Compare(b.Created) })
	n := max(0, len(garbage)-g.cfg.MaxGarbage)
	for n < len(garbage) && now.Sub(garbage[n].Created) > g.cfg.Retention {
		n++
	}
	r.Waiting += len(garbage) - n
	return garbage[:n]
}

// named returns the keys of the chunks that the roots name which are left. Where there are no chunks at all, which is the rule,
// no root is read.
func (g *CommitGC) named(ctx context.Context, l *listed, gone map[string]struct{}) (map[string]struct{}, error) {
	if len(l.chunks) == 0 {
		clear(g.chunks)
		return nil, nil
	}
	lists := make([][]string, len(l.roots))
	err := forEachParallel(ctx, len(l.roots), g.cfg.Publisher.cfg.Parallelism, func(ctx context.Context, i int) (err error) {
		e := l.roots[i]
		if _, is := gone[e.Key]; is {
			return nil
		}
		var known bool
		if lists[i], known = g.chunks[e.Revision]; !known {
			lists[i], err = g.chunksOf(ctx, e)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	named := make(map[string]struct{}, len(l.chunks))
	known := make(map[uint64][]string, len(l.roots))
	for i, e := range l.roots {
		known[e.Revision] = lists[i]
		for _, k := range lists[i] {
			named[k] = struct{}{}
		}
	}
	g.chunks = known
	return named, nil
}

// chunksOf returns the keys of the chunks that a root names. One that is damaged names none.
func (g *CommitGC) chunksOf(ctx context.Context, root kv.Entry) ([]string, error) {
	value, err := g.readListed(ctx, root)
	if err != nil {
		return nil, err
	}
	keys, err := record.ChunkKeys(value)
	if err != nil {
		g.cfg.Logger.Warn("a stored value is damaged", "key", root.Key, "error", err)
	}
	return keys, nil
}

// remove deletes the entries in batches, counts, and returns the keys that are gone.
func (g *CommitGC) remove(ctx context.Context, entries []kv.Entry, r *GCResult) (gone map[string]struct{}, err error) {
	gone = make(map[string]struct{}, len(entries))
	for batch := range slices.Chunk(entries, gcBatch) {
		if err := g.removeBatch(ctx, batch, gone); err != nil {
			r.Deleted += len(gone)
			r.Failed += len(entries) - len(gone)
			return gone, err
		}
	}
	r.Deleted += len(gone)
	r.Failed += len(entries) - len(gone)
	return gone, nil
}

// removeBatch deletes entries together. Where one of them was written meanwhile none is; then it tries the halves.
func (g *CommitGC) removeBatch(ctx context.Context, entries []kv.Entry, gone map[string]struct{}) error {
	err := g.cfg.Publisher.remove(ctx, entries)
	switch {
	case err == nil:
		for _, e := range entries {
			gone[e.Key] = struct{}{}
		}
		return nil
	case !errors.Is(err, types.ErrCommitConflict):
		return err
	case len(entries) == 1:
		return nil
	}
	half := len(entries) / 2
	if err := g.removeBatch(ctx, entries[:half], gone); err != nil {
		return err
	}
	return g.removeBatch(ctx, entries[half:], gone)
}
