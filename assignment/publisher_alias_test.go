package assignment

import (
	"fmt"
	"testing"
	"time"

	"github.com/partigo/parti/assignment/plan"
	"github.com/partigo/parti/assignment/record"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/kv"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// Aliases that a commit does not write are deleted after it: those that the term before has left, and those of workers that lost theirs.
func TestAliasesAreSwept(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		g := newPubGroup(t, env)
		g.overwrite("assignment.of-an-earlier-term", []byte("{}"))
		p, _, _ := g.leadOn(env.Connect("a"))
		state := spread(p.NextVersion(), 1, 3, partitions(6))
		publish := func(workers ...string) {
			in := input(state)
			for _, w := range workers {
				in.Extra = append(in.Extra, kv.Write{Key: record.AliasKey(w), Value: []byte("{}"), Any: true})
			}
			_, err := p.Publish(t.Context(), in)
			require.NoError(t, err)
			state = touch(state, p.NextVersion(), 0)
			want := []string{record.CommitKey}
			for _, w := range workers {
				want = append(want, record.AliasKey(w))
			}
			require.ElementsMatch(t, want, g.keys("assignment."))
		}
		publish("a", "b")
		publish("a", "b", "c")
		publish("b")
		publish()
		g.readable()
	})
}

// What a plain worker is given goes into the batch; what does not fit into a plain value, or into the batch, goes to nobody plain.
func TestAliasesOfAPlan(t *testing.T) {
	c := &Calculator{cfg: Config{}}
	c.cfg.setDefaults()
	slice := func(w, incarnation string, n int) plan.Slice {
		s := plan.Slice{Holder: types.Holder{Worker: w, Incarnation: incarnation}}
		for i := range n {
			s.Entries = append(s.Entries, types.AssignmentEntry{Partition: types.NewPartition(w, fmt.Sprintf("%0200d", i)), Epoch: 1})
		}
		return s
	}
	at := func(w, incarnation string) plan.Worker {
		return plan.Worker{Holder: types.Holder{Worker: w, Incarnation: incarnation}, Target: true}
	}
	state := &plan.State{Version: 7, Slices: []plan.Slice{slice("big", "", 3000), slice("go", "i", 1), slice("held", "", 1), slice("js", "", 2)}}
	seats := []seat{
		{Worker: at("big", ""), plain: true}, {Worker: at("go", "i")}, {Worker: at("held", ""), held: true}, {Worker: at("js", ""), plain: true},
	}
	writes, tooLarge := c.aliases(state, seats)
	require.Len(t, tooLarge, 1)
	big := tooLarge["big"]
	require.Equal(t, 3000, big.n)
	data, err := record.EncodeAlias("big", 7, state.Slices[0].Entries[:big.fit])
	require.NoError(t, err)
	require.Greater(t, len(data), record.MaxAlias*4/5)
	require.Len(t, writes, 2)
	require.Equal(t, "assignment.held", writes[0].Key)
	a, err := record.DecodeAlias(writes[1].Value)
	require.NoError(t, err)
	require.Equal(t, "js", a.WorkerID)
	require.Len(t, a.Partitions, 2)

	// It gets what fits, or what it has if that fits too; where that bounds nothing, it loses its seat.
	capacity := func(seats []seat, committed *plan.State) int {
		return c.bounded(seats, tooLarge, committed)[0].Capacity.Partitions
	}
	require.Equal(t, big.fit, capacity(seats, nil))
	require.Equal(t, big.fit, capacity(seats, &plan.State{Slices: []plan.Slice{slice("big", "", big.n)}}))
	require.Equal(t, big.fit+7, capacity(seats, &plan.State{Slices: []plan.Slice{slice("big", "", big.fit+7)}}))
	require.Equal(t, seats[1:], c.bounded(c.bounded(seats, tooLarge, nil), tooLarge, nil))
	require.Zero(t, seats[0].Capacity.Partitions)

	var s sitting
	for i := range maxPlain + 5 {
		s.seats = append(s.seats, seat{Worker: at(fmt.Sprintf("w%04d", i), ""), plain: true})
		s.targets++
	}
	s.seats = append(s.seats, seat{Worker: at("x", "i")})
	s.targets++
	s.limitPlain()
	require.Len(t, s.seats, maxPlain+1)
	require.Equal(t, maxPlain+1, s.targets)
}

// A plain worker has its seat as long as its key changes at least every HeartbeatTTL, whether that expires by itself or not.
func TestPlainSeats(t *testing.T) {
	const ttl = 10 * time.Second
	cfg := Config{HeartbeatTTL: ttl}
	cfg.setDefaults()
	now := time.Now()
	member := func(seen time.Time, state types.WorkerState) *Member {
		return &Member{Heartbeat: types.Heartbeat{WorkerID: "w", State: state}, Seen: seen}
	}
	for name, c := range map[string]struct {
		m       *Member
		trouble time.Time
		seated  bool
	}{
		"just heard":             {member(now, types.WorkerActive), time.Time{}, true},
		"JSON without a state":   {member(now, ""), time.Time{}, true},
		"silent for a TTL":       {member(now.Add(-ttl), types.WorkerActive), time.Time{}, true}, // a marker may be on its way
		"silent for longer":      {member(now.Add(-ttl-2*plainSlack), types.WorkerActive), time.Time{}, false},
		"silent, feed was cut":   {member(now.Add(-2*ttl), types.WorkerActive), now.Add(-time.Second), true},
		"left":                   {member(now, types.WorkerLeft), time.Time{}, false},
		"draining is no target":  {member(now, types.WorkerDraining), time.Time{}, false},
		"restarting has no more": {member(now, types.WorkerRestarting), time.Time{}, false},
	} {
		r := roster{recovery: recovery{hold: ttl}}
		r.recovery.trouble(c.trouble)
		var s sitting
		_, seated := r.plainSeat(c.m, now, &s)
		require.Equal(t, c.seated, seated, name)
		require.Equal(t, 1, s.legacy, name)
	}
}

// What is seen of lives without incarnations proves a release only if it cannot be of an earlier one.
func TestPlainReleased(t *testing.T) {
	const stamp = "2026-01-01T00:00:00Z"
	plain := types.Holder{Worker: "w"}
	value := kv.Entry{Key: "heartbeat.w", Value: []byte(stamp), Revision: 1}
	expiry := kv.Entry{Key: "heartbeat.w", Revision: 2, Op: kv.Expire}
	other := func(applied int64, rev uint64) kv.Entry {
		return kv.Entry{Key: "heartbeat.o", Value: beat("o", "i", applied), Revision: rev}
	}
	l := newLedger(time.Time{})
	require.False(t, l.released(plain, 5, "p"))
	list := func(es ...kv.Entry) {
		in := listing{mark: l.mark(), entries: map[string]kv.Entry{}}
		for _, e := range es {
			in.entries[e.Key] = e
		}
		ok, _, _ := l.merge(in)
		require.True(t, ok)
	}
	list(value, other(4, 1))
	require.Equal(t, []types.Holder{{Worker: "o", Incarnation: "i"}, plain}, l.suspects())
	require.False(t, l.released(plain, 5, "p"), "it cannot acknowledge")
	l.observe(expiry)
	require.False(t, l.released(plain, 5, "p"), "only heard")
	list(expiry, other(4, 3))
	require.False(t, l.released(plain, 5, "p"), "the listing may be older than the life that had the partition")
	list(expiry, other(5, 4))
	require.True(t, l.released(plain, 5, "p"))
	require.Equal(t, []types.Holder{{Worker: "o", Incarnation: "i"}}, l.suspects())
}
