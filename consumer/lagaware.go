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
// A partition's weight is 100 plus 100 for each mean lag that it is behind; the lag is averaged over time with a half-life. The leader learns it
// from the offsets, in which owners note it, so no worker is asked. Placement begins with what is: a partition without an owner goes to the least
// loaded worker, and a worker that is new takes from the most loaded ones until it has its part. Beyond that, nothing moves as long as no
// worker's load exceeds the mean by more than Threshold; and then only so much that MovesPerMinute is kept, and only what brings loads closer
// together: no commit is made for a lag that no move can even out, e.g. that of one partition. A worker's capacity is heeded.
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

// maxLagWeight bounds a partition's weight in multiples of the mean lag.
const maxLagWeight = 20

// lagFollower is source and strategy of a leader. Both are called by the leader only.
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

var (
	_ types.WatchablePartitionSource = (*lagFollower)(nil)
	_ types.AssignmentStrategy       = (*lagFollower)(nil)
)

func newLagFollower(l LagAware, list []types.Partition, lags func(ctx context.Context) (map[string]uint64, error)) *lagFollower {
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

// ListPartitions returns the partitions with weights. They change only when the placement has to.
func (f *lagFollower) ListPartitions(ctx context.Context) ([]types.Partition, error) {
	f.look(ctx)
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.list), nil
}

// Watch looks at the lag until ctx ends, and signals when weights have changed.
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

// look takes the lag in, at most once an interval, and reports whether the weights have changed.
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
	next := f.weigh(f.list)
	if slices.EqualFunc(next, f.list, types.Partition.Equal) {
		next[0].Weight++ // a difference of one makes the leader think again about what it was not allowed to move
	}
	f.list = next
	return true
}

