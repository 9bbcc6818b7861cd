package parti

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/partigo/parti/election"
	"github.com/partigo/parti/internal/natstest"
	"github.com/stretchr/testify/require"
)

// A leader that cannot list the orders of operators decides nothing. It is degraded, and gives up the lead, by the same rule as one that cannot list
// the workers; the one says nothing of the other.
func TestDegradedByOrdersThatCannotBeListed(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		m := assembled(t, env)
		const term = 5
		gaveUp := make(chan error, 1)
		c := m.calculatorConfig(election.Term{Revision: term}, nil, gaveUp)
		m.health.lead(term)
		slow, began := errors.New("no answer"), time.Now()

		time.Sleep(m.set.HeartbeatTTL)
		c.OnOrders(slow, 2, began)
		require.Equal(t, StateStable, m.State())
		c.OnOrders(slow, 3, began)
		require.Equal(t, "the leader cannot list the orders: no answer", m.Status().Degraded)
		c.OnListing(nil, 0, time.Time{})
		require.Equal(t, StateDegraded, m.State(), "that the workers are listed is no proof")
		c.OnOrders(nil, 0, time.Time{})
		require.Equal(t, StateStable, m.State())
		require.Empty(t, gaveUp)

		time.Sleep(m.set.HeartbeatTTL)
		c.OnOrders(slow, 9, began)
		require.ErrorIs(t, <-gaveUp, slow)
		m.health.lead(0)
		require.Equal(t, StateStable, m.State(), "the lead is over")
		require.NoError(t, m.Stop(context.Background()))
	})
}
