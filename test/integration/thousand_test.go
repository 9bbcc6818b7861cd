//go:build !race

// The race detector makes this one take minutes; .ci/run runs it without.

package integration

import (
	"fmt"
	"testing"
	"time"

	"github.com/partigo/parti"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/test/grouptest"
	"github.com/stretchr/testify/require"
)

// Row 43: more workers than the default limit of consumers a stream, on a server with default settings.
func TestMoreThanAThousandWorkers(t *testing.T) {
	natstest.Long(t)
	const n = 1001
	grouptest.Bubble(t, func(g *grouptest.Group) {
		for i := range n {
			w := g.Make(parti.WithWorkerID(fmt.Sprintf("pod-%04d", i)))
			require.NoError(t, w.Start())
		}
		g.WaitAllRunning(30 * time.Second)
		g.WaitFor(10*time.Second, "all follow the commit", func() bool { return applied(g, g.Live()) })
		require.LessOrEqual(t, g.Spread(), 1)
	}, grouptest.Partitions(n), grouptest.Manager(parti.WithHeartbeat(3*time.Second, 15*time.Second)))
}
