package assignment

import (
	"context"
	"testing"
	"time"

	"github.com/partigo/parti/assignment/plan"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// admissions notes when partitions moved for somebody who joined.
type admissions struct {
	gauges
	at []time.Time
}

func (a *admissions) Rebalanced(reason string, _ time.Duration, moved int, _ error) {
	if reason == types.LifecycleScale && moved > 0 {
		a.set(func() { a.at = append(a.at, time.Now()) })
	}
}

// flap has x come and go for ten minutes, and returns when partitions of others moved for it.
func flap(t *testing.T, e *calcEnv, a *admissions, gone func()) (given []time.Duration) {
	e.source.set(40)
	e.fleet.join(ids(4)...)
	e.start(func(c *Config) { c.Metrics = a })
	c, _, _ := e.awaitCommit(0, 10*time.Second)
	e.fleet.ack(c.Version)
	e.quiet(20 * time.Second)
	began := time.Now()
	for time.Since(began) < 10*time.Minute {
		e.fleet.join("x")
		time.Sleep(16 * time.Second)
		gone()
	}
	a.set(func() {
		for _, at := range a.at {
			given = append(given, at.Sub(began))
		}
	})
	t.Logf("partitions were moved to the flapping worker after %v", given)
	return given
}

// settles checks that x, which stays now, is ready while it is damped, and gets its share in the end.
func settles(t *testing.T, e *calcEnv, g *admissions) {
	e.fleet.join("x")
	time.Sleep(10 * time.Second)
	require.Equal(t, 1, g.get(func() any { return g.damped }))
	require.Equal(t, []string{"x"}, e.calc.Status().Damped)
	_, s := e.commit()
	require.Contains(t, workersOf(s), "x", "it is listed, so it is ready")
	time.Sleep(10 * time.Minute)
	n, _ := e.counts()
	require.Equal(t, 8, n["x"])
	require.Zero(t, g.get(func() any { return g.damped }))
}

// A worker that crashes again and again under one ID: others' partitions move for it no more than once in a damping period, which doubles.
func TestCrashLoopIsDamped(t *testing.T) {
	natstest.Long(t)
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		e, g := newCalcEnv(t, env), &admissions{}
		given := flap(t, e, g, func() {
			e.fleet.crash("x")
			time.Sleep(testTTL + 2*time.Second) // its key has expired
		})
		require.Len(t, given, 4)
		for i := 1; i < len(given); i++ {
			require.Greater(t, given[i]-given[i-1], time.Minute<<(i-1)-2*time.Second)
		}
		settles(t, e, g)
	})
}

// One that leaves in good order each time: the first restart is nobody's business, then the same holds.
func TestLeavingAgainAndAgainIsDamped(t *testing.T) {
	natstest.Long(t)
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		e, g := newCalcEnv(t, env), &admissions{}
		given := flap(t, e, g, func() {
			e.fleet.leave("x")
			time.Sleep(4 * time.Second)
		})
		require.GreaterOrEqual(t, len(given), 4)
		require.LessOrEqual(t, len(given), 5)
		require.Less(t, given[1]-given[0], 25*time.Second, "the first restart is not slowed")
		for i := 2; i < len(given); i++ {
			require.Greater(t, given[i]-given[i-1], time.Minute<<(i-2)-2*time.Second)
		}
		settles(t, e, g)
	})
}

// seatsOf returns the seats of active workers.
func seatsOf(ids ...string) (s sitting) {
	for _, id := range ids {
		s.seats = append(s.seats, seat{Worker: plan.Worker{Holder: types.Holder{Worker: id, Incarnation: "i"}, Labels: []string{"x"}, Target: true}})
	}
	s.targets = len(ids)
	return s
}

