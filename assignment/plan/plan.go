package plan

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/partigo/parti/types"
)

// Slice is what one worker owns. Its entries are sorted by partition ID.
type Slice struct {
	types.Holder
	// GraceUntil, where not 0, keeps the entries in place although the worker has said that it restarts: Unix time in ms.
	GraceUntil int64
	Entries    []types.AssignmentEntry
}

// State is a whole commit, decoded. Entries share memory with each other and with earlier states, and must not be changed.
type State struct {
	Version int64
	Slices  []Slice             // sorted by worker ID
	Parked  []types.ParkedEntry // sorted by partition ID; retired ones too
}

// Worker is a worker that the next commit may list.
type Worker struct {
	types.Holder
	Labels []string
	// Capacity is what it takes at most.
	Capacity types.Capacity
	// Target: it may be given partitions.
	Target bool
	// Listed: the commit lists it even if it is no target.
	Listed bool
	// Keep says which of its partitions stay for now with a worker that is Listed and no target; nil: none.
	Keep func(partitionID string) bool
	// GraceUntil, where not 0: it restarts, and keeps what it has until then, whatever Target and Labels say.
	GraceUntil int64
}

// keeps reports whether the partition stays whatever a strategy says.
func (w *Worker) keeps(partitionID string) bool {
	return w.GraceUntil != 0 || w.Listed && !w.Target && w.Keep != nil && w.Keep(partitionID)
}

// Input is what a plan is made from. It is read only.
type Input struct {
	// Version of the commit to make, above that of Previous.
	Version int64
	// Partitions of the source, in any order, none twice.
	Partitions []types.Partition
	// Workers in any order, none twice. One that is neither a target nor Listed nor within its grace is not listed in the result,
	// like one that is missing here.
	Workers []Worker
	// Previous is the last commit; nil where there is none.
	Previous *State
	// Released reports whether it is proved that the holder no longer runs the partition and never will under a commit older
	// than version. nil: nothing is proved.
	Released func(h types.Holder, version int64, partitionID string) bool
	// Reissue, where not empty, lists the holders that may run anything, because the store has lost commits.
	Reissue []types.Holder
	// Park may give a reason, in words for an operator, not to place a partition; "" places it. It must be deterministic and its words
	// stable, since another reason makes another commit. A partition whose label no target carries is parked without it, unless Spill
	// says otherwise. nil: nothing else is parked.
	Park func(types.Partition) string
	// SharedUnlabeled has Solve give partitions without a label to any worker, and not only to those without labels.
	SharedUnlabeled bool
	// Barred says, by partition ID, which workers are not to have it. It binds as long as another worker that has room may.
	Barred map[string][]string
	// Spill reports whether partitions with a label that no target carries are placed like those without one; nil: none is.
	Spill func(label string) bool
}

// Result is the next commit.
type Result struct {
	State *State
	// Changed is false where State says nothing that Previous does not say: there is no need to publish it.
	Changed bool
	// Moved counts the partitions that go from one worker to another. A new incarnation of the same ID is no other worker.
	Moved int
	// Forced counts those of Moved that could not have stayed: the worker is gone or no target, or lacks the label.
	Forced int
	// Gained are the workers that get partitions which could have stayed with other ones; nil: none.
	Gained map[string]bool
}

// Reasons for parking given by this package.
const (
	reasonNoWorker = "no worker can be given partitions"
	reasonLabel    = "no worker carries label "
	reasonRetired  = "left the source; an earlier holder may still run it"
	reasonRoom     = "no worker has room"
)

// Problem is a prepared input: what the strategy is asked, and everything needed to make a commit of its answer.
type Problem struct {
	// Strategy is the question. There is nothing to ask where it has no partitions, which is always so where it has no workers.
	Strategy types.AssignmentInput

	in      Input
	ids     []string // of the source's partitions, sorted
	order   []int32  // ids[i] is in.Partitions[order[i]]
	places  *places
	listed  []Worker // sorted; what the next commit lists
	targets []int32  // strategy worker → listed
	// fate has for each partition who decides about it: askStrategy, park, or the worker (an index in listed) that keeps it.
	fate    []int32
	reasons map[int32]string // of the parked
	spilled map[string]bool  // labels that bind nobody

	prev prevState
}

const (
	askStrategy = -1
	park        = -2
)

// Prepare sorts out what is decided already, and what the strategy is to decide. It fails only for an input that no caller should
// make: a partition (types.ErrDuplicatePartition, as types.ErrCoverageMismatch) or worker listed twice, or a version that is not
// above the previous one.
func Prepare(in Input) (*Problem, error) {
	p := &Problem{in: in, reasons: make(map[int32]string), spilled: make(map[string]bool)}
	if in.Previous != nil && in.Version <= in.Previous.Version || in.Version <= 0 {
		return nil, fmt.Errorf("plan: version %d does not follow version %d", in.Version, previousVersion(in.Previous))
	}
	if err := p.sortWorkers(); err != nil {
		return nil, err
	}
	if err := p.sortPartitions(); err != nil {
		return nil, err
	}
	p.prev.read(in.Previous, p.places, p.ids, p.in.Version)
	p.decide()
	return p, nil
}

func previousVersion(s *State) int64 {
	if s == nil {
		return 0
	}
	return s.Version
}

