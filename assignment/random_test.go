package assignment

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/partigo/parti/assignment/plan"
	"github.com/partigo/parti/strategy"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// randomGroup is a leader without a server: the roster, the damper, the label pools, the timing, the state machine and the planner, on a
// clock of its own, as Calculator's loop puts them together.
type randomGroup struct {
	rng     *rand.Rand
	now     time.Time
	cfg     Config
	view    View
	roster  *roster
	hold    *restraint
	pools   labelPools
	timing  timing
	sm      *StateMachine
	source  sourceView
	state   *plan.State
	settled []seat
	known   map[types.Holder]profile
	lives   int
	broken  bool // the strategy
	decided int  // generation of the source
	members []types.Holder
	log     []string
	quiet   map[string]bool // workers whose heartbeats do not come any more
	runs    runBook
	store   storeFault
	commits int
}

// storeFault is what becomes of the next commit.
type storeFault int

const (
	storeWorks storeFault = iota
	storeRefuses
	storeKeepsSilent // the commit lands, and nobody is told
	storeFaults
)

func newRandomGroup(seed uint64) *randomGroup {
	g := &randomGroup{
		rng: rand.New(rand.NewPCG(seed, 39)), now: time.Now(), known: map[types.Holder]profile{}, runs: newRunBook(),
		quiet: map[string]bool{},
		cfg:   Config{HeartbeatTTL: 15 * time.Second},
	}
	g.cfg.setDefaults()
	g.cfg.LabelSpillGrace = []time.Duration{0, types.NeverSpill, 30 * time.Second}[g.rng.IntN(3)]
	if g.rng.IntN(2) == 0 {
		g.cfg.UnlabeledPolicy = types.UnlabeledShared
	}
	g.view = View{Members: map[string]Member{}, Expired: map[string]bool{}, Listings: 1}
	g.roster = newRoster(&g.cfg, g.runs.isReleased)
	g.hold = newRestraint(g.cfg.DampingPeriod)
	g.pools = newLabelPools(g.cfg.LabelSpillGrace)
	g.timing = timing{cfg: &g.cfg}
	g.sm = NewStateMachine(nil)
	g.source = newSourceView(&g.cfg)
	g.changeSource()
	return g
}

func (g *randomGroup) note(format string, args ...any) {
	g.log = append(g.log, fmt.Sprintf(format, args...))
}

var someLabels = [][]string{nil, nil, {"x"}, {"y"}, {"x", "y"}}

func (g *randomGroup) changeSource() {
	n := g.rng.IntN(25)
	list := sourceList{}
	for i := range n {
		list.partitions = append(list.partitions, types.Partition{
			Keys: []string{fmt.Sprintf("p%02d", i)}, Label: []string{"", "", "x", "y"}[g.rng.IntN(4)], Weight: int64(g.rng.IntN(2) * 50 * g.rng.IntN(4)),
		})
	}
	if g.state != nil && !g.roster.recovery.until(g.now).IsZero() {
		g.source.deferred = &list
		return
	}
	g.source.accept(list)
}

// event makes one thing happen.
func (g *randomGroup) event() {
	id := fmt.Sprint("w", g.rng.IntN(6))
	m, here := g.view.Members[id]
	alive := here && !m.State.Gone()
	kind := g.rng.IntN(13)
	g.note("event %d for %s", kind, id)
	switch kind {
	case 0, 1:
		if !alive || g.quiet[id] {
			g.lives++
			m = Member{Heartbeat: types.Heartbeat{
				WorkerID: id, Incarnation: fmt.Sprint("i", g.lives), Capabilities: types.CapAckV1 | types.CapHandoffV1,
				State: types.WorkerActive, Labels: someLabels[g.rng.IntN(len(someLabels))],
			}}
			if g.rng.IntN(3) == 0 {
				m.Capacity = types.Capacity{Partitions: 1 + g.rng.IntN(5)}
			}
			g.view.Members[id] = m
			delete(g.view.Expired, id)
			delete(g.quiet, id)
		}
	case 2:
		if alive {
			m.State = types.WorkerLeft
			g.view.Members[id] = m
		}
	case 3:
		if here { // a crash, announced by the server
			delete(g.view.Members, id)
			g.view.Expired[id] = true
		}
	case 4:
		if alive {
			m.Labels = someLabels[g.rng.IntN(len(someLabels))]
			g.view.Members[id] = m
		}
	case 5:
		if alive {
			m.Capacity = types.Capacity{Partitions: g.rng.IntN(5), Weight: int64(g.rng.IntN(2) * 400)}
			g.view.Members[id] = m
		}
	case 6:
		g.changeSource()
	case 7:
		g.broken = !g.broken
	case 8: // another leader
		g.hold, g.pools = newRestraint(g.cfg.DampingPeriod), newLabelPools(g.cfg.LabelSpillGrace)
		g.known, g.settled = map[types.Holder]profile{}, nil
	case 9: // some runs are proved to be over
		g.runs.release(g.rng)
	case 10:
		g.store = storeFault(g.rng.IntN(int(storeFaults)))
	case 11:
		g.quiet[id] = true
	case 12:
		g.list()
	}
}

