package consumer

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/partigo/parti/internal/natstest"
	"github.com/stretchr/testify/require"
)

// A server that lost the end of a stream, as in a power failure, and has other messages there when a Reader looks again: what was stored in
// their place is not taken for what was read.
func TestEndThatWasLostAndHasGrownAgain(t *testing.T) {
	natstest.Long(t)
	for name, c := range map[string]struct {
		opts  []worldOption
		shift bool // other partitions' messages are in the places of before
	}{
		"a consumer each":         {},
		"shared":                  {opts: []worldOption{withOptions(WithSharedAbove(0))}},
		"in other places":         {shift: true},
		"in other places, shared": {opts: []worldOption{withOptions(WithSharedAbove(0))}, shift: true},
	} {
		t.Run(name, func(t *testing.T) {
			dir, kept := t.TempDir(), t.TempDir()
			orders := filepath.Join(dir, "jetstream", "$G", "streams", "ORDERS")
			opts := append([]worldOption{withFiles()}, c.opts...)
			natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
				runWorld(t, env, func(w *world) {
					w.ledger.unjudged = true // what was handed out is there no more
					w.create()
					w.publish(10)
					env.Server.Stop()
					require.NoError(t, os.CopyFS(kept, os.DirFS(orders)))
					require.NoError(t, env.Server.Start())
					a := w.join()
					a.process()
					w.publish(10)
					w.waitRead(10 * time.Second)
					time.Sleep(time.Second)
					env.Server.Stop()
					require.NoError(t, os.RemoveAll(orders))
					require.NoError(t, os.CopyFS(orders, os.DirFS(kept)))
					a.client.Gate().Cut()
					require.NoError(t, env.Server.Start())
					for p := range w.parts {
						w.ledger.Exempt(p)
					}
					if c.shift {
						w.publish(3, 3)
					}
					w.publish(20)
					a.client.Gate().Heal()
					time.Sleep(5 * time.Second)
					stats := a.Stats().Partitions
					require.Len(t, stats, w.parts)
					for _, p := range stats {
						require.ErrorIs(t, p.Stopped, ErrStreamChanged, "partition %d", p.Partition)
					}
					a.Resume()
					time.Sleep(5 * time.Second)
					for _, p := range a.Stats().Partitions {
						require.NoError(t, p.Stopped)
						require.Greater(t, p.Committed, uint64(29*w.parts))
					}
				}, opts)
			}, natstest.WithStoreDir(dir))
		})
	}
}
