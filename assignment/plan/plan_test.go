package plan_test

import (
	"testing"

	"github.com/partigo/parti/assignment/plan"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

func holder(worker string, life string) types.Holder {
	return types.Holder{Worker: worker, Incarnation: life}
}

func target(worker string, life string, labels ...string) plan.Worker {
	return plan.Worker{Holder: holder(worker, life), Labels: labels, Target: true}
}

func parts(names ...string) []types.Partition {
	var ps []types.Partition
	for _, n := range names {
		ps = append(ps, types.NewPartition(n))
	}
	return ps
}

func from(h types.Holder, version int64) types.From { return types.From{Holder: h, Version: version} }

// next plans with the fallback as the strategy.
func next(t *testing.T, in plan.Input) plan.Result {
	t.Helper()
	p, err := plan.Prepare(in)
	require.NoError(t, err)
	res, err := p.Next(plan.Fallback(p.Strategy))
	require.NoError(t, err)
	return res
}

func prepareAndNext(in plan.Input, owners []int) (plan.Result, error) {
	p, err := plan.Prepare(in)
	if err != nil {
		return plan.Result{}, err
	}
	return p.Next(owners)
}

func entry(t *testing.T, s *plan.State, worker, id string) types.AssignmentEntry {
	t.Helper()
	for _, sl := range s.Slices {
		for _, e := range sl.Entries {
			if sl.Worker == worker && e.ID() == id {
				return e
			}
		}
	}
	require.Fail(t, "not there", "%s of %s in %+v", id, worker, s)
	return types.AssignmentEntry{}
}

func TestOwnerStays(t *testing.T) {
	in := plan.Input{Version: 10, Partitions: parts("a", "b"), Workers: []plan.Worker{target("w1", "i1"), target("w2", "i2")}}
	first := next(t, in)
	require.True(t, first.Changed)
	require.Zero(t, first.Moved)
	require.Equal(t, int64(10), entry(t, first.State, "w1", "a").Epoch)
	require.Empty(t, entry(t, first.State, "w1", "a").From)

	in.Version, in.Previous = 11, first.State
	second := next(t, in)
	require.False(t, second.Changed)
	require.Equal(t, int64(11), second.State.Version)
	require.Equal(t, first.State.Slices, second.State.Slices)
	require.Same(t, &first.State.Slices[0].Entries[0], &second.State.Slices[0].Entries[0], "an unchanged slice is the same memory")
}

func TestDeadWorkersPartitionsMove(t *testing.T) {
	in := plan.Input{Version: 10, Partitions: parts("a", "b", "c"), Workers: []plan.Worker{target("w1", "i1"), target("w2", "i2"), target("w3", "i3")}}
	first := next(t, in)
	in.Version, in.Previous, in.Workers = 20, first.State, in.Workers[:2]
	second := next(t, in)
	require.True(t, second.Changed)
	require.Equal(t, 1, second.Moved)
	require.Equal(t, 1, second.Forced)
	require.Len(t, second.State.Slices, 2)
	require.Equal(t, types.AssignmentEntry{Partition: types.NewPartition("c"), Epoch: 20, From: []types.From{from(holder("w3", "i3"), 20)}},
		entry(t, second.State, "w1", "c"))
	require.Equal(t, int64(10), entry(t, second.State, "w1", "a").Epoch)
}

func TestRebalancingMoveIsNotForced(t *testing.T) {
	in := plan.Input{Version: 10, Partitions: parts("a", "b"), Workers: []plan.Worker{target("w1", "i1")}}
	first := next(t, in)
	in.Version, in.Previous, in.Workers = 20, first.State, append(in.Workers, target("w2", "i2"))
	p, err := plan.Prepare(in)
	require.NoError(t, err)
	require.Equal(t, []int{0, 0}, p.Strategy.Previous)
	res, err := p.Next([]int{0, 1})
	require.NoError(t, err)
	require.Equal(t, 1, res.Moved)
	require.Zero(t, res.Forced)
}

func TestFromIsInheritedUntilReleased(t *testing.T) {
	in := plan.Input{Version: 1, Partitions: parts("a"), Workers: []plan.Worker{target("w1", "i1")}}
	state := next(t, in).State
	move := func(version int64, w plan.Worker) types.AssignmentEntry {
		in.Version, in.Previous, in.Workers = version, state, []plan.Worker{w}
		state = next(t, in).State
		return entry(t, state, w.Worker, "a")
	}
	w1, w2, w3 := holder("w1", "i1"), holder("w2", "i2"), holder("w3", "i3")
	require.Equal(t, []types.From{from(w1, 2)}, move(2, target("w2", "i2")).From)
	require.Equal(t, []types.From{from(w1, 2), from(w2, 3)}, move(3, target("w3", "i3")).From)
	// Back to a former holder, which lists itself too: its own earlier run may still drain.
	require.Equal(t, []types.From{from(w1, 2), from(w2, 3), from(w3, 4)}, move(4, target("w1", "i1")).From)
	// One item for each incarnation, with its highest version.
	require.Equal(t, []types.From{from(w1, 5), from(w2, 3), from(w3, 4)}, move(5, target("w2", "i9")).From)

	in.Released = func(h types.Holder, version int64, id string) bool {
		require.Equal(t, "a", id)
		return h == w1 && version <= 5 || h == w2 && version <= 2
	}
	require.Equal(t, []types.From{from(w2, 3), from(holder("w2", "i9"), 6), from(w3, 4)}, move(6, target("w4", "i4")).From)
}

func TestNewIncarnationIsANewOwnerButNoMove(t *testing.T) {
	in := plan.Input{Version: 1, Partitions: parts("a"), Workers: []plan.Worker{target("w1", "i1")}}
	first := next(t, in)
	in.Version, in.Previous, in.Workers = 2, first.State, []plan.Worker{target("w1", "i2")}
	res := next(t, in)
	require.True(t, res.Changed)
	require.Zero(t, res.Moved)
	e := entry(t, res.State, "w1", "a")
	require.Equal(t, int64(2), e.Epoch)
	require.Equal(t, []types.From{from(holder("w1", "i1"), 2)}, e.From)
}

func TestRestartGrace(t *testing.T) {
	w1, w2 := target("w1", "i1", "x"), target("w2", "i2")
	labelled := types.Partition{Keys: []string{"b"}, Label: "x"}
	in := plan.Input{Version: 1, Partitions: []types.Partition{types.NewPartition("a"), labelled, types.NewPartition("c")}, Workers: []plan.Worker{w1, w2}}
	first := next(t, in)
	owned := first.State.Slices[0].Entries

	restarting := plan.Worker{Holder: w1.Holder, GraceUntil: 1234, Target: true} // its labels are not known any more
	in.Version, in.Previous, in.Workers = 2, first.State, []plan.Worker{restarting, w2}
	in.Partitions = append(in.Partitions, types.NewPartition("d"))
	p, err := plan.Prepare(in)
	require.NoError(t, err)
	require.Equal(t, []types.Worker{{ID: "w2"}}, p.Strategy.Workers, "the strategy sees live workers only")
	for i, part := range p.Strategy.Partitions {
		require.NotEqual(t, "b", part.ID())
		require.NotEqual(t, "a", part.ID())
		require.LessOrEqual(t, p.Strategy.Previous[i], 0)
	}
	second := next(t, in)
	require.Zero(t, second.Moved)
	require.Empty(t, second.State.Parked)
	require.Equal(t, owned, second.State.Slices[0].Entries)
	require.Equal(t, int64(1234), second.State.Slices[0].GraceUntil)
	require.Len(t, second.State.Slices[1].Entries, 2)

	in.Version, in.Previous = 3, second.State
	require.False(t, next(t, in).Changed)
	in.Workers = []plan.Worker{{Holder: w1.Holder, GraceUntil: 1235}, w2}
	require.True(t, next(t, in).Changed, "another grace is another commit")

	in.Workers = []plan.Worker{target("w1", "i9", "x"), w2} // it is back
	third := next(t, in)
	require.Zero(t, third.Moved)
	require.Zero(t, third.State.Slices[0].GraceUntil)
	require.Equal(t, types.AssignmentEntry{Partition: labelled, Epoch: 3, From: []types.From{from(w1.Holder, 3)}}, entry(t, third.State, "w1", "b"))

	in.Workers = []plan.Worker{w2} // or it is not, and the grace ends
	fourth := next(t, in)
	require.Len(t, fourth.State.Slices, 1)
	require.Len(t, fourth.State.Parked, 1)
	require.Equal(t, "no worker carries label x", fourth.State.Parked[0].Reason)
	require.Equal(t, []types.From{from(w1.Holder, 3)}, fourth.State.Parked[0].From)
}

func TestWorkerThatDrainsIsNotListed(t *testing.T) {
	in := plan.Input{Version: 1, Partitions: parts("a"), Workers: []plan.Worker{target("w1", "i1")}}
	first := next(t, in)
	in.Version, in.Previous, in.Workers = 2, first.State, []plan.Worker{{Holder: holder("w1", "i1")}}
	res := next(t, in)
	require.Empty(t, res.State.Slices)
	require.Equal(t, []types.ParkedEntry{{
		AssignmentEntry: types.AssignmentEntry{Partition: types.NewPartition("a"), From: []types.From{from(holder("w1", "i1"), 2)}},
		Reason:          "no worker can be given partitions",
	}}, res.State.Parked)
	in.Version, in.Previous, in.Workers = 3, res.State, nil
	require.False(t, next(t, in).Changed)
}

func TestPartitionThatLeavesAndComesBack(t *testing.T) {
	w1, w2 := target("w1", "i1"), target("w2", "i2")
	in := plan.Input{Version: 1, Partitions: parts("a", "b"), Workers: []plan.Worker{w1, w2}}
	first := next(t, in)
	in.Version, in.Previous, in.Partitions = 2, first.State, parts("b")
	second := next(t, in)
	require.True(t, second.Changed)
	require.Len(t, second.State.Parked, 1)
	gone := second.State.Parked[0]
	require.True(t, gone.Retired)
	require.Equal(t, []types.From{from(w1.Holder, 2)}, gone.From)

	in.Version, in.Previous, in.Partitions = 3, second.State, parts("a", "b")
	third := next(t, in)
	require.Empty(t, third.State.Parked)
	require.Equal(t, []types.From{from(w1.Holder, 2)}, entry(t, third.State, "w1", "a").From)
	require.Equal(t, int64(3), entry(t, third.State, "w1", "a").Epoch)

	// Once released it is dropped: with the next commit, and not as a reason for one.
	in.Partitions = parts("b")
	in.Released = func(types.Holder, int64, string) bool { return true }
	dropped := next(t, in)
	require.False(t, dropped.Changed)
	require.Empty(t, dropped.State.Parked)
}

func TestParkedKeepsItsHistory(t *testing.T) {
	w1 := target("w1", "i1")
	reason := "on request"
	in := plan.Input{Version: 1, Partitions: parts("a", "b"), Workers: []plan.Worker{w1}}
	first := next(t, in)
	in.Park = func(p types.Partition) string {
		if p.ID() == "a" {
			return reason
		}
		return ""
	}
	in.Version, in.Previous = 2, first.State
	second := next(t, in)
	require.Equal(t, []types.ParkedEntry{{
		AssignmentEntry: types.AssignmentEntry{Partition: types.NewPartition("a"), From: []types.From{from(w1.Holder, 2)}}, Reason: reason,
	}}, second.State.Parked)
	in.Version, in.Previous = 3, second.State
	in.Released = func(types.Holder, int64, string) bool { return true }
	third := next(t, in)
	require.False(t, third.Changed, "what is released is pruned when the partition is placed")
	require.Equal(t, second.State.Parked, third.State.Parked)
	reason = "maintenance"
	require.True(t, next(t, in).Changed, "another reason is another commit")
	in.Park = nil
	fourth := next(t, in)
	require.Empty(t, fourth.State.Parked)
	require.Empty(t, entry(t, fourth.State, "w1", "a").From)

	in.Park = func(types.Partition) string { return reason }
	in.Partitions = parts("b")
	fifth := next(t, in)
	require.True(t, fifth.Changed, "a parked partition without holders just goes")
	require.Len(t, fifth.State.Parked, 1)
}

func TestAttributesFollowTheSource(t *testing.T) {
	in := plan.Input{Version: 1, Partitions: parts("a", "b"), Workers: []plan.Worker{target("w1", "i1", "x")}}
	first := next(t, in)
	in.Version, in.Previous = 2, first.State
	for name, p := range map[string]types.Partition{"weight": {Keys: []string{"a"}, Weight: 7}, "label": {Keys: []string{"a"}, Label: "x"}} {
		in.Partitions = []types.Partition{p, types.NewPartition("b")}
		res := next(t, in)
		require.True(t, res.Changed, name)
		require.Equal(t, types.AssignmentEntry{Partition: p, Epoch: 1}, entry(t, res.State, "w1", "a"), name)
	}
	in.Partitions = []types.Partition{{Keys: []string{"a"}, Weight: types.DefaultWeight}, types.NewPartition("b")}
	require.False(t, next(t, in).Changed, "the default weight, written out, is the same weight")
}

func TestReissue(t *testing.T) {
	w1, w2 := target("w1", "i1"), target("w2", "i2")
	in := plan.Input{Version: 1, Partitions: parts("a", "b", "c", "d"), Workers: []plan.Worker{w1, w2}}
	first := next(t, in)
	in.Version, in.Previous = 2, first.State
	in.Partitions = parts("a", "b", "c", "new")
	in.Park = func(p types.Partition) string {
		if p.ID() == "c" {
			return "on request"
		}
		return ""
	}
	in.Reissue = []types.Holder{w2.Holder, holder("w3", "i3"), w2.Holder}
	res := next(t, in)
	require.True(t, res.Changed)
	all := []types.From{from(w2.Holder, 2), from(holder("w3", "i3"), 2)}
	withW1 := append([]types.From{from(w1.Holder, 2)}, all...)
	require.Equal(t, types.AssignmentEntry{Partition: types.NewPartition("a"), Epoch: 2, From: withW1}, entry(t, res.State, "w1", "a"))
	require.Equal(t, types.AssignmentEntry{Partition: types.NewPartition("b"), Epoch: 2, From: all}, entry(t, res.State, "w2", "b"))
	require.Equal(t, all, entry(t, res.State, "w1", "new").From, "also one that the lost commit may have had")
	require.Len(t, res.State.Parked, 2)
	require.Equal(t, withW1, res.State.Parked[0].From)
	require.Zero(t, res.State.Parked[0].Epoch)
	require.True(t, res.State.Parked[1].Retired)
	require.Equal(t, all, res.State.Parked[1].From)

	lost := in
	lost.Previous = nil
	require.Equal(t, all, entry(t, next(t, lost).State, "w1", "a").From)
}

func TestReissueListsShareMemory(t *testing.T) {
	in := group(1_000, 100)
	first := next(t, in)
	in.Version, in.Previous = in.Version+1, first.State
	for _, w := range in.Workers {
		in.Reissue = append(in.Reissue, w.Holder)
	}
	res := next(t, in)
	one := &res.State.Slices[0].Entries[0].From[0]
	for _, sl := range res.State.Slices {
		for _, e := range sl.Entries {
			require.Len(t, e.From, 100)
			require.Same(t, one, &e.From[0])
		}
	}
}

func TestPartitionListedTwiceByACommitIsRepaired(t *testing.T) {
	a := types.AssignmentEntry{Partition: types.NewPartition("a"), Epoch: 1, From: []types.From{from(holder("w0", "i0"), 1)}}
	b := types.AssignmentEntry{Partition: types.NewPartition("b"), Epoch: 1}
	in := plan.Input{Version: 5, Partitions: parts("a"), Workers: []plan.Worker{target("w1", "i1"), target("w2", "i2")}, Previous: &plan.State{
		Version: 4,
		Slices: []plan.Slice{
			{Holder: holder("w1", "i1"), Entries: []types.AssignmentEntry{a, b}},
			{Holder: holder("w2", "i2"), Entries: []types.AssignmentEntry{{Partition: a.Partition, Epoch: 2}, b}},
		},
	}}
	res := next(t, in)
	require.True(t, res.Changed)
	got := entry(t, res.State, "w1", "a")
	require.Equal(t, int64(5), got.Epoch)
	require.Equal(t, []types.From{from(holder("w0", "i0"), 1), from(holder("w1", "i1"), 5), from(holder("w2", "i2"), 5)}, got.From)
	require.Len(t, res.State.Parked, 1)
	require.Equal(t, []types.From{from(holder("w1", "i1"), 5), from(holder("w2", "i2"), 5)}, res.State.Parked[0].From)
}

func TestWorkerSetIsPartOfTheCommit(t *testing.T) {
	in := plan.Input{Version: 1, Partitions: parts("a"), Workers: []plan.Worker{target("w1", "i1"), target("w2", "i2")}}
	first := next(t, in)
	in.Version, in.Previous, in.Workers = 2, first.State, in.Workers[:1]
	require.True(t, next(t, in).Changed, "w2 had nothing, but was listed")
	in.Workers = []plan.Worker{target("w1", "i1"), target("w2", "i9")}
	require.True(t, next(t, in).Changed)
}

func TestPrepareRefuses(t *testing.T) {
	good := plan.Input{Version: 2, Partitions: parts("a"), Workers: []plan.Worker{target("w1", "i1")}}
	in := good
	in.Partitions = parts("a", "b", "a")
	_, err := prepareAndNext(in, nil)
	require.ErrorIs(t, err, types.ErrCoverageMismatch)
	require.ErrorIs(t, err, types.ErrDuplicatePartition)
	require.ErrorContains(t, err, `"a"`)
	in = good
	in.Workers = append(in.Workers, target("w1", "i2"))
	_, err = plan.Prepare(in)
	require.ErrorContains(t, err, `worker "w1" is listed twice`)
	in = good
	in.Previous = &plan.State{Version: 2}
	_, err = plan.Prepare(in)
	require.ErrorContains(t, err, "version 2 does not follow version 2")
	in = good
	in.Version = 0
	_, err = plan.Prepare(in)
	require.Error(t, err)
}
