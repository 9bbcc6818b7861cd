package assignment

import (
	"testing"
	"time"

	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// Whatever makes a commit look lost again and again, it is made up for at once the first time, and once a minute in the long run. What else there is
// to decide waits no longer for that.
func TestLostCommitsAreSpacedOut(t *testing.T) {
	tm := timing{cfg: &Config{}}
	now := time.Now()
	began, n := now, 0
	lost := facts{lost: true, ready: 1}
	for now.Sub(began) < time.Hour {
		reason, at, _ := tm.decide(lost, now)
		require.Equal(t, types.LifecycleRecovery, reason)
		if n == 0 {
			require.Equal(t, now, at, "the first at once")
		}
		if at.After(now) {
			other := lost
			other.partitions = true
			reason, soon, _ := tm.decide(other, now)
			require.Equal(t, types.LifecyclePartitions, reason)
			require.Equal(t, now, soon)
			now = at
			continue
		}
		n++
		tm.lost.reissued(now)
		require.LessOrEqual(t, tm.lost.until.Sub(now), lastLostPause)
	}
	t.Logf("%d commits in an hour", n)
	require.Less(t, n, 2*60+10)
	require.Greater(t, n, 30)

	now = now.Add(lostForgotten)
	tm.lost.reissued(now)
	require.LessOrEqual(t, tm.lost.until.Sub(now), firstLostPause, "forgotten")
}
