package parti

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/partigo/parti/election"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// Commits that fail make a leader degraded when three in a row have, and the first of them a quarter of a HeartbeatTTL ago. That is over with
// the next commit, and with the term; and what the calculator of a former term says counts nothing.
func TestDegradedByCommitsThatFail(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		m := assembled(t, env)
		const first, second = 5, 9
		former := m.calculatorConfig(election.Term{Revision: first}, nil, make(chan error, 1)).OnPublish
		present := m.calculatorConfig(election.Term{Revision: second}, nil, make(chan error, 1)).OnPublish
		refused, bound := errors.New("the bucket is full"), m.set.HeartbeatTTL/4

		m.health.lead(first)
		began := time.Now()
		former(types.ErrCommitConflict, 1, began)
		former(types.ErrCommitConflict, 2, began)
		require.Equal(t, StateStable, m.State(), "as in a change of the lead")
		former(types.ErrCommitConflict, 3, began)
		time.Sleep(bound - time.Nanosecond)
		former(refused, 9, began)
		require.Equal(t, StateStable, m.State(), "not for long")
		time.Sleep(time.Nanosecond)
		former(refused, 2, began)
		require.Equal(t, StateStable, m.State(), "not often")
		former(refused, 3, began)
		require.Equal(t, "the leader cannot publish the assignment: the bucket is full", m.Status().Degraded)
		former(errors.New("a permission is missing"), 4, began)
		require.Equal(t, "the leader cannot publish the assignment: a permission is missing", m.Status().Degraded, "the newest reason")
		former(nil, 0, time.Time{})
		require.Equal(t, StateStable, m.State(), "a commit was made")

		former(refused, 3, began)
		require.Equal(t, StateDegraded, m.State())
		for _, term := range []uint64{0, second} {
			m.health.lead(term)
			require.Equal(t, StateStable, m.State(), "the lead is lost")
			former(refused, 3, began)
			require.Equal(t, StateStable, m.State(), "term %d", term)
		}
		present(refused, 3, began)
		require.Equal(t, StateDegraded, m.State())
		require.NoError(t, m.Stop(context.Background()))
	})
}
