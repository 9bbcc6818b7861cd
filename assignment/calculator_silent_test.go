package assignment

import (
	"testing"
	"time"

	"github.com/partigo/parti/assignment/plan"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// The marker of a worker that died was missed, and no listing comes through: it keeps what it has and is given nothing, until something is heard
// of it. Found by seed 975 of test/sim.
func TestSilentWorkerIsGivenNothing(t *testing.T) {
	now := time.Now()
	r := newRoster(&Config{HeartbeatTTL: testTTL}, nil)
	member := func(id string, seen time.Time) Member {
		return Member{Heartbeat: types.Heartbeat{WorkerID: id, Incarnation: "i", State: types.WorkerActive, Capabilities: types.CapAckV1}, Seen: seen}
	}
	committed := &plan.State{Slices: []plan.Slice{
		{Holder: types.Holder{Worker: "a", Incarnation: "i"}},
		{Holder: types.Holder{Worker: "c", Incarnation: "earlier"}},
	}}
	view := View{Listings: 1, Members: map[string]Member{
		"a": member("a", now.Add(-2*testTTL)), "b": member("b", now), "c": member("c", now.Add(-2*testTTL)),
		"d": member("d", now.Add(-testTTL)),
	}}
	s := r.evaluate(view, committed, now)
	require.Len(t, s.seats, 3)
	require.True(t, s.seats[0].held && !s.seats[0].Target, "a keeps what it has")
	require.True(t, s.seats[1].Target && s.seats[2].Target, "b and d are heard of")
	require.Equal(t, []string{"c"}, s.gone, "an earlier life of c is over in any case")
	require.Equal(t, 2, s.targets)
	require.True(t, s.relist)
	require.False(t, s.next.IsZero(), "it is looked at again")

	view.Members["a"], view.Members["c"] = member("a", now), member("c", now)
	s = r.evaluate(view, committed, now)
	require.Equal(t, 4, s.targets)
	require.Zero(t, s.held)
}
