package parti

import (
	"context"
	"testing"
	"time"

	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/kv"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// An order over which another one was written stands until that one is answered.
func TestDrainStandsUntilTheUndrainIsAnswered(t *testing.T) {
	d := &drainOrder{}
	d.follow("w")
	for i, step := range []struct {
		kind   types.ControlKind
		state  types.ControlState
		stands bool
	}{
		{types.ControlDrain, types.ControlAccepted, true},
		{types.ControlUndrain, types.ControlOpen, true},
		{types.ControlUndrain, types.ControlDone, false},
		{types.ControlDrain, types.ControlAccepted, true},
		{types.ControlDrain, types.ControlOpen, true},
	} {
		o := types.ControlOrder{Kind: step.kind, Worker: "w", State: step.state}
		if step.kind == types.ControlDrain && step.state != types.ControlOpen {
			o.Mode = types.DrainAllAtOnce
		}
		value, err := o.Encode()
		require.NoError(t, err)
		d.observe(kv.Entry{Key: d.key, Revision: uint64(i + 1), Value: value, Op: kv.Put})
		require.Equal(t, step.stands, d.get(), "step %d", i)
	}
	d.observe(kv.Entry{Key: d.key, Revision: 9, Op: kv.Delete})
	require.False(t, d.get())
}

// The worker gets another ID while the order about its former one is being read: the order about the new one is read, too.
func TestDrainIsReadAfterAChangeOfID(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		c := env.Connect("w")
		m := newTestManager(t, c.JS())
		buckets, err := m.findBuckets(context.Background())
		require.NoError(t, err)
		m.parts = &parts{buckets: buckets}
		drained := types.ControlOrder{Kind: types.ControlDrain, Worker: "b", State: types.ControlAccepted, Mode: types.DrainAllAtOnce}
		value, err := drained.Encode()
		require.NoError(t, err)
		_, err = buckets.Control.Put(context.Background(), types.ControlKey(types.ControlDrain, "b", ""), value, 0, 0)
		require.NoError(t, err)

		m.drain.follow("a")
		c.Gate().Hold(natstest.FromServer)
		m.readDrain()
		time.Sleep(time.Millisecond) // it is asked for, and the answer is under way
		m.drain.follow("b")
		m.readDrain()
		c.Gate().Heal()
		time.Sleep(time.Second)
		require.True(t, m.drain.get())

		m.drain.follow("a")
		m.readDrain()
		time.Sleep(time.Second)
		require.False(t, m.drain.get(), "nor is the former one's taken for it")
		m.cancel()
		m.jobs.Wait()
	})
}