func (g *randomGroup) list() { g.view.Listings, g.view.Listed = g.view.Listings+1, g.now }

// beat lets all heartbeats come that do.
func (g *randomGroup) beat() {
	for id, m := range g.view.Members {
		if !g.quiet[id] {
			m.Seen = g.now
			g.view.Members[id] = m
		}
	}
}

// step does what the loop's step does, and reports whether a decision was made.
func (g *randomGroup) step() (bool, error) {
	g.beat()
	if g.source.deferred != nil && g.roster.recovery.until(g.now).IsZero() {
		g.source.accept(*g.source.deferred)
	}
	s := g.roster.evaluate(g.view, g.state, g.now)
	parked := map[string]bool{}
	if g.state != nil {
		for i := range g.state.Parked {
			if e := &g.state.Parked[i]; !e.Retired {
				parked[e.Label] = true
			}
		}
	}
	g.hold.inherit(&s, g.state, func(string) bool { return false }, g.now)
	g.hold.look(&s, parked, g.pools.wanted, g.now)
	members := make([]types.Holder, len(s.seats))
	for i := range s.seats {
		members[i] = s.seats[i].Holder
	}
	if !slices.Equal(members, g.members) {
		g.members, g.timing.quietSince = members, g.now
	}
	g.pools.see(&g.source, s.seats, g.state, g.now)
	due, _ := g.pools.due(g.now)
	f := facts{
		change: compare(g.state, &s, g.known), first: g.state == nil, partitions: g.decided != g.source.generation,
		takeover: g.state != nil && g.settled == nil, ready: s.ready(), spill: g.pools.overdue(due),
	}
	reason, at, window := g.timing.decide(f, g.now)
	switch {
	case reason == "":
		g.sm.ReturnToIdle()
		return false, nil
	case g.now.Before(at):
		if window {
			g.sm.EnterScaling(reason)
		}
		return false, nil
	case reason == types.LifecycleEmergency:
		g.sm.TryClaimEmergency()
	case !g.sm.EnterRebalancing(reason):
		g.sm.TryClaimRebalancing(reason)
	}
	if state := g.sm.GetState(); state == types.CalculatorIdle || state == types.CalculatorScaling {
		return false, fmt.Errorf("%s for %s", state, reason)
	}
	err := g.decide(&s, due, reason)
	g.sm.ReturnToIdle()
	return true, err
}

func (g *randomGroup) decide(s *sitting, due map[string]bool, reason string) error {
	in := plan.Input{
		Version: 1, Partitions: g.source.list.partitions, Previous: g.state, SharedUnlabeled: g.cfg.UnlabeledPolicy == types.UnlabeledShared,
		Spill: func(l string) bool { return due[l] }, Released: g.runs.isReleased,
	}
	if g.state != nil {
		in.Version = g.state.Version + 1
	}
	for i := range s.seats {
		in.Workers = append(in.Workers, s.seats[i].Worker)
	}
	p, err := plan.Prepare(in)
	if err != nil {
		return err
	}
	answer, err := p.Solve(func(q types.AssignmentInput) ([]int, error) {
		if g.broken {
			return nil, errors.New("broken")
		}
		return strategy.Sticky().Assign(context.Background(), q)
	})
	if err != nil {
		answer = p.SolveFallback()
	}
	next, err := p.NextOf(answer)
	if err != nil {
		return err
	}
	g.note("%s: changed %v, moved %d, store %d", reason, next.Changed, next.Moved, g.store)
	before, fault := g.state, g.store
	if next.Changed {
		g.commits++
	}
	if next.Changed && fault != storeRefuses {
		g.state = next.State
	}
	if next.Changed && fault != storeWorks { // the commit is read back, and everything decided anew
		g.store, g.settled = storeWorks, nil
		g.roster.recovery.trouble(g.now)
		return g.runs.commit(before, g.state)
	}
	if next.Changed {
		if reason == types.LifecycleScale || reason == types.LifecycleColdStart {
			g.timing.lastJoins = g.now
		}
	}
	g.hold.decided(verdictOf(s.seats, s.dead, s.gone, next.Gained), g.now)
	g.pools.spilled, g.decided, g.settled = due, g.source.generation, s.seats
	g.known = map[types.Holder]profile{}
	for i := range s.seats {
		g.known[s.seats[i].Holder] = profileOf(&s.seats[i].Worker)
	}
	g.timing.urgentSince, g.timing.windowSince = time.Time{}, time.Time{}
	return errors.Join(g.check(s, due), g.runs.commit(before, g.state))
}

