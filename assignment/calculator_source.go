package assignment

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/partigo/parti/assignment/plan"
	"github.com/partigo/parti/internal/backoff"
	"github.com/partigo/parti/types"
)

const (
	// sourceConfirmations is how many observations in a row have to show that the source lost half of its partitions or more.
	sourceConfirmations = 3
	firstSourceRetry    = 250 * time.Millisecond
	// firstSourceWait is how long a new leader waits for the source before it goes on with the partitions of the last commit.
	firstSourceWait = time.Second
)

// sourceList is an observation of the source: valid partitions, sorted by ID.
type sourceList struct {
	partitions []types.Partition
	sourceOrigin
}

func (l sourceList) sameAs(o sourceList) bool {
	return slices.EqualFunc(l.partitions, o.partitions, types.Partition.Equal)
}

// newSourceList validates and sorts what a source returned.
func newSourceList(ps []types.Partition) (sourceList, error) {
	if err := types.ValidatePartitions(ps); err != nil {
		return sourceList{}, err
	}
	type named struct {
		id string
		p  types.Partition
	}
	names := make([]named, len(ps))
	for i, p := range ps {
		names[i] = named{p.ID(), p}
	}
	slices.SortFunc(names, func(a, b named) int { return strings.Compare(a.id, b.id) })
	l := sourceList{partitions: make([]types.Partition, len(ps))}
	for i := range names {
		l.partitions[i] = names[i].p
	}
	return l, nil
}

// lookup is the outcome of one look at the source.
type lookup struct {
	number int
	list   sourceList
	err    error
}

// sourceView is what is believed of the source. It belongs to the loop.
type sourceView struct {
	known bool // list is what is believed; else there is none yet
	list  sourceList
	// generation grows with every change of the list that is believed.
	generation int
	// deferred is what is believed as well, and waits for the end of a recovery grace to become the list; nil: nothing waits.
	deferred *sourceList
	shrink   *Credibility
	seen     revisions
	asked    bool // there has been an outcome
	running  bool
	stale    bool // the source has said that it changed since the running look began, which may have missed it
	started  int  // lookups begun
	next     time.Time
	retry    *backoff.Backoff
	err      error // of the last lookup
}

func newSourceView(cfg *Config) sourceView {
	return sourceView{
		shrink: NewCredibility(sourceConfirmations), retry: backoff.New(firstSourceRetry, max(firstSourceRetry, cfg.SourceInterval)),
		seen: revisions{patience: cfg.HeartbeatTTL},
	}
}

// adopt takes the partitions of the last commit for the source's, if nothing is known of that yet, or only something older: they are what its
// list is compared with, and what goes on while it fails. from is where the commit has them from.
func (v *sourceView) adopt(s *plan.State, from sourceOrigin) {
	if s == nil {
		return
	}
	newer := v.seen.raise(from)
	if v.known && !(newer && v.list.olderThan(from)) {
		return
	}
	var ps []types.Partition
	for i := range s.Slices {
		for j := range s.Slices[i].Entries {
			ps = append(ps, s.Slices[i].Entries[j].Partition)
		}
	}
	for i := range s.Parked {
		if !s.Parked[i].Retired {
			ps = append(ps, s.Parked[i].Partition)
		}
	}
	if list, err := newSourceList(ps); err == nil {
		list.sourceOrigin = from
		v.known, v.list, v.next = true, list, time.Time{}
		v.generation++
		if v.deferred != nil && v.deferred.olderThan(from) {
			v.deferred = nil
		}
	}
}

// take judges a lookup. vouched: somebody asked for it, who knows what the source should say. had: there was something to lose
// even if no list is known. held: a change that nobody has asked for is deferred. It reports whether the list is taken for an old one, and so not
// believed whoever asked.
func (v *sourceView) take(l lookup, vouched, had, held bool, interval time.Duration) (old bool) {
	now := time.Now()
	v.asked, v.err = true, l.err
	if l.err != nil {
		v.next = now.Add(v.retry.Next())
		return false
	}
	v.retry.Reset()
	if highest := v.seen.highest; v.seen.look(l.list.sourceOrigin, now) {
		v.err = fmt.Errorf("%w: the source is at revision %d, %d was seen before; looking again", types.ErrSuspiciousObservation, l.list.revision, highest)
		v.next = now.Add(suspicionInterval)
		return true
	}
	before, n := len(v.believed().partitions), len(l.list.partitions)
	if !v.known && had {
		before = 1
	}
	if vouched {
		v.shrink.Reset()
	} else if !v.shrink.Observe(before, n) {
		v.err = fmt.Errorf("%w: the source lists %d partitions, %d were known; looking again", types.ErrSuspiciousObservation, n, before)
		v.next = now.Add(suspicionInterval)
		return false
	}
	v.shrink.Reset()
	v.next = now.Add(interval)
	if held && !vouched && v.known && !v.list.sameAs(l.list) {
		v.deferred = &l.list
		return false
	}
	v.accept(l.list)
	return false
}