// What counts as flapping and what does not. Every event is a decision about x, some seconds after the one before.
func TestDamperCountsOnlyFlapping(t *testing.T) {
	type event struct {
		after time.Duration // seconds
		what  string
	}
	for name, c := range map[string]struct {
		events []event
		want   time.Duration // seconds from the last event; 0: not damped
	}{
		"a first death of one who cost nobody anything": {[]event{{0, "start"}, {5, "dies"}}, 0},
		"a death soon after an admission":               {[]event{{0, "admitted"}, {5, "dies"}}, 55},
		"a death long after it":                         {[]event{{0, "admitted"}, {61, "dies"}}, 0},
		"two of them":                                   {[]event{{0, "admitted"}, {5, "dies"}, {60, "admitted"}, {20, "dies"}}, 100},
		"three":                                         {[]event{{0, "admitted"}, {5, "dies"}, {60, "admitted"}, {20, "dies"}, {100, "admitted"}, {40, "dies"}}, 200},
		"never more than ten periods": {[]event{{0, "admitted"}, {5, "dies"}, {60, "admitted"}, {5, "dies"}, {120, "admitted"}, {5, "dies"},
			{240, "admitted"}, {5, "dies"}, {480, "admitted"}, {5, "dies"}, {600, "admitted"}, {5, "dies"}}, 595},
		"who stays starts afresh": {[]event{{0, "admitted"}, {5, "dies"}, {60, "admitted"}, {65, "dies"}, {0, "admitted"}, {5, "dies"}}, 55},
		"who stays, but shorter than it was damped for last": {[]event{{0, "admitted"}, {5, "dies"}, {60, "admitted"}, {5, "dies"},
			{120, "admitted"}, {110, "dies"}}, 130},
		"one departure in good order": {[]event{{0, "admitted"}, {5, "leaves"}}, 0},
		"two departures in a row":     {[]event{{0, "admitted"}, {5, "leaves"}, {5, "admitted"}, {10, "leaves"}}, 50},
		"two with a stay in between":  {[]event{{0, "admitted"}, {5, "leaves"}, {5, "admitted"}, {70, "leaves"}, {5, "admitted"}, {5, "leaves"}}, 0},
		"a drain, and its end":        {[]event{{0, "admitted"}, {5, "drained"}, {5, "admitted"}, {5, "drained"}, {5, "admitted"}, {5, "drained"}}, 0},
		"a restart with a grace":      {[]event{{0, "admitted"}, {5, "grace"}, {5, "start"}, {5, "grace"}, {60, "leaves"}}, 0},
		"one that dies in its grace":  {[]event{{0, "admitted"}, {5, "grace"}, {30, "dies"}}, 0},
		"one that is only missed":     {[]event{{0, "admitted"}, {5, "held"}, {5, "start"}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			d, now := newDamper(time.Minute), time.Now()
			for _, e := range c.events {
				now = now.Add(e.after * time.Second)
				v := verdict{seats: seatsOf("x").seats, gained: map[string]bool{"x": e.what == "admitted"}}
				switch e.what {
				case "dies", "leaves":
					v = verdict{ended: map[string]bool{"x": e.what == "dies"}}
				case "drained":
					v.seats[0].Target, v.seats[0].Listed = false, true
				case "grace":
					v.seats[0].Target, v.seats[0].GraceUntil = false, 1
				case "held":
					v.seats[0].Target, v.seats[0].GraceUntil, v.seats[0].held = false, 1, true
				}
				d.decided(v, now)
			}
			until, damped := d.until("x", now)
			require.Equal(t, c.want > 0, damped)
			if damped {
				require.Equal(t, c.want*time.Second, until.Sub(now))
			}
			d.decided(verdict{ended: map[string]bool{"x": false}}, now)
			d.decided(verdict{}, now.Add(time.Hour))
			require.Empty(t, d.lives, "what is long ago is forgotten")
		})
	}
}

// Damping never leaves partitions without a worker, and never shuts out half of the group.
func TestDampingYields(t *testing.T) {
	r := newRestraint(time.Minute)
	now := time.Now()
	gained := map[string]bool{"a": true, "b": true}
	r.decided(verdict{seats: seatsOf("a", "b", "c").seats, gained: gained}, now)
	r.decided(verdict{seats: seatsOf("c").seats, ended: gained}, now.Add(time.Second))
	two := seatsOf("a", "b", "c")
	r.look(&two, nil, nil, now.Add(2*time.Second))
	require.Equal(t, 3, two.targets, "two of three would be damped")
	one := seatsOf("a", "c")
	r.look(&one, map[string]bool{"x": true}, nil, now.Add(2*time.Second))
	require.Equal(t, 2, one.targets, "it may have what is parked")
	r.look(&one, nil, []string{"x"}, now.Add(2*time.Second))
	require.Equal(t, []string{"a"}, r.held, "c carries its label, too")
	one = seatsOf("a", "c")
	one.seats[1].Labels = nil
	r.look(&one, nil, []string{"x"}, now.Add(2*time.Second))
	require.Empty(t, r.held, "nobody else carries its label")
	r.look(&one, map[string]bool{"y": true}, nil, now.Add(2*time.Second))
	require.Equal(t, []string{"a"}, r.held)
	require.Equal(t, now.Add(time.Minute), one.next)
}