// check holds what every commit promises of what it lists.
func (g *randomGroup) check(s *sitting, due map[string]bool) error {
	seats := map[types.Holder]*seat{}
	carried := map[string]bool{}
	for i := range s.seats {
		seats[s.seats[i].Holder] = &s.seats[i]
		for _, l := range s.seats[i].Labels {
			carried[l] = carried[l] || s.seats[i].Target
		}
	}
	found := map[string]bool{}
	for _, sl := range g.state.Slices {
		w := seats[sl.Holder]
		if w == nil {
			return fmt.Errorf("%v is listed and has no seat", sl.Holder)
		}
		var cost int64
		for i := range sl.Entries {
			e := &sl.Entries[i]
			id := e.ID()
			cost += e.Cost()
			if found[id] {
				return fmt.Errorf("%s is given twice", id)
			}
			found[id] = true
			if e.Label != "" && !w.held && !slices.Contains(w.Labels, e.Label) && (carried[e.Label] || !due[e.Label]) {
				return fmt.Errorf("%s with label %s is on %v", id, e.Label, sl.Holder)
			}
		}
		if !w.Capacity.Admits(len(sl.Entries), cost) {
			return fmt.Errorf("%v has %d partitions of cost %d", sl.Holder, len(sl.Entries), cost)
		}
	}
	for i := range g.state.Parked {
		e := &g.state.Parked[i]
		if e.Retired {
			continue
		}
		if found[e.ID()] || e.Reason == "" {
			return fmt.Errorf("%s is parked, for %q", e.ID(), e.Reason)
		}
		found[e.ID()] = true
	}
	want := map[string]bool{}
	for i := range g.source.list.partitions {
		want[g.source.list.partitions[i].ID()] = true
	}
	if !maps.Equal(found, want) {
		return fmt.Errorf("assigned and parked are %v, the source has %v", found, want)
	}
	return nil
}

// settle lets time pass without events until nothing is decided any more.
func (g *randomGroup) settle() error {
	g.broken, g.store = false, storeWorks
	g.now = g.now.Add(11 * time.Minute) // no damping is left, and every grace is over
	g.list()
	for range 50 {
		if _, err := g.step(); err != nil {
			return err
		}
		g.now = g.now.Add(5 * time.Second)
	}
	before := g.state
	for range 40 {
		if decided, err := g.step(); err != nil || decided {
			return errors.Join(err, fmt.Errorf("still deciding: %v", decided))
		}
		g.now = g.now.Add(30 * time.Second)
	}
	if !reflect.DeepEqual(before, g.state) {
		return errors.New("still changing")
	}
	return nil
}

// Ten thousand random histories (a tenth with the race detector) over everything that decides and needs no server. Coverage, labels, capacity, epochs and who
// is waited for are right in every commit, and once nothing happens any more, nothing is decided any more.
func TestRandomHistories(t *testing.T) {
	commits := 0
	for seed := range uint64(histories) {
		g := newRandomGroup(seed)
		err := func() error {
			for range 15 {
				g.event()
				for range 1 + g.rng.IntN(3) {
					if _, err := g.step(); err != nil {
						return err
					}
					g.now = g.now.Add(time.Duration(g.rng.Int64N(int64(8 * time.Second))))
				}
			}
			return g.settle()
		}()
		if err != nil {
			for _, l := range g.log {
				t.Log(l)
			}
			t.Fatalf("seed %d: %v", seed, err)
		}
		commits += g.commits
	}
	require.Greater(t, commits, 3*histories, "this is about commits")
}