func (p *Problem) sortWorkers() error {
	for _, w := range p.in.Workers {
		if w.Target || w.Listed || w.GraceUntil != 0 {
			p.listed = append(p.listed, w)
		}
	}
	slices.SortFunc(p.listed, func(a, b Worker) int { return strings.Compare(a.Worker, b.Worker) })
	for i, w := range p.listed {
		if i > 0 && p.listed[i-1].Worker == w.Worker {
			return fmt.Errorf("plan: worker %q is listed twice", w.Worker)
		}
		if w.Target && w.GraceUntil == 0 {
			p.targets = append(p.targets, int32(i))
			p.Strategy.Workers = append(p.Strategy.Workers, types.Worker{
				ID: w.Worker, Labels: slices.Compact(slices.Sorted(slices.Values(w.Labels))), Capacity: w.Capacity,
			})
		}
	}
	return nil
}

func (p *Problem) sortPartitions() error {
	type named struct {
		id string
		i  int32
	}
	n := len(p.in.Partitions)
	names := make([]named, n)
	for i := range p.in.Partitions {
		names[i] = named{p.in.Partitions[i].ID(), int32(i)}
	}
	byID := func(a, b named) int { return strings.Compare(a.id, b.id) }
	if !slices.IsSortedFunc(names, byID) {
		slices.SortFunc(names, byID)
	}
	p.ids, p.order = make([]string, n), make([]int32, n)
	for i, x := range names {
		if i > 0 && names[i-1].id == x.id {
			return fmt.Errorf("%w: %w %q: the source lists it twice", types.ErrCoverageMismatch, types.ErrDuplicatePartition, x.id)
		}
		p.ids[i], p.order[i] = x.id, x.i
	}
	p.places = newPlaces(n, func(i int32) []string { return p.partition(i).Keys })
	return nil
}

func (p *Problem) partition(i int32) *types.Partition { return &p.in.Partitions[p.order[i]] }

// decide settles what needs no strategy, and fills in the question.
func (p *Problem) decide() {
	listed := make(map[string]int32, len(p.listed))
	for i, w := range p.listed {
		listed[w.Worker] = int32(i)
	}
	asked := make([]int, len(p.listed)) // listed → strategy worker
	for i := range asked {
		asked[i] = types.NoOwner
	}
	labels := make(map[string]bool)
	for s, i := range p.targets {
		asked[i] = s
		for _, l := range p.listed[i].Labels {
			labels[l] = true
		}
	}
	p.prev.listed = make([]int32, len(p.prev.holders))
	for s, h := range p.prev.holders {
		i, ok := listed[h.Worker]
		if !ok {
			i = types.NoOwner
		}
		p.prev.listed[s] = i
	}
	n := len(p.ids)
	p.fate = make([]int32, n)
	p.Strategy.Partitions = make([]types.Partition, 0, n)
	p.Strategy.Previous = make([]int, 0, n)
	for i := range int32(n) {
		owner := p.prev.ownerOf(i)
		if owner >= 0 && p.listed[owner].keeps(p.ids[i]) {
			p.fate[i] = owner
			continue
		}
		part := p.partition(i)
		if reason := p.parkReason(part, labels); reason != "" {
			p.fate[i], p.reasons[i] = park, reason
			continue
		}
		p.fate[i] = askStrategy
		before := types.NoOwner
		if owner >= 0 {
			before = asked[owner]
		}
		p.Strategy.Partitions = append(p.Strategy.Partitions, *part)
		p.Strategy.Previous = append(p.Strategy.Previous, before)
	}
}

func (p *Problem) parkReason(part *types.Partition, labels map[string]bool) string {
	switch {
	case len(p.targets) == 0:
		return reasonNoWorker
	case part.Label != "" && !labels[part.Label]:
		if p.in.Spill == nil || !p.in.Spill(part.Label) {
			return reasonLabel + part.Label
		}
		p.spilled[part.Label] = true
	}
	switch {
	case p.in.Park != nil:
		return p.in.Park(*part)
	}
	return ""
}

// Validate reports why owners is no answer to in: it has another length, names a worker that does not exist, or gives a
// partition to one without its label. At most ten faults, joined; each wraps types.ErrInvalidAssignment.
func Validate(in types.AssignmentInput, owners []int) error { return validate(in, owners, mayHave) }

func validate(in types.AssignmentInput, owners []int, mayHave func(*types.Worker, *types.Partition) bool) error {
	const most = 10
	if len(owners) != len(in.Partitions) {
		return fmt.Errorf("%w: %d owners for %d partitions", types.ErrInvalidAssignment, len(owners), len(in.Partitions))
	}
	var errs []error
	for i, o := range owners {
		part := &in.Partitions[i]
		switch {
		case o < 0 || o >= len(in.Workers):
			errs = append(errs, fmt.Errorf("%w: %q is given to worker %d of %d", types.ErrInvalidAssignment, part.ID(), o, len(in.Workers)))
		case !mayHave(&in.Workers[o], part):
			errs = append(errs, fmt.Errorf("%w: %q needs label %q, which %q does not carry",
				types.ErrInvalidAssignment, part.ID(), part.Label, in.Workers[o].ID))
		}
		if len(errs) == most {
			errs = append(errs, errors.New("further faults are not listed"))
			break
		}
	}
	return errors.Join(errs...)
}

func mayHave(w *types.Worker, p *types.Partition) bool {
	return p.Label == "" || slices.Contains(w.Labels, p.Label)
}
