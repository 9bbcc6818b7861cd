package parti

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti/election"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// assembled returns a stable Manager with all its parts, of which none but the feed has started: a test can be its calculator.
func assembled(t *testing.T, env *natstest.Env) *Manager {
	t.Helper()
	m := newTestManager(t, env.Connect("w").JS())
	buckets, err := m.findBuckets(context.Background())
	require.NoError(t, err)
	p, err := m.assemble(buckets, make(chan error, 1))
	require.NoError(t, err)
	require.True(t, m.setParts(p))
	require.NoError(t, p.feed.start())
	p.heartbeats.Close()
	m.health.setPhase(types.StateStable, "test")
	return m
}

// The calculator of a term may take a moment to end, where its calls hang. What it says when the term is over changes nothing any more, and
// nothing about the next term.
func TestLateWordsOfAFormerTerm(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		m := assembled(t, env)
		const first, second = 5, 9
		former := m.calculatorConfig(election.Term{Revision: first}, nil, make(chan error, 1))
		present := m.calculatorConfig(election.Term{Revision: second}, nil, make(chan error, 1))
		stalled := func(c func(error, int, time.Time)) {
			c(errors.New("no answer"), stalledListings, time.Now().Add(-time.Hour))
		}

		m.health.lead(first)
		former.OnStateChange(types.CalculatorIdle, types.CalculatorScaling, "join")
		require.Equal(t, StateScaling, m.State())
		stalled(former.OnListing)
		require.Equal(t, StateDegraded, m.State())
		m.health.lead(0)
		require.Equal(t, StateStable, m.State(), "the end of the term ends both")

		for _, term := range []uint64{0, second} {
			m.health.lead(term)
			stalled(former.OnListing)
			former.OnStateChange(types.CalculatorIdle, types.CalculatorRebalancing, "join")
			require.Equal(t, StateStable, m.State(), "term %d", term)
		}
		present.OnStateChange(types.CalculatorIdle, types.CalculatorRebalancing, "join")
		require.Equal(t, StateRebalancing, m.State())
		stalled(present.OnListing)
		require.Equal(t, StateDegraded, m.State())
		require.NoError(t, m.Stop(context.Background()))
	})
}

// A term that is won in the moment in which it is no longer wanted: nothing was there to step down from when that was decided, and yet its end
// has a reason.
func TestTermThatWasNeverWantedEndsWithAReason(t *testing.T) {
	m := newTestManager(t, struct{ jetstream.JetStream }{})
	var told []Leadership
	m.set.hooks.OnSteppingDown = func(l Leadership) { told = append(told, l) }
	m.set.hooks.OnLeadershipLost = func(l Leadership) { told = append(told, l) }
	m.lead.stepping(m, ErrStopped)
	m.lead.elected(m, 3)
	m.lead.lost(m, nil)
	m.lead.elected(m, 4)
	m.lead.stepping(m, ErrStopped)
	m.lead.lost(m, nil)
	require.NoError(t, m.hooks.Wait(t.Context()))
	require.Equal(t, []Leadership{{Term: 3, Reason: types.ErrLeadershipLost}, {Term: 4, Reason: ErrStopped}, {Term: 4, Reason: ErrStopped}}, told)
}