// A rolling restart without a grace, the leader included, that begins right after everybody was given partitions of others: nobody
// waits longer than anybody who joins.
func TestRollingRestartIsNotDamped(t *testing.T) {
	natstest.Long(t)
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		e, g := newCalcEnv(t, env), &gauges{}
		e.source.set(60)
		e.fleet.join(ids(1)...)
		e.start(func(c *Config) { c.Metrics = g })
		e.awaitCommit(0, 10*time.Second)
		for _, id := range ids(6)[1:] { // each is admitted by its own commit
			c, _ := e.commit()
			e.fleet.join(id)
			e.awaitCommit(c.Version, 15*time.Second)
		}
		for i, id := range ids(6) {
			c, _ := e.commit()
			e.fleet.leave(id)
			c, _, _ = e.awaitCommit(c.Version, time.Second)
			if i == 3 {
				e.start(func(c *Config) { c.Metrics = g }) // the leader is restarted as well
			}
			e.fleet.join(id)
			_, _, took := e.awaitCommit(c.Version, time.Minute)
			require.Less(t, took, 11*time.Second, "the cooldown")
			n, _ := e.counts()
			require.Equal(t, 10, n[id])
			require.Zero(t, g.get(func() any { return g.damped }))
		}
	})
}

// A new leader goes on holding back who is held back, and holds nothing against those whose admission it has not made.
func TestNewLeaderAndDamping(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		e := newCalcEnv(t, env)
		e.source.set(20)
		e.steady(ids(4)...)
		e.fleet.join("x")
		c, _ := e.commit()
		e.awaitCommit(c.Version, 15*time.Second)
		e.fleet.crash("x")
		time.Sleep(testTTL + 2*time.Second)
		e.fleet.join("x")
		time.Sleep(13 * time.Second)
		require.Equal(t, []string{"x"}, e.calc.Status().Damped)

		e.start()
		began := time.Now()
		time.Sleep(time.Second)
		e.fleet.crash("w-000")
		e.fleet.crash("w-001") // within a minute of the new leader's first move
		time.Sleep(testTTL + time.Second)
		require.Equal(t, []string{"x"}, e.calc.Status().Damped)
		e.fleet.join("w-000", "w-001")
		time.Sleep(12 * time.Second)
		n, _ := e.counts()
		require.Equal(t, map[string]int{"w-000": 5, "w-001": 5, "w-002": 5, "w-003": 5}, n)
		require.Equal(t, []string{"x"}, e.calc.Status().Damped)
		c, _ = e.commit()
		e.awaitCommit(c.Version, time.Minute)
		n, _ = e.counts()
		require.Equal(t, 4, n["x"])
		require.InDelta(t, 62, time.Since(began).Seconds(), 2, "one period, and the window")
	})
}

// Without a former leader's restraint nobody is held back, whatever it looks like.
func TestNewLeaderInventsNoDamping(t *testing.T) {
	state := func(sizes ...int) *plan.State {
		s := &plan.State{}
		for i, n := range sizes {
			s.Slices = append(s.Slices, plan.Slice{Holder: types.Holder{Worker: string(rune('a' + i)), Incarnation: "i"}, Entries: make([]types.AssignmentEntry, n)})
		}
		return s
	}
	nobody := func(string) bool { return false }
	for name, c := range map[string]struct {
		committed *plan.State
		change    func(*sitting)
		excused   func(string) bool
		want      []string
	}{
		"held back":                    {state(2, 2, 0), nil, nobody, []string{"c"}},
		"there is not enough for all":  {state(1, 1, 0), nil, nobody, nil},
		"others carry other labels":    {state(2, 2, 0), func(s *sitting) { s.seats[2].Labels = nil }, nobody, nil},
		"it takes little":              {state(2, 2, 0), func(s *sitting) { s.seats[2].Capacity.Weight = 1 }, nobody, nil},
		"it is another incarnation":    {state(2, 2, 0), func(s *sitting) { s.seats[2].Incarnation = "j" }, nobody, nil},
		"it was drained":               {state(2, 2, 0), nil, func(w string) bool { return w == "c" }, nil},
		"somebody may stand by":        {state(2, 2, 0), nil, nil, nil},
		"it has joined since":          {state(2, 2), nil, nobody, nil},
		"there is no commit":           {nil, nil, nobody, nil},
		"more than half have nothing":  {state(5, 0, 0), nil, nobody, nil},
		"others with much are leaving": {state(2, 1, 0), func(s *sitting) { s.seats[0].Target = false; s.targets-- }, nobody, nil},
	} {
		t.Run(name, func(t *testing.T) {
			for _, period := range []time.Duration{0, time.Minute} {
				r, s, now := newRestraint(period), seatsOf("a", "b", "c"), time.Now()
				if c.change != nil {
					c.change(&s)
				}
				r.inherit(&s, c.committed, c.excused, now)
				r.look(&s, nil, nil, now)
				require.ElementsMatch(t, c.want, r.held)
			}
		})
	}
}

