package checker

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// Run is one run of a partition's handler, as the test's handlers report it.
type Run struct {
	Partition string
	Worker    string
	Epoch     int64
	Start     time.Time
	End       time.Time // zero while it runs
}

func (r Run) String() string {
	return fmt.Sprintf("%s by %s under epoch %d since %s", r.Partition, r.Worker, r.Epoch, r.Start.Format(timeForm))
}

// Overlap is a run that began while another one of the same partition had not ended.
type Overlap struct{ First, Second Run }

// EpochFault is a run that began under an epoch that is not above that of an earlier run. The same worker may begin again
// under the same epoch: a handler that returned early and is called again.
type EpochFault struct{ Earlier, Later Run }

// Gap is a time in which nobody ran a partition.
type Gap struct {
	Partition string
	From, To  time.Time // To is now for a gap that goes on
}

// Length is how long the gap is, or is so far.
func (g Gap) Length() time.Duration { return g.To.Sub(g.From) }

// Gaps sums up how long partitions were run by nobody.
type Gaps struct {
	Total   time.Duration // over all partitions
	Count   int
	Longest Gap
}

// Oracle observes ownership from outside at the only place that counts: the handlers. It trusts nothing but the calls of Start
// and End. Its methods may be called from any goroutine and wait for nothing, except WaitAllRunning.
type Oracle struct {
	mu         sync.Mutex // never held over a wait
	partitions map[string]*observed
	byWorker   map[string]map[*Run]struct{}
	idle       int // expected partitions that nobody runs
	changed    chan struct{}
	overlaps   []Overlap
	faults     []EpochFault
	unknown    []Run // ends of runs that had not begun
	starts     int
}

type observed struct {
	expected bool
	running  []*Run
	highest  Run // of the highest epoch so far
	idleFrom time.Time
	total    time.Duration
	count    int
	longest  Gap
}

// NewOracle returns an oracle that expects these partitions to run. Their gaps count from now on.
func NewOracle(partitions ...string) *Oracle {
	o := &Oracle{partitions: map[string]*observed{}, byWorker: map[string]map[*Run]struct{}{}, changed: make(chan struct{})}
	o.Expect(partitions...)
	return o
}

// Expect replaces the partitions that are expected to run. Only their gaps are measured, and count from now on where they
// were not expected before.
func (o *Oracle) Expect(partitions ...string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	wanted := make(map[string]struct{}, len(partitions))
	for _, id := range partitions {
		wanted[id] = struct{}{}
		if p := o.at(id); !p.expected {
			p.expected = true
			p.idleFrom = now
		}
	}
	o.idle = 0
	for id, p := range o.partitions {
		if _, ok := wanted[id]; !ok && p.expected {
			p.close(id, now)
			p.expected = false
		}
		if p.expected && len(p.running) == 0 {
			o.idle++
		}
	}
	o.wake()
}

func (o *Oracle) at(id string) *observed {
	p := o.partitions[id]
	if p == nil {
		p = &observed{}
		o.partitions[id] = p
	}
	return p
}

func (o *Oracle) wake() {
	close(o.changed)
	o.changed = make(chan struct{})
}

// close ends the present gap, if there is one.
func (p *observed) close(id string, now time.Time) {
	if !p.expected || len(p.running) > 0 {
		return
	}
	if g := (Gap{id, p.idleFrom, now}); g.Length() > 0 {
		p.count++
		p.total += g.Length()
		if g.Length() > p.longest.Length() {
			p.longest = g
		}
	}
}

// Start says that a run begins. Call it first in the handler.
func (o *Oracle) Start(partition, worker string, epoch int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	r := &Run{Partition: partition, Worker: worker, Epoch: epoch, Start: time.Now()}
	o.starts++
	p := o.at(partition)
	for _, other := range p.running {
		o.overlaps = append(o.overlaps, Overlap{*other, *r})
	}
	if h := p.highest; h.Epoch > epoch || h.Epoch == epoch && (h.Worker != worker || epoch == 0) && h.Partition != "" {
		o.faults = append(o.faults, EpochFault{h, *r})
	}
	if epoch > p.highest.Epoch || p.highest.Partition == "" {
		p.highest = *r
	}
	if len(p.running) == 0 {
		p.close(partition, r.Start)
		if p.expected {
			o.idle--
		}
	}
	p.running = append(p.running, r)
	if o.byWorker[worker] == nil {
		o.byWorker[worker] = map[*Run]struct{}{}
	}
	o.byWorker[worker][r] = struct{}{}
	o.wake()
}

