package plan_test

import (
	"testing"

	"github.com/partigo/parti/assignment/plan"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// A history ends when all of it is proved released and the slice is written anew anyway; it is no reason of its own to write it.
func TestHistoryThatIsOverEnds(t *testing.T) {
	released := map[types.Holder]bool{}
	in := plan.Input{
		Version: 1, Partitions: parts("a", "b", "c"), Workers: []plan.Worker{target("w1", "i1")},
		Released: func(h types.Holder, _ int64, _ string) bool { return released[h] },
	}
	state := next(t, in).State
	step := func(version int64, ws ...plan.Worker) plan.Result {
		in.Version, in.Previous, in.Workers = version, state, ws
		res := next(t, in)
		state = res.State
		return res
	}
	step(2, target("w2", "i2"))
	was := []types.From{from(holder("w1", "i1"), 2)}
	require.Equal(t, was, entry(t, state, "w2", "a").From)
	released[holder("w1", "i1")] = true
	require.False(t, step(3, target("w2", "i2")).Changed, "no commit is made for it")
	require.Equal(t, was, entry(t, state, "w2", "a").From)

	in.Partitions = append(in.Partitions, parts("d")...)
	released[holder("w1", "i1")] = false
	require.True(t, step(4, target("w2", "i2")).Changed)
	require.Equal(t, was, entry(t, state, "w2", "a").From, "not proved")

	in.Partitions = append(in.Partitions, parts("e")...)
	released[holder("w1", "i1")] = true
	before := state
	require.True(t, step(5, target("w2", "i2")).Changed)
	require.Empty(t, entry(t, state, "w2", "a").From)
	require.Equal(t, int64(2), entry(t, state, "w2", "a").Epoch)
	require.Equal(t, was, entry(t, before, "w2", "a").From, "an earlier state is not changed")
}
