package assignment

import (
	"slices"
	"testing"

	"github.com/partigo/parti/assignment/plan"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestCheckCoverage(t *testing.T) {
	ps := partitions(6)
	parked := func(p types.Partition, retired bool) types.ParkedEntry {
		return types.ParkedEntry{AssignmentEntry: types.AssignmentEntry{Partition: p}, Retired: retired}
	}
	good := func() *plan.State {
		s := spread(1, 1, 2, ps[:4])
		s.Parked = []types.ParkedEntry{parked(ps[4], false), parked(types.NewPartition("gone"), true)}
		return s
	}
	require.NoError(t, CheckCoverage(good(), ps[:5]))
	require.NoError(t, CheckCoverage(&plan.State{}, nil))
	cases := []struct {
		name   string
		change func(*plan.State)
		source []types.Partition
		says   string
	}{
		{"missing", func(s *plan.State) { s.Slices[0].Entries = s.Slices[0].Entries[1:] }, ps[:5], `1 of 5 partitions are not placed, the first is "p00000"`},
		{"not in the source", func(*plan.State) {}, ps[:4], `"p00004" is parked but not in the source`},
		{"given twice", func(s *plan.State) { s.Slices[1].Entries = append(s.Slices[1].Entries, s.Slices[0].Entries[0]) }, ps[:5], `"p00000" is given to w0001 and somewhere else too`},
		{"given and parked", func(s *plan.State) { s.Parked[0].Partition = ps[0] }, ps[:5], `"p00000" is parked and somewhere else too`},
		{"retired but there", func(s *plan.State) { s.Parked[0].Retired = true }, ps[:5], `"p00004" is retired but in the source`},
		{"source lists twice", func(*plan.State) {}, append(slices.Clone(ps[:5]), ps[0]), `the source lists "p00000" twice`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := good()
			c.change(s)
			err := CheckCoverage(s, c.source)
			require.ErrorIs(t, err, types.ErrCoverageMismatch)
			require.ErrorContains(t, err, c.says)
		})
	}
}

// A state that covers its source does not any more, whatever single thing is changed about it.
func TestCheckCoverageFindsEveryChange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ps := partitions(rapid.IntRange(1, 40).Draw(t, "partitions"))
		s := spread(1, 1, rapid.IntRange(1, 5).Draw(t, "workers"), ps)
		source := slices.Clone(ps)
		require.NoError(t, CheckCoverage(s, source))
		i := rapid.IntRange(0, len(ps)-1).Draw(t, "which")
		switch rapid.IntRange(0, 2).Draw(t, "what") {
		case 0:
			source = slices.Delete(source, i, i+1)
		case 1:
			source = append(source, types.NewPartition("other"))
		case 2:
			w := &s.Slices[rapid.IntRange(0, len(s.Slices)-1).Draw(t, "worker")]
			w.Entries = append(w.Entries, types.AssignmentEntry{Partition: ps[i], Epoch: 1})
		}
		require.ErrorIs(t, CheckCoverage(s, source), types.ErrCoverageMismatch)
	})
}
