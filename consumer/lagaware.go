package consumer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/partigo/parti/internal/backoff"
	"github.com/partigo/parti/types"
)

// LagAware makes the placement of partitions follow their lag; the zero value has the defaults. It replaces [WithStrategy].
//
// A partition's load is 100 plus 100 for each mean lag that it is behind; the lag is averaged over time with a half-life. The leader learns it
// from the offsets, in which owners note it, so no worker is asked. Placement begins with what is: a partition without an owner goes to the least
// loaded worker, and a worker that is new takes from the most loaded ones until it has its part. Beyond that, nothing moves as long as no
// worker's load exceeds the mean by more than Threshold; and then only so much that MovesPerMinute is kept, and only what brings loads closer
// together: no commit is made for a lag that no move can even out, e.g. that of one partition.
//
// A worker's capacity is heeded. Lag does not count there: for the weight of parti.WithCapacity a partition costs 100, however far it is behind, so that none
// is parked because it lags. The first one costs 1 or 2 less, by which the leader is told to think again.
//
// Averages and the count of moves live in the leader's process: another leader begins with the lag of the moment and no moves.
type LagAware struct {
	// HalfLife is the time after which a change of lag has half its effect. Default 1 min. Negative: the lag of the moment counts.
	HalfLife time.Duration
	// Interval is how often the leader looks. Default 10 s.
	Interval time.Duration
	// Threshold is the imbalance below which nothing moves, as a part of the mean load. Default 0.2. Negative: there is none, so that
	// every imbalance counts that a move lessens.
	Threshold float64
	// MovesPerMinute bounds the moves made for lag, as a part of all partitions, but is at least one partition. Default 0.1, at most 1.
	// Negative: nothing moves for lag, and it counts only where something has to be placed anyway.
	MovesPerMinute float64
	// MinLag is the mean lag below which differences do not count, in messages. Default 1000. Use 1 where all of them are to count.
	MinLag uint64
}

// withDefaults replaces what was left out, and makes 0 of what is negative.
func (l LagAware) withDefaults() LagAware {
	l.HalfLife = max(cmp.Or(l.HalfLife, time.Minute), 0)
	l.Interval = cmp.Or(l.Interval, 10*time.Second)
	l.Threshold = max(cmp.Or(l.Threshold, 0.2), 0)
	l.MovesPerMinute = max(cmp.Or(l.MovesPerMinute, 0.1), 0)
	l.MinLag = cmp.Or(l.MinLag, 1000)
	return l
}

func (l LagAware) validate() error {
	if l.Interval < 0 || l.MovesPerMinute > 1 {
		return fmt.Errorf("%w: WithLagAware: use a positive Interval and at most 1 for MovesPerMinute, or leave them out", ErrInvalidConfig)
	}
	return nil
}

// maxLagWeight bounds a partition's load in multiples of the mean lag.
const maxLagWeight = 20

// lagFollower is source and strategy of a leader. Both are called by the leader only.
//
// The weights that it lists say nothing of lag: the leader counts them against capacities, and would park what lags for ever, since nobody notes a
// lag of what nobody reads. That of the first partition changes when the leader is to ask Assign again. It is never more than the others', so that it
// takes no room, and never the same, since the leader levels partitions of equal weight by number where some are barred from workers.
type lagFollower struct {
	cfg  LagAware
	lags func(ctx context.Context) (map[string]uint64, error) // by partition ID

	mu      sync.Mutex // never held over a call of lags
	list    []types.Partition
	average map[string]float64
	looked  time.Time
	placed  types.AssignmentInput // what was decided on last, with the answer as Previous
	moves   []time.Time           // made for lag, in the last minute
}

// firstWeight and otherWeight are what the first partition weighs, in turns.
const firstWeight, otherWeight = types.DefaultWeight - 1, types.DefaultWeight - 2

var (
	_ types.WatchablePartitionSource = (*lagFollower)(nil)
	_ types.AssignmentStrategy       = (*lagFollower)(nil)
)

func newLagFollower(l LagAware, list []types.Partition, lags func(ctx context.Context) (map[string]uint64, error)) *lagFollower {
	list = slices.Clone(list)
	list[0].Weight = firstWeight
	return &lagFollower{cfg: l.withDefaults(), lags: lags, list: list, average: map[string]float64{}}
}

// storedLags reads the lag of all partitions from the offsets.
func (r *Reader) storedLags(ctx context.Context) (map[string]uint64, error) {
	store := r.offsets.Load()
	if store == nil {
		return nil, errors.New("consumer: not started")
	}
	entries, err := store.List(ctx, r.group+".*")
	if err != nil {
		return nil, err
	}
	out := make(map[string]uint64, len(entries))
	for key, e := range entries {
		if s, err := decodeOffset(e.Value); err == nil && !e.Absent() {
			out[strings.TrimPrefix(key, r.group+".")] = s.Lag
		}
	}
	return out, nil
}

// ListPartitions returns the partitions. They change only when the placement has to.
func (f *lagFollower) ListPartitions(ctx context.Context) ([]types.Partition, error) {
	f.look(ctx)
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.list), nil
}

