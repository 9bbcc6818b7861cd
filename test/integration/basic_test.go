// Package integration holds the scenarios of whole groups. Every one runs under the eyes of the independent checker and of the
// oracle, see package grouptest.
package integration

import (
	"testing"
	"time"

	"github.com/partigo/parti/test/grouptest"
	"github.com/stretchr/testify/require"
)

func TestThreeWorkersShareEverything(t *testing.T) {
	grouptest.Bubble(t, func(g *grouptest.Group) {
		g.Start(3)
		took := g.WaitAllRunning(5 * time.Second)
		t.Logf("all running after %v", took)
		require.LessOrEqual(t, g.Spread(), 1)
	}, grouptest.Partitions(40))
}
