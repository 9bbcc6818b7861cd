package plan_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/partigo/parti/assignment/plan"
	"github.com/partigo/parti/assignment/record"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// world is a group that lives through a random history, with everything remembered that a plan must not forget.
type world struct {
	version    int64
	partitions map[string]types.Partition // the source
	parked     map[string]bool            // what the operator wants parked
	workers    map[string]plan.Worker
	lives      map[string]int // incarnations made, by worker
	state      *plan.State
	// held has for each partition who held it before and when it was taken away; released, up to which version a release is proved.
	held     map[string]map[types.Holder]int64
	released map[string]map[types.Holder]int64
	epochs   map[string]int64 // the highest so far
}

var (
	partitionNames = []string{"a", "b", "c", "d", "e", "f", "g", "h"}
	workerNames    = []string{"w0", "w1", "w2", "w3"}
	labelNames     = []string{"", "x", "y"}
)

func newWorld() *world {
	return &world{
		partitions: map[string]types.Partition{}, parked: map[string]bool{},
		workers: map[string]plan.Worker{}, lives: map[string]int{},
		held: map[string]map[types.Holder]int64{}, released: map[string]map[types.Holder]int64{}, epochs: map[string]int64{},
	}
}

func (w *world) isReleased(h types.Holder, version int64, id string) bool {
	return w.released[id][h] >= version
}

// disturb changes a few things about the world.
func (w *world) disturb(t *rapid.T) {
	for range rapid.IntRange(0, 5).Draw(t, "changes") {
		id := rapid.SampledFrom(partitionNames).Draw(t, "partition")
		name := rapid.SampledFrom(workerNames).Draw(t, "worker")
		worker, here := w.workers[name]
		switch rapid.SampledFrom([]string{"add", "remove", "park", "join", "leave", "restart", "grace", "drain", "release", "release all"}).Draw(t, "change") {
		case "add":
			p := types.NewPartition("p", id)
			p.Weight = rapid.Int64Range(0, 2).Draw(t, "weight") * 50
			p.Label = rapid.SampledFrom(labelNames).Draw(t, "label")
			w.partitions[p.ID()] = p
		case "remove":
			delete(w.partitions, "p."+id)
		case "park":
			w.parked["p."+id] = !w.parked["p."+id]
		case "join", "restart":
			w.lives[name]++
			w.workers[name] = plan.Worker{
				Holder: types.Holder{Worker: name, Incarnation: fmt.Sprint("i", w.lives[name])}, Target: true,
				Labels: rapid.SliceOfDistinct(rapid.SampledFrom(labelNames[1:]), rapid.ID[string]).Draw(t, "labels"),
			}
		case "leave":
			delete(w.workers, name)
		case "grace":
			if here {
				worker.GraceUntil = int64(rapid.IntRange(1, 3).Draw(t, "grace"))
				worker.Target = false
				w.workers[name] = worker
			}
		case "drain":
			if here {
				worker.Target = false
				w.workers[name] = worker
			}
		case "release", "release all":
			for h, v := range w.held["p."+id] {
				if rapid.Bool().Draw(t, "released") {
					if w.released["p."+id] == nil {
						w.released["p."+id] = map[types.Holder]int64{}
					}
					w.released["p."+id][h] = v
				}
			}
		}
	}
}

func (w *world) input(t *rapid.T) plan.Input {
	w.version += int64(rapid.IntRange(1, 3).Draw(t, "step"))
	in := plan.Input{Version: w.version, Previous: w.state, Released: w.isReleased}
	for _, k := range slices.Sorted(maps.Keys(w.partitions)) {
		in.Partitions = append(in.Partitions, w.partitions[k])
	}
	for _, k := range slices.Sorted(maps.Keys(w.workers)) {
		in.Workers = append(in.Workers, w.workers[k])
	}
	parked := maps.Clone(w.parked)
	in.Park = func(p types.Partition) string {
		if parked[p.ID()] {
			return "on request"
		}
		return ""
	}
	if w.state != nil && rapid.IntRange(0, 9).Draw(t, "reissue") == 0 {
		for _, name := range workerNames {
			if w.lives[name] > 0 {
				in.Reissue = append(in.Reissue, types.Holder{Worker: name, Incarnation: fmt.Sprint("i", w.lives[name])})
			}
		}
	}
	return in
}

