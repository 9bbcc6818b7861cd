package assignment

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

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

// listAliases returns the stored aliases, without their values.
func (p *AssignmentPublisher) listAliases(ctx context.Context) (map[string]kv.Entry, error) {
	const filter = Prefix + ".*"
	aliases, err := p.cfg.Store.ListKeys(ctx, filter)
	maps.DeleteFunc(aliases, func(key string, e kv.Entry) bool {
		return e.Absent() || strings.HasPrefix(key, Prefix+"._") // keys of the protocol itself
	})
	return aliases, err
}

// sweepAliases deletes the aliases that the commit made just now does not write: their workers have left, or speak the commit
// protocol by now. It looks at the store after the first commit of the term, and whenever a worker has lost its alias. What fails is
// tried again after the next commit.
func (p *AssignmentPublisher) sweepAliases(ctx context.Context, extra []kv.Write) {
	written := make(map[string]bool, len(extra))
	for _, w := range extra {
		written[w.Key] = true
	}
	before := p.aliases
	p.aliases = written
	lost := before == nil
	for key := range before {
		lost = lost || !written[key]
	}
	if !lost {
		return
	}
	err := p.deleteAliases(ctx, written)
	if err != nil && ctx.Err() == nil {
		p.aliases = nil
		p.cfg.Logger.Warn("aliases of workers that left were not deleted", "error", err)
	}
}

func (p *AssignmentPublisher) deleteAliases(ctx context.Context, keep map[string]bool) error {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.RequestTimeout)
	defer cancel()
	aliases, err := p.listAliases(ctx)
	if err != nil {
		return err
	}
	var old []kv.Entry
	for key, e := range aliases {
		if !keep[key] {
			old = append(old, e)
		}
	}
	for batch := range slices.Chunk(old, kv.MaxBatch/2) {
		if err := p.remove(ctx, batch); err != nil {
			return err
		}
	}
	return nil
}