// better reports whether loads differ too much, and Assign would lessen that if it was asked now: else a commit would say what the last one
// said. Held: mu.
func (f *lagFollower) better(now time.Time) bool {
	in := f.placed
	if len(in.Workers) == 0 { // not asked yet
		return false
	}
	in.Partitions = f.weigh(in.Partitions)
	p := newPlacement(in)
	if !p.uneven(f.cfg.Threshold) {
		return false
	}
	p.place(f.cfg.Threshold, f.allowed(len(in.Partitions), now))
	return !slices.Equal(p.owners, in.Previous)
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

// weigh returns partitions with weights by the averages. Weights are rounded to steps of about a tenth. Held: mu.
func (f *lagFollower) weigh(list []types.Partition) []types.Partition {
	mean := 0.0
	for _, a := range f.average {
		mean += a / float64(len(f.list))
	}
	mean = max(mean, float64(f.cfg.MinLag))
	out := slices.Clone(list)
	for i := range out {
		w := types.DefaultWeight * (1 + min(f.average[out[i].ID()]/mean, maxLagWeight))
		out[i].Weight = int64(math.Round(math.Pow(1.1, math.Round(math.Log(w)/math.Log(1.1)))))
	}
	return out
}

// Assign implements types.AssignmentStrategy. It goes by the weights of the last look, which those of the input may be older than.
func (f *lagFollower) Assign(_ context.Context, in types.AssignmentInput) ([]int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	in.Partitions = f.weigh(in.Partitions)
	p := newPlacement(in)
	for range p.place(f.cfg.Threshold, f.allowed(len(in.Partitions), now)) {
		f.moves = append(f.moves, now)
	}
	f.placed = types.AssignmentInput{Workers: slices.Clone(in.Workers), Partitions: in.Partitions, Previous: p.owners}
	return slices.Clone(p.owners), nil
}

// placement is a placement in the making.
type placement struct {
	in     types.AssignmentInput
	owners []int
	load   []int64
	count  []int
	total  int64
}

// newPlacement begins with the previous owners.
func newPlacement(in types.AssignmentInput) *placement {
	p := &placement{in: in, owners: slices.Clone(in.Previous), load: make([]int64, len(in.Workers)), count: make([]int, len(in.Workers))}
	for i, w := range p.owners {
		p.total += in.Partitions[i].Cost()
		if w != types.NoOwner {
			p.give(i, w)
		}
	}
	return p
}

// place gives away what has no owner, fills up workers that had nothing, and then moves at most allowed partitions from workers whose load
// exceeds the mean by more than the threshold. It returns how many of these it moved.
func (p *placement) place(threshold float64, allowed int) (moved int) {
	var fresh, homeless []int
	for w, n := range p.count {
		if n == 0 {
			fresh = append(fresh, w)
		}
	}
	for i, w := range p.owners {
		if w == types.NoOwner {
			homeless = append(homeless, i)
		}
	}
	slices.SortStableFunc(homeless, func(i, j int) int { return cmp.Compare(p.in.Partitions[j].Cost(), p.in.Partitions[i].Cost()) })
	for _, i := range homeless {
		p.give(i, p.least())
	}
	for _, w := range fresh {
		for float64(p.load[w]) < p.mean()*0.95 && p.relieve(w, float64(p.load[w])) {
		}
	}
	for moved < allowed && p.relieve(p.least(), p.mean()*(1+threshold)) {
		moved++
	}
	return moved
}

// relieve moves a partition to a worker, from the most loaded one that has such as bring the two closer: one that has a single large one has not.
// Only workers whose load exceeds limit are relieved.
func (p *placement) relieve(to int, limit float64) bool {
	from := make([]int, 0, len(p.load))
	for w, l := range p.load {
		if w != to && float64(l) > limit {
			from = append(from, w)
		}
	}
	slices.SortStableFunc(from, func(v, w int) int { return cmp.Compare(p.load[w], p.load[v]) })
	return slices.ContainsFunc(from, func(w int) bool { return p.moveOne(w, to) })
}

func (p *placement) mean() float64 { return float64(p.total) / float64(len(p.load)) }

// uneven reports whether a worker's load exceeds the mean by more than the threshold.
func (p *placement) uneven(threshold float64) bool {
	return float64(slices.Max(p.load)) > p.mean()*(1+threshold)
}

func (p *placement) give(i, w int) {
	p.owners[i] = w
	p.load[w] += p.in.Partitions[i].Cost()
	p.count[w]++
}

// least returns the least loaded worker that has room, the first of equals; the first of all where none has.
func (p *placement) least() int {
	best := -1
	for w, l := range p.load {
		if p.admits(w, 1) && (best < 0 || l < p.load[best]) {
			best = w
		}
	}
	return max(best, 0)
}

// admits reports whether the worker has room for another partition that costs so much.
func (p *placement) admits(w int, cost int64) bool {
	return p.in.Workers[w].Capacity.Admits(p.count[w]+1, p.load[w]+cost)
}

// moveOne moves the partition that brings the two workers' loads closest together; none where that is no improvement, or there is no room.
func (p *placement) moveOne(from, to int) bool {
	gap := p.load[from] - p.load[to]
	best, bestGap := -1, gap
	for i, w := range p.owners {
		if w != from {
			continue
		}
		c := p.in.Partitions[i].Cost()
		if after := max(gap-2*c, 2*c-gap); c > 0 && after < bestGap && p.admits(to, c) {
			best, bestGap = i, after
		}
	}
	if best < 0 {
		return false
	}
	p.load[from] -= p.in.Partitions[best].Cost()
	p.count[from]--
	p.give(best, to)
	return true
}

// noteLag makes the owner note a lag that has changed much since it was noted. It is called about once a second. Held: mu.
func (x *run) noteLag(now time.Time) {
	if x.r.cfg.lagAware == nil || now.Sub(x.saved.At) < lagNote {
		return
	}
	have, noted := float64(x.lag()), float64(x.saved.Lag)
	if math.Abs(have-noted) > max(noted/4, 100) {
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
