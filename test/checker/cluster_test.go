package checker

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Over a cluster, a commit whose live message was lost is found in the store when a heartbeat names it; one that was never made is a fault all the
// same, later.
func TestOverClusterReadsWhatWasNotHeard(t *testing.T) {
	bubble(t, func(f *forge) {
		v := f.begin()
		f.c.Sync()
		require.NoError(t, f.c.sub.Unsubscribe())
		f.quiet = true
		f.toB(v, Item{a1, v + 1})
		f.quiet = false
		var err error
		f.c.sub, err = f.watcher.Conn().Subscribe(f.c.prefix+">", f.c.hear)
		require.NoError(t, err)
		require.NoError(t, f.watcher.Conn().Flush())
		f.beat(a1, f.ack(v+1))
		f.keepAlive(clusterGrace-time.Second, a1, b1)
		require.Len(t, f.c.Commits(), 1, "not heard")
		f.keepAlive(2*time.Second, a1, b1)
		require.Len(t, f.c.Commits(), 2, "and read")
		require.Empty(t, f.c.Report())

		f.beat(a1, func(b *heartbeat) { b.AppliedVersion = v + 5 })
		require.Empty(t, f.c.Report())
		require.Equal(t, []Rule{HeartbeatAhead}, f.rules())
	}, OverCluster())
}