// Watch looks at the lag until ctx ends, and signals when the placement has to change.
func (f *lagFollower) Watch(ctx context.Context) (<-chan struct{}, error) {
	changes := make(chan struct{}, 1)
	go func() {
		defer close(changes)
		for backoff.Sleep(ctx, f.cfg.Interval) == nil {
			if f.look(ctx) {
				poke(changes)
			}
		}
	}()
	return changes, nil
}

// look takes the lag in, at most once an interval, and reports whether the placement has to change.
func (f *lagFollower) look(ctx context.Context) bool {
	f.mu.Lock()
	now := time.Now()
	if now.Sub(f.looked) < f.cfg.Interval/2 {
		f.mu.Unlock()
		return false
	}
	f.mu.Unlock()
	lags, err := f.lags(ctx)
	if err != nil {
		return false // the placement stays as it is
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.observe(lags, now)
	if !f.better(now) {
		return false
	}
	f.list[0].Weight = firstWeight + otherWeight - f.list[0].Weight
	return true
}

// better reports whether loads differ too much, and Assign would lessen that if it was asked now: else a commit would say what the last one
// said. Held: mu.
func (f *lagFollower) better(now time.Time) bool {
	if len(f.placed.Workers) == 0 { // not asked yet
		return false
	}
	p := f.placement(f.placed)
	if !p.uneven(f.cfg.Threshold) {
		return false
	}
	p.place(f.cfg.Threshold, f.allowed(len(p.owners), now))
	return !slices.Equal(p.owners, f.placed.Previous)
}

// allowed returns how many of so many partitions may be moved for lag now. Held: mu.
func (f *lagFollower) allowed(partitions int, now time.Time) int {
	if f.cfg.MovesPerMinute == 0 {
		return 0
	}
	f.moves = slices.DeleteFunc(f.moves, func(t time.Time) bool { return now.Sub(t) >= time.Minute })
	return max(1, int(f.cfg.MovesPerMinute*float64(partitions))) - len(f.moves)
}

// observe averages. Held: mu.
func (f *lagFollower) observe(lags map[string]uint64, now time.Time) {
	part := 1.0
	if !f.looked.IsZero() && f.cfg.HalfLife > 0 {
		part = 1 - math.Exp2(-now.Sub(f.looked).Seconds()/f.cfg.HalfLife.Seconds())
	}
	f.looked = now
	for _, p := range f.list {
		id := p.ID()
		f.average[id] += part * (float64(lags[id]) - f.average[id])
	}
}

// placement begins with the previous owners, and the loads that partitions are by the averages. They are rounded to steps of about a tenth. Held: mu.
func (f *lagFollower) placement(in types.AssignmentInput) *placement {
	mean := 0.0
	for _, a := range f.average {
		mean += a / float64(len(f.list))
	}
	mean = max(mean, float64(f.cfg.MinLag))
	loads := make([]int64, len(in.Partitions))
	for i := range loads {
		l := types.DefaultWeight * (1 + min(f.average[in.Partitions[i].ID()]/mean, maxLagWeight))
		loads[i] = int64(math.Round(math.Pow(1.1, math.Round(math.Log(l)/math.Log(1.1)))))
	}
	return newPlacement(in, loads)
}

// Assign implements types.AssignmentStrategy. It goes by the lag of the last look.
func (f *lagFollower) Assign(_ context.Context, in types.AssignmentInput) ([]int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	p := f.placement(in)
	for range p.place(f.cfg.Threshold, f.allowed(len(in.Partitions), now)) {
		f.moves = append(f.moves, now)
	}
	f.placed = types.AssignmentInput{Workers: slices.Clone(in.Workers), Partitions: slices.Clone(in.Partitions), Previous: p.owners}
	return slices.Clone(p.owners), nil
}

// noteLag makes the owner note a lag that has changed much since it was noted. It is called about once a second. Held: mu.
func (x *run) noteLag(now time.Time) {
	if x.r.cfg.lagAware == nil {
		return
	}
	if age := now.Sub(x.saved.At); age >= 0 && age < lagNote { // below 0: the former owner's clock was ahead
		return
	}
	have, noted, least := float64(x.lag()), float64(x.saved.Lag), float64(x.r.cfg.lagAware.withDefaults().MinLag)
	if math.Abs(have-noted) > max(noted/4, min(least-1, 100)) {
		x.force = true
		poke(x.wakeSave)
	}
}

// lagNote is how often a lag is noted at most beyond what commits do anyway.
const lagNote = 5 * time.Second

// probeLag asks the server for the lag where the partition's feed does not know it: because it brings others too, or because nothing is
// asked for, while the partition is paused, stopped or stuck. It belongs to the reading goroutine.
func (x *run) probeLag(ctx context.Context, at time.Time, needed bool) {
	if needed && at.Sub(x.probed) < 2*lagNote {
		return
	}
	n := uint64(0)
	if needed {
		x.probed = at
		x.mu.Lock()
		from := x.acked + 1
		x.mu.Unlock()
		var err error
		if n, err = x.r.pendingFrom(ctx, x, from); err != nil {
			return
		}
	}
	x.mu.Lock()
	x.lagSeen = n
	x.mu.Unlock()
}