// look calls the source once.
func (c *Calculator) look(ctx context.Context, number int) lookup {
	list, err := c.source.call(ctx, c.cfg.SourceTimeout, func(ctx context.Context) (sourceList, error) {
		if s, ok := c.cfg.Source.(types.RevisionedPartitionSource); ok {
			snap, err := s.Snapshot(ctx)
			if err != nil {
				return sourceList{}, err
			}
			l, err := newSourceList(snap.Partitions)
			l.revision, l.revisioned = snap.Revision, true
			return l, err
		}
		ps, err := c.cfg.Source.ListPartitions(ctx)
		if err != nil {
			return sourceList{}, err
		}
		return newSourceList(ps)
	})
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("%w: %w", types.ErrSourceFailed, err)
		c.cfg.Metrics.SourceFailed(err)
	}
	return lookup{number: number, list: list, err: err}
}

// watchSource passes on that the source says it changed, until ctx ends. A watch that ends or fails is begun anew, with
// backoff; meanwhile the periodic look goes on.
func (c *Calculator) watchSource(ctx context.Context, s types.WatchablePartitionSource) {
	retry := backoff.New(firstSourceRetry, c.cfg.SourceInterval)
	for {
		changes, err := c.watch.call(ctx, c.cfg.SourceTimeout, func(context.Context) (<-chan struct{}, error) { return s.Watch(ctx) })
		if err == nil && changes != nil {
			poke(c.sourceSaid) // whatever happened before the watch
			began := time.Now()
			for open := true; open; {
				select {
				case _, open = <-changes:
					if open {
						poke(c.sourceSaid)
					}
				case <-ctx.Done():
					return
				}
			}
			err = errors.New("the watch ended")
			if time.Since(began) > c.cfg.SourceInterval {
				retry.Reset()
			}
		}
		wait := retry.Next()
		if ctx.Err() == nil {
			c.cfg.Logger.Warn("watching the source failed", "error", err, "again_in", wait.Round(time.Millisecond))
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

// logSource says what changed about the source, once.
func (v *sourceView) log(logger *slog.Logger, before error) {
	switch {
	case v.err != nil && (before == nil || before.Error() != v.err.Error()):
		what := "source not usable; the last good list stays in force"
		if !v.known {
			what = "source not usable; there is no list yet, so nothing is assigned"
		}
		logger.Warn(what, "error", v.err)
	case v.err == nil && before != nil:
		logger.Info("source usable again", "partitions", len(v.list.partitions))
	}
}

func (l *loop) requested(r *request) {
	r.after = l.source.started
	l.requests = append(l.requests, r)
	l.source.next = time.Time{}
}

// lookDue reports whether the source is to be looked at now.
func (l *loop) lookDue(now time.Time) bool { return !l.source.running && !now.Before(l.source.next) }

func (l *loop) look() {
	l.source.running = true
	l.source.started++
	number := l.source.started
	l.wg.Go(func() { l.seen <- l.c.look(l.ctx, number) })
}

// looked takes in an observation of the source.
func (l *loop) looked(o lookup) {
	l.source.running = false
	vouched := slices.ContainsFunc(l.requests, func(r *request) bool { return !r.ready && r.after < o.number })
	before, end := l.source.err, l.sourceHeld(time.Now())
	old := l.source.take(o, vouched, l.view.Applied > 0, !end.IsZero(), l.cfg.SourceInterval)
	l.source.log(l.cfg.Logger, before)
	l.looks.tell(l.cfg.OnSource, o.err)
	var keep []*request
	for _, r := range l.requests {
		switch {
		case r.ready, r.after >= o.number:
		case o.err != nil:
			r.done <- o.err
			continue
		case old: // the request waits for a look that is not
		default:
			r.ready = true
		}
		keep = append(keep, r)
	}
	l.requests = keep
	if l.source.stale || slices.ContainsFunc(keep, func(r *request) bool { return !r.ready && r.after >= o.number }) {
		l.source.next, l.source.stale = time.Time{}, false
	}
}
