package integration

import (
	"testing"
	"time"

	"github.com/partigo/parti"
	"github.com/partigo/parti/test/checker"
	"github.com/partigo/parti/test/grouptest"
	"github.com/stretchr/testify/require"
)

// outliving kills a worker that does not lead, and has its key live on, as where the server's clock was set back or somebody has written the
// value once more.
func outliving(g *grouptest.Group) *grouptest.Worker {
	w := g.Follower()
	p := newPoison(g)
	e, err := p.beats.Get(g.T.Context(), "heartbeat."+w.ID())
	require.NoError(g.T, err)
	w.Kill()
	p.put(p.beats, "heartbeat."+w.ID(), string(e.Value()))
	return w
}

// A key that outlives its holder proves that the holder has ended, when it was not renewed for as long as a lease lasts.
func TestKeyThatDoesNotExpire(t *testing.T) {
	grouptest.Bubble(t, func(g *grouptest.Group) {
		g.Start(4)
		g.WaitAllRunning(10 * time.Second)
		g.Sleep(20 * time.Second)
		w := outliving(g)
		took := g.WaitAllRunning(9 * time.Minute)
		t.Logf("%s repaired after %v", w.ID(), took)
		require.LessOrEqual(t, took, 6*ttl)
		g.Sleep(10 * time.Second)
		commits, before := len(g.Checker.Commits()), received(g)
		g.Sleep(time.Minute)
		require.Len(t, g.Checker.Commits(), commits, "nothing follows")
		t.Logf("%d messages in a minute", received(g)-before)
	}, fast, grouptest.Ignoring(checker.Unguarded))
}

// The same for a worker whose ID is given: its replacement does not wait for ever.
func TestReplacementOverAKeyThatDoesNotExpire(t *testing.T) {
	grouptest.Bubble(t, func(g *grouptest.Group) {
		named(g, 3)
		g.WaitAllRunning(10 * time.Second)
		g.Sleep(20 * time.Second)
		w := outliving(g)
		began := time.Now()
		g.Start(1, parti.WithWorkerID(w.ID()))
		t.Logf("claimed after %v", time.Since(began))
		require.LessOrEqual(t, time.Since(began), 2*ttl)
		g.WaitAllRunning(2 * ttl)
	}, fast, grouptest.Ignoring(checker.Unguarded))
}