// A worker that the audit evicted comes back at once, and is given nothing for a minute, with damping or without. Evicted again, for two.
func TestEvictedWorkerIsHeldBack(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		e, g := newCalcEnv(t, env), &gauges{}
		e.source.set(20)
		e.fleet.join(ids(4)...)
		e.start(func(c *Config) {
			c.Metrics, c.DampingPeriod = g, -1
			c.LeaderCheck = func(context.Context) error { return nil }
		})
		c, _, _ := e.awaitCommit(0, 10*time.Second)
		e.fleet.ack(c.Version)
		e.quiet(20 * time.Second)
		for round, hold := range []time.Duration{time.Minute, 2 * time.Minute} {
			e.fleet.stuck("w-001")
			c, _ = e.commit()
			e.source.set(21 + round)
			require.NoError(t, e.calc.Refresh(t.Context()))
			c, _ = e.commit()
			e.fleet.ack(c.Version)
			e.WaitFor(2*time.Minute, "evicted", func() bool { return g.get(func() any { return len(g.evicted) }) == round+1 })
			evicted := time.Now()
			e.fleet.join("w-001")
			time.Sleep(500 * time.Millisecond)
			c, s := e.commit()
			require.Contains(t, workersOf(s), "w-001")
			n, _ := e.counts()
			require.Zero(t, n["w-001"], "what it had goes to others")
			require.Empty(t, s.Parked)
			e.fleet.ack(c.Version)
			e.awaitCommit(c.Version, 3*time.Minute)
			n, _ = e.counts()
			require.NotZero(t, n["w-001"], "it has its share")
			require.InDelta(t, hold.Seconds(), time.Since(evicted).Seconds(), 5)
			c, _ = e.commit()
			e.fleet.ack(c.Version)
			time.Sleep(15 * time.Second)
		}
	})
}

// An eviction that fails changes nothing, and a worker that was given something all the same is not held back later.
func TestProbation(t *testing.T) {
	p, now := probation{}, time.Now()
	next := &plan.Worker{Holder: types.Holder{Worker: "x", Incarnation: "j"}}
	stuck := &plan.Worker{Holder: types.Holder{Worker: "x", Incarnation: "i"}}
	on := func(w *plan.Worker, now time.Time) bool { _, is := p.until(w, now); return is }
	p.evict("x", "i", now)
	require.False(t, on(stuck, now), "it keeps what it has until its key is gone")
	require.True(t, on(next, now))
	p.repaired("x", false, now)
	require.False(t, on(next, now))
	require.Empty(t, p)

	p.evict("x", "i", now)
	p.repaired("x", true, now.Add(time.Second))
	require.True(t, on(next, now.Add(60*time.Second)))
	require.False(t, on(next, now.Add(61*time.Second)))
	now = now.Add(10 * time.Minute)
	p.evict("x", "j", now)
	p.repaired("x", false, now)
	require.False(t, on(next, now))
	for _, minutes := range []int{2, 4, 8, 10, 10} {
		p.evict("x", "j", now)
		p.repaired("x", true, now)
		third := &plan.Worker{Holder: types.Holder{Worker: "x", Incarnation: "k"}}
		end, is := p.until(third, now)
		require.True(t, is)
		require.Equal(t, now.Add(time.Duration(minutes)*time.Minute), end)
		p.decided([]seat{{Worker: plan.Worker{Holder: third.Holder, Target: true}}}, now.Add(time.Second))
		require.False(t, on(third, now.Add(time.Second)))
	}
	p.decided(nil, now.Add(21*time.Minute))
	require.Empty(t, p)
}
