package integration

import (
	"fmt"
	"testing"
	"time"

	"github.com/partigo/parti"
	"github.com/partigo/parti/test/grouptest"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// Orders that nobody can follow do not hold up those behind them, and what is ordered together is done with one commit.
func TestOrdersBehindMany(t *testing.T) {
	grouptest.Bubble(t, func(g *grouptest.Group) {
		t := g.T
		settled(g, 5)
		p := newPoison(g)
		before, _ := g.Checker.LastCommit()
		for n := range 300 {
			_, err := p.conn.Request(fmt.Sprintf("$KV.%s.control.f%d", p.control.Bucket(), n), []byte(`{"kind":"evict-partition","worker":"nobody","partition":"p.0"}`), time.Second)
			require.NoError(t, err)
		}
		var drained []string
		for _, w := range g.Live() {
			if w != g.Leader() && len(drained) < 2 {
				drained = append(drained, w.ID())
				p.put(p.control, types.ControlPrefix+w.ID(), `{"kind":"drain","worker":"`+w.ID()+`"}`)
			}
		}
		g.WaitFor(3*time.Second, "all are answered", func() bool {
			v, err := parti.Inspect(t.Context(), newOperator(g).js, grouptest.Namespace)
			require.NoError(t, err)
			answered := 0
			for _, o := range v.Orders {
				if o.State != "" {
					answered++
				}
			}
			return answered == 302
		})
		now, _ := g.Checker.LastCommit()
		t.Logf("drained %v with %d commits", drained, now.Version-before.Version)
		require.LessOrEqual(t, now.Version-before.Version, int64(2))
	})
}
