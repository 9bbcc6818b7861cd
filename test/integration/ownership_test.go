package integration

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/partigo/parti"
	"github.com/partigo/parti/test/grouptest"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// transitions is what the workers' OnOwnership was told, by partition and epoch.
type transitions struct {
	mu  sync.Mutex
	all map[string]map[int64][]parti.OwnershipChange
}

func (l *transitions) hook() parti.Option {
	return parti.WithHooks(parti.Hooks{OnOwnership: func(c parti.OwnershipChange) {
		l.mu.Lock()
		defer l.mu.Unlock()
		id := c.Partition.ID()
		if l.all[id] == nil {
			l.all[id] = map[int64][]parti.OwnershipChange{}
		}
		l.all[id][c.Epoch] = append(l.all[id][c.Epoch], c)
	}})
}

// of returns where an ownership was, in order.
func (l *transitions) of(partition string, epoch int64) (path []types.OwnershipState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.all[partition][epoch] {
		path = append(path, c.To)
	}
	return path
}

// A partition moves in good order, then its worker crashes, then the group stops: each ownership is told from its assignment to its release,
// and the new owner waits for the old one.
func TestOwnershipIsToldThroughMoves(t *testing.T) {
	l := &transitions{all: map[string]map[int64][]parti.OwnershipChange{}}
	waited := []types.OwnershipState{types.OwnershipAssigned, types.OwnershipWaiting, types.OwnershipRunning}
	const p = "p-0003"
	grouptest.Bubble(t, func(g *grouptest.Group) {
		op := newOperator(g)
		settled(g, 4)
		first := g.Oracle.Running()[p]
		w := taken(g, op, p)
		g.WaitFor(5*time.Second, "it runs elsewhere", func() bool { r, ok := g.Oracle.Running()[p]; return ok && r.Worker != w.ID() })
		second := g.Oracle.Running()[p]
		require.Equal(t, append(waited[:0:0], types.OwnershipDraining, types.OwnershipReleased), l.of(p, first.Epoch)[len(l.of(p, first.Epoch))-2:])
		require.Equal(t, waited, l.of(p, second.Epoch))

		for _, w := range g.Live() {
			if w.ID() == second.Worker {
				w.Kill()
			}
		}
		g.WaitFor(2*ttl, "it was taken over", func() bool { r, ok := g.Oracle.Running()[p]; return ok && r.Epoch > second.Epoch })
		third := g.Oracle.Running()[p]
		require.Equal(t, waited, l.of(p, third.Epoch))
		l.mu.Lock()
		waits := l.all[p][third.Epoch][1]
		l.mu.Unlock()
		require.Equal(t, second.Worker, waits.WaitingFor[0].Worker)
		require.Equal(t, append(waited[:3:3], types.OwnershipDraining, types.OwnershipReleased), l.of(p, second.Epoch), "a closed connection stops a Manager")

		for _, w := range g.Live() {
			if w.ID() == third.Worker {
				w.Stop()
			}
		}
		path := l.of(p, third.Epoch)
		require.Equal(t, "[assigned waiting running draining released]", fmt.Sprint(path), "Stop waits until it is told")
		l.mu.Lock()
		defer l.mu.Unlock()
		last := l.all[p][third.Epoch]
		require.ErrorIs(t, last[len(last)-1].Cause, parti.ErrStopped)
	}, fast, grouptest.Partitions(40), slow(200*time.Millisecond, p), grouptest.Manager(l.hook()))
}

// A hook that blocks for ever keeps nobody from moving, and Stop waits for it as long as its context allows.
func TestBlockedOwnershipHook(t *testing.T) {
	var hang chan struct{}
	grouptest.Bubble(t, func(g *grouptest.Group) {
		hang = make(chan struct{})
		defer close(hang)
		op := newOperator(g)
		settled(g, 3)
		w := taken(g, op, "p-0003")
		g.WaitFor(time.Second, "all run elsewhere", func() bool { return g.Oracle.Idle() == 0 && runsOf(g, w.ID()) == 0 })
		ctx, cancel := limited(3 * time.Second)
		defer cancel()
		began := time.Now()
		require.ErrorIs(t, w.StopWithin(ctx), ctx.Err())
		require.Equal(t, 3*time.Second, time.Since(began))
		g.WaitAllRunning(time.Second)
		for _, w := range g.Live() {
			ctx, cancel := limited(time.Second)
			defer cancel()
			require.Error(t, w.StopWithin(ctx))
		}
	}, fast, grouptest.Partitions(12), grouptest.Manager(parti.WithHooks(parti.Hooks{OnOwnership: func(parti.OwnershipChange) { <-hang }})))
}