// answer is any valid answer to the question, or that of the fallback.
func answer(t *rapid.T, in types.AssignmentInput) []int {
	if rapid.Bool().Draw(t, "fallback") {
		return plan.Fallback(in)
	}
	owners := make([]int, len(in.Partitions))
	for i, p := range in.Partitions {
		var may []int
		for w := range in.Workers {
			if p.Label == "" || slices.Contains(in.Workers[w].Labels, p.Label) {
				may = append(may, w)
			}
		}
		owners[i] = rapid.SampledFrom(may).Draw(t, "owner")
	}
	return owners
}

type owned struct {
	types.Holder
	types.AssignmentEntry
}

func ownersOf(s *plan.State) map[string]owned {
	out := map[string]owned{}
	if s == nil {
		return out
	}
	for _, sl := range s.Slices {
		for _, e := range sl.Entries {
			out[e.ID()] = owned{sl.Holder, e}
		}
	}
	return out
}

// check compares the new state with the old one and with the world's memory, and moves that memory on.
func (w *world) check(t *rapid.T, in plan.Input, res plan.Result) {
	before, now := ownersOf(w.state), ownersOf(res.State)
	for _, h := range in.Reissue {
		for id := range w.everKnown() {
			w.takenAway(id, h)
		}
	}
	for id, b := range before {
		if n, ok := now[id]; !ok || n.Holder != b.Holder || len(in.Reissue) > 0 {
			w.takenAway(id, b.Holder)
		}
	}
	for id, b := range before {
		if _, inSource := w.partitions[id]; inSource && w.workers[b.Worker].GraceUntil != 0 {
			require.Equal(t, w.workers[b.Worker].Holder, now[id].Holder, "%s waits for its worker", id)
		}
	}
	froms := map[string][]types.From{}
	placed := 0
	for id, n := range now {
		placed++
		require.Contains(t, w.partitions, id)
		require.True(t, n.Partition.Equal(w.partitions[id]), "attributes follow the source")
		froms[id] = n.From
		b, had := before[id]
		if had && b.Holder == n.Holder && len(in.Reissue) == 0 {
			require.Equal(t, b.Epoch, n.Epoch, "%s stays", id)
			if len(n.From) > 0 { // or its history is over, which checkFrom judges
				require.Equal(t, b.From, n.From, "%s stays", id)
			}
		} else {
			require.Equal(t, in.Version, n.Epoch, "%s is new", id)
			require.Greater(t, n.Epoch, w.epochs[id], "epochs grow")
		}
		w.epochs[id] = n.Epoch
	}
	for _, e := range res.State.Parked {
		id := e.ID()
		require.NotContains(t, now, id)
		require.NotContains(t, froms, id, "parked once")
		require.Zero(t, e.Epoch)
		froms[id] = e.From
		_, inSource := w.partitions[id]
		require.Equal(t, !inSource, e.Retired, id)
		if e.Retired {
			require.NotEmpty(t, e.From)
		} else {
			placed++
		}
	}
	require.Equal(t, len(w.partitions), placed, "every partition of the source")
	w.checkFrom(t, froms)
}

// checkFrom: whoever may still run a partition is in its `from`, and nobody who never held it is.
func (w *world) checkFrom(t *rapid.T, froms map[string][]types.From) {
	for id, held := range w.held {
		from := map[types.Holder]int64{}
		for _, f := range froms[id] {
			_, twice := from[f.Holder]
			require.False(t, twice)
			from[f.Holder] = f.Version
			require.Equal(t, held[f.Holder], f.Version, "%s of %s in %v", f.Holder, id, held)
		}
		require.True(t, slices.IsSortedFunc(froms[id], func(a, b types.From) int { return strings.Compare(a.String(), b.String()) }))
		for h, v := range held {
			if !w.isReleased(h, v, id) {
				require.Equal(t, v, from[h], "%s may still run %s", h, id)
			}
		}
	}
}

