package plan

import (
	"slices"
	"strings"

	"github.com/partigo/parti/types"
)

// prevState is the last commit, looked up by partition.
type prevState struct {
	holders []types.Holder // one for each slice
	listed  []int32        // slice → listed worker of the same ID, or NoOwner
	// at has for each partition of the source where it was: 0 nowhere, else 1 + an index in entries.
	at      []int32
	entries []prevEntry
	// gone are the entries whose partition left the source, sorted by ID.
	gone []prevEntry
	// doubles has what else a commit said about a partition that it listed more than once, which no correct leader makes. It is
	// repaired by a new entry with everybody in `from`.
	doubles map[string][]types.From
}

type prevEntry struct {
	id    string
	slice int32 // NoOwner: parked
	entry *types.AssignmentEntry
	park  *types.ParkedEntry // of a parked entry
}

func (v *prevState) read(s *State, places *places, ids []string, version int64) {
	v.at = make([]int32, len(ids))
	if s == nil {
		return
	}
	total := len(s.Parked)
	for i := range s.Slices {
		total += len(s.Slices[i].Entries)
	}
	v.entries = make([]prevEntry, 0, total)
	v.holders = make([]types.Holder, len(s.Slices))
	for i := range s.Slices {
		v.holders[i] = s.Slices[i].Holder
		for j := range s.Slices[i].Entries {
			e := &s.Slices[i].Entries[j]
			v.add(places, ids, version, prevEntry{slice: int32(i), entry: e})
		}
	}
	for j := range s.Parked {
		e := &s.Parked[j]
		v.add(places, ids, version, prevEntry{slice: types.NoOwner, entry: &e.AssignmentEntry, park: e})
	}
	slices.SortStableFunc(v.gone, func(a, b prevEntry) int { return strings.Compare(a.id, b.id) })
	distinct := v.gone[:0]
	for _, e := range v.gone {
		if n := len(distinct); n > 0 && distinct[n-1].id == e.id {
			v.double(e, version)
			continue
		}
		distinct = append(distinct, e)
	}
	v.gone = distinct
}

func (v *prevState) add(places *places, ids []string, version int64, e prevEntry) {
	i := places.of(&e.entry.Partition)
	if i < 0 {
		e.id = e.entry.ID()
		v.gone = append(v.gone, e)
		return
	}
	e.id = ids[i]
	if v.at[i] != 0 {
		v.double(e, version)
		return
	}
	v.entries = append(v.entries, e)
	v.at[i] = int32(len(v.entries))
}

func (v *prevState) double(e prevEntry, version int64) {
	if v.doubles == nil {
		v.doubles = make(map[string][]types.From)
	}
	list := append(v.doubles[e.id], e.entry.From...)
	if e.slice >= 0 {
		list = append(list, types.From{Holder: v.holders[e.slice], Version: version})
	}
	v.doubles[e.id] = list
}

// of returns what the last commit said of partition i of the source; nil where nothing.
func (v *prevState) of(i int32) *prevEntry {
	if v.at[i] == 0 {
		return nil
	}
	return &v.entries[v.at[i]-1]
}

// ownerOf returns the listed worker that has the ID of the previous owner of partition i, or NoOwner.
func (v *prevState) ownerOf(i int32) int32 {
	if e := v.of(i); e != nil && e.slice >= 0 {
		return v.listed[e.slice]
	}
	return types.NoOwner
}
