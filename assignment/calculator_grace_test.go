package assignment

import (
	"testing"
	"time"

	"github.com/partigo/parti/assignment/plan"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// A former leader's clock was a day ahead: what it wrote of graces holds nobody's partitions for longer than was asked for, or than any grace may
// last.
func TestGraceByAClockThatIsAhead(t *testing.T) {
	now := time.Now()
	w := types.Holder{Worker: "w", Incarnation: "i"}
	state := &plan.State{Version: 10, Slices: []plan.Slice{{Holder: w, GraceUntil: now.Add(24 * time.Hour).UnixMilli()}}}
	says := func(grace time.Duration) View {
		h := types.Heartbeat{WorkerID: "w", Incarnation: "i", State: types.WorkerRestarting, Capabilities: types.CapAckV1, RestartGrace: grace.Milliseconds()}
		return View{Listings: 1, Members: map[string]Member{"w": {Heartbeat: h}}}
	}
	gone := View{Listings: 1, Expired: map[string]bool{"w": true}}
	cfg := &Config{HeartbeatTTL: testTTL, EmergencyGracePeriod: testTTL / 2}
	listed := func(r *roster, v View, at time.Duration) bool {
		s := r.evaluate(v, state, now.Add(at))
		return len(s.seats) == 1
	}
	released := func(types.Holder, int64, string) bool { return false }

	r := newRoster(cfg, released)
	require.True(t, listed(r, says(time.Minute), 0))
	require.True(t, listed(r, gone, 59*time.Second))
	require.False(t, listed(r, gone, 61*time.Second), "a minute was asked for")

	r = newRoster(cfg, released)
	require.True(t, listed(r, gone, 0), "how long was asked for is not known any more")
	require.True(t, listed(r, gone, types.MaxRestartGrace-time.Second))
	require.False(t, listed(r, gone, types.MaxRestartGrace+time.Second))
}
