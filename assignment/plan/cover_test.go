package plan

import (
	"testing"

	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// No input leads to a state that does not cover the source, so the check is given states that nothing here makes.
func TestCoverSeesEveryFault(t *testing.T) {
	p, err := Prepare(Input{
		Version:    1,
		Partitions: []types.Partition{types.NewPartition("a"), types.NewPartition("b"), types.NewPartition("c"), types.NewPartition("d")},
		Workers:    []Worker{{Holder: types.Holder{Worker: "w1"}, Target: true}, {Holder: types.Holder{Worker: "w2"}, Target: true}},
		Park: func(part types.Partition) string {
			if part.ID() == "d" {
				return "on request"
			}
			return ""
		},
	})
	require.NoError(t, err)
	entry := func(id string) types.AssignmentEntry {
		return types.AssignmentEntry{Partition: types.NewPartition(id), Epoch: 1}
	}
	parked := func(id string, retired bool) types.ParkedEntry {
		return types.ParkedEntry{AssignmentEntry: types.AssignmentEntry{Partition: types.NewPartition(id)}, Retired: retired}
	}
	state := func() *State {
		return &State{
			Slices: []Slice{
				{Holder: types.Holder{Worker: "w1"}, Entries: []types.AssignmentEntry{entry("a"), entry("c")}},
				{Holder: types.Holder{Worker: "w2"}, Entries: []types.AssignmentEntry{entry("b")}},
			},
			Parked: []types.ParkedEntry{parked("0", true), parked("d", false), parked("x", true)},
		}
	}
	check := func(s *State) error {
		b := builder{Problem: p, history: newHistory(&p.in)}
		b.placeAll(Answer{Owners: []int{0, 1, 0}})
		return b.cover(s)
	}
	require.NoError(t, check(state()))
	for text, spoil := range map[string]func(s *State){
		`"a" is missing`: func(s *State) { s.Slices[0].Entries = s.Slices[0].Entries[1:] },
		`"b" is missing`: func(s *State) { s.Slices[1].Entries[0] = entry("a") },
		`"c" is missing`: func(s *State) { s.Slices[0].Entries = s.Slices[0].Entries[:1] },
		`"d" is missing`: func(s *State) { s.Parked = s.Parked[:1] },
		`"w2" has 1 partitions too many`: func(s *State) {
			s.Slices[1].Entries = append(s.Slices[1].Entries, entry("c"))
		},
		"1 parked partitions too many": func(s *State) { s.Parked[2].Retired = false },
	} {
		s := state()
		spoil(s)
		err := check(s)
		require.ErrorIs(t, err, types.ErrCoverageMismatch)
		require.ErrorContains(t, err, text)
	}
}
