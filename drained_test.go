package parti

import (
	"testing"

	"github.com/partigo/parti/internal/kv"
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