func (w *world) everKnown() map[string]bool {
	ids := map[string]bool{}
	for id := range w.partitions {
		ids[id] = true
	}
	for id := range ownersOf(w.state) {
		ids[id] = true
	}
	if w.state != nil {
		for _, e := range w.state.Parked {
			ids[e.ID()] = true
		}
	}
	return ids
}

func (w *world) takenAway(id string, h types.Holder) {
	if w.held[id] == nil {
		w.held[id] = map[types.Holder]int64{}
	}
	w.held[id][h] = w.version
}

// wire is what would be stored of a state, and its decoded form: what the next leader reads.
func wire(t require.TestingT, s *plan.State) (blobs []string, read *plan.State) {
	read = &plan.State{Version: s.Version}
	for _, sl := range s.Slices {
		raw, err := record.EncodePayload(sl.Entries)
		require.NoError(t, err)
		p, err := record.DecodePayload(raw)
		require.NoError(t, err)
		again, err := record.EncodePayload(p.Entries)
		require.NoError(t, err)
		require.Equal(t, string(raw), string(again))
		blobs = append(blobs, fmt.Sprint(sl.Holder, sl.GraceUntil, string(raw)))
		read.Slices = append(read.Slices, plan.Slice{Holder: sl.Holder, GraceUntil: sl.GraceUntil, Entries: p.Entries})
	}
	raw, err := record.EncodeParked(s.Parked)
	require.NoError(t, err)
	p, err := record.DecodeParked(raw)
	require.NoError(t, err)
	read.Parked = p.Entries
	return append(blobs, string(raw)), read
}

func TestAnyHistory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld()
		for range rapid.IntRange(1, 12).Draw(t, "commits") {
			w.disturb(t)
			in := w.input(t)
			p, err := plan.Prepare(in)
			require.NoError(t, err)
			owners := answer(t, p.Strategy)
			res, err := p.Next(owners)
			require.NoError(t, err)
			w.check(t, in, res)
			blobs, read := wire(t, res.State)

			shuffled := in
			shuffled.Partitions, shuffled.Workers, shuffled.Reissue = slices.Clone(in.Partitions), slices.Clone(in.Workers), slices.Clone(in.Reissue)
			rnd := rand.New(rand.NewPCG(1, uint64(in.Version)))
			rnd.Shuffle(len(in.Partitions), func(i, j int) {
				shuffled.Partitions[i], shuffled.Partitions[j] = shuffled.Partitions[j], shuffled.Partitions[i]
			})
			rnd.Shuffle(len(in.Workers), func(i, j int) { shuffled.Workers[i], shuffled.Workers[j] = shuffled.Workers[j], shuffled.Workers[i] })
			slices.Reverse(shuffled.Reissue)
			other, err := prepareAndNext(shuffled, owners)
			require.NoError(t, err)
			same, _ := wire(t, other.State)
			require.Equal(t, blobs, same, "the order of the input does not matter")
			require.Equal(t, res.Changed, other.Changed)

			if !res.Changed {
				old, _ := wire(t, w.state)
				require.Equal(t, old[:len(old)-1], blobs[:len(blobs)-1], "unchanged means unchanged")
			}
			// The leader dies; the next one reads the commit, and finds the same world.
			again := in
			again.Version, again.Previous, again.Reissue = in.Version+1, read, nil
			repeated, err := prepareAndNext(again, owners)
			require.NoError(t, err)
			require.False(t, repeated.Changed)
			require.Zero(t, repeated.Moved)
			w.state = res.State
			if rapid.Bool().Draw(t, "new leader") {
				w.state = read
			}
		}
	})
}
