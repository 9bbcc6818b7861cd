package assignment

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/partigo/parti/assignment/plan"
	"github.com/partigo/parti/assignment/record"
	"github.com/partigo/parti/kv"
)

// CleanupAllAssignments deletes every alias `assignment.<workerID>`, also of workers that still run, for when a whole group
// is taken down. Commits, their logs and payloads stay. An alias that changes meanwhile is left alone and reported.
func (p *AssignmentPublisher) CleanupAllAssignments(ctx context.Context) error {
	aliases, err := p.listAliases(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for key, e := range aliases {
		if _, err := p.cfg.Store.Delete(ctx, key, e.Revision); err != nil && !errors.Is(err, kv.ErrNotFound) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

const aliasFilter = Prefix + ".*"

// listAliases returns the stored aliases, without their values.
func (p *AssignmentPublisher) listAliases(ctx context.Context) (map[string]kv.Entry, error) {
	all, err := p.cfg.Store.ListKeys(ctx, aliasFilter)
	return aliasesOf(all), err
}

// aliasesOf takes out what is none: markers, and the keys of the protocol itself.
func aliasesOf(all map[string]kv.Entry) map[string]kv.Entry {
	maps.DeleteFunc(all, func(key string, e kv.Entry) bool { return e.Absent() || strings.HasPrefix(key, Prefix+"._") })
	return all
}

// noteAliases notes which aliases the commit made just now wrote, and that a sweep is due after the first commit of the term and whenever a
// worker has lost its alias.
func (p *AssignmentPublisher) noteAliases(extra []kv.Write) {
	written := make(map[string]bool, len(extra))
	for _, w := range extra {
		written[w.Key] = true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	due := p.aliases == nil
	for key := range p.aliases {
		due = due || !written[key]
	}
	p.aliases = written
	if due {
		p.sweepsDue++
	}
}

// SweepDue reports whether there may be aliases that the last commit did not write: at first, as the leader before may have left some, after
// commits that took one away, and until SweepAliases has succeeded.
func (p *AssignmentPublisher) SweepDue() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last != nil && p.last.commit != nil && p.swept < p.sweepsDue
}

// SweepAliases deletes the aliases of workers that have left, or speak the commit protocol by now, if a sweep is due. It may be called at any
// time, also beside Publish. What fails is due again.
//
// Every commit writes all aliases of the workers that it lists, in the same batch behind the commit. So whatever was written before the commit
// key, and is no listed plain worker's, is left over: that does not depend on whether the commit is known to be the last one.
func (p *AssignmentPublisher) SweepAliases(ctx context.Context) error {
	p.mu.Lock()
	base, due, swept := p.last, p.sweepsDue, p.swept
	p.mu.Unlock()
	if base == nil || base.commit == nil || swept >= due {
		return nil
	}
	err := p.deleteAliases(ctx, base)
	if err == nil {
		p.mu.Lock()
		p.swept = max(p.swept, due)
		p.mu.Unlock()
	} else if ctx.Err() == nil {
		p.cfg.Logger.Warn("aliases of workers that left were not deleted; it is tried again", "error", err)
	}
	return err
}

func (p *AssignmentPublisher) deleteAliases(ctx context.Context, base *commitBase) error {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.RequestTimeout)
	defer cancel()
	all, err := p.cfg.Store.ListKeys(ctx, aliasFilter)
	if err != nil {
		return err
	}
	if e := all[record.CommitKey]; e.Revision != base.revision {
		return fmt.Errorf("%w: the commit is at revision %d, and %d was listed", errStaleRead, base.revision, e.Revision)
	}
	var old []kv.Entry
	for key, e := range aliasesOf(all) {
		if e.Revision < base.revision && !base.listsPlain(key) {
			old = append(old, e)
		}
	}
	for batch := range slices.Chunk(old, kv.MaxBatch/2) {
		if err := p.delete(ctx, batch, false); err != nil {
			return err
		}
	}
	return nil
}

// listsPlain reports whether the alias is that of a plain worker of the commit.
func (b *commitBase) listsPlain(alias string) bool {
	return slices.ContainsFunc(b.state.Slices, func(s plan.Slice) bool { return s.Incarnation == "" && record.AliasKey(s.Worker) == alias })
}