// End says that the run has ended. Call it last in the handler.
func (o *Oracle) End(partition, worker string, epoch int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	p := o.at(partition)
	i := slices.IndexFunc(p.running, func(r *Run) bool { return r.Worker == worker && r.Epoch == epoch })
	if i < 0 {
		o.unknown = append(o.unknown, Run{Partition: partition, Worker: worker, Epoch: epoch, End: time.Now()})
		return
	}
	delete(o.byWorker[worker], p.running[i])
	p.running = slices.Delete(p.running, i, i+1)
	if len(p.running) == 0 {
		p.idleFrom = time.Now()
		if p.expected {
			o.idle++
		}
	}
	o.wake()
}

// Observe runs f between Start and End.
func (o *Oracle) Observe(partition, worker string, epoch int64, f func()) {
	o.Start(partition, worker, epoch)
	defer o.End(partition, worker, epoch)
	f()
}

// Killed ends all runs of a worker whose process is gone.
func (o *Oracle) Killed(worker string) {
	o.mu.Lock()
	runs := slices.Collect(maps.Keys(o.byWorker[worker]))
	o.mu.Unlock()
	for _, r := range runs {
		o.End(r.Partition, r.Worker, r.Epoch)
	}
}

// Running returns the partitions that run now, each with its run that began last.
func (o *Oracle) Running() map[string]Run {
	o.mu.Lock()
	defer o.mu.Unlock()
	runs := make(map[string]Run, len(o.partitions))
	for id, p := range o.partitions {
		if n := len(p.running); n > 0 {
			runs[id] = *p.running[n-1]
		}
	}
	return runs
}

// Idle returns how many expected partitions nobody runs.
func (o *Oracle) Idle() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.idle
}

// Starts returns how many runs have begun in all.
func (o *Oracle) Starts() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.starts
}

func (o *Oracle) runsOf(worker string) []Run {
	o.mu.Lock()
	defer o.mu.Unlock()
	runs := make([]Run, 0, len(o.byWorker[worker]))
	for r := range o.byWorker[worker] {
		runs = append(runs, *r)
	}
	return runs
}

// Overlaps returns every overlap seen.
func (o *Oracle) Overlaps() []Overlap {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.overlaps)
}

// EpochFaults returns every run that began under an epoch that was not new.
func (o *Oracle) EpochFaults() []EpochFault {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.faults)
}

// Unknown returns the ends of runs that had not begun: faults of the test or of what calls its handlers.
func (o *Oracle) Unknown() []Run {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.unknown)
}

// Gaps returns what was measured since the oracle was made, or since ResetGaps. Gaps that go on count up to now.
func (o *Oracle) Gaps() Gaps {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	var all Gaps
	for id, p := range o.partitions {
		q := *p
		q.close(id, now)
		all.Total += q.total
		all.Count += q.count
		if q.longest.Length() > all.Longest.Length() {
			all.Longest = q.longest
		}
	}
	return all
}

// ResetGaps measures anew from now on. Gaps that go on are cut here.
func (o *Oracle) ResetGaps() {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	for _, p := range o.partitions {
		p.total, p.count, p.longest = 0, 0, Gap{}
		if len(p.running) == 0 {
			p.idleFrom = now
		}
	}
}

// WaitAllRunning returns when every expected partition runs.
func (o *Oracle) WaitAllRunning(ctx context.Context) error {
	for {
		o.mu.Lock()
		idle, changed := o.idle, o.changed
		var example string
		if idle > 0 {
			example = o.idleOne()
		}
		o.mu.Unlock()
		if idle == 0 {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("oracle: %d partitions do not run (%s): %w", idle, example, ctx.Err())
		}
	}
}

func (o *Oracle) idleOne() string {
	for id, p := range o.partitions {
		if p.expected && len(p.running) == 0 {
			return id
		}
	}
	return ""
}

// Check fails the test for everything that must not be: overlaps, epochs that do not grow, ends without a start.
func (o *Oracle) Check(tb TB) {
	tb.Helper()
	for _, v := range o.Overlaps() {
		tb.Errorf("oracle: %v began, while: %v", v.Second, v.First)
	}
	for _, f := range o.EpochFaults() {
		tb.Errorf("oracle: %v began, after: %v", f.Later, f.Earlier)
	}
	for _, r := range o.Unknown() {
		tb.Errorf("oracle: a run that had not begun has ended: %s by %s under epoch %d", r.Partition, r.Worker, r.Epoch)
	}
}
