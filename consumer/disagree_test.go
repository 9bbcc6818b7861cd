package consumer

import (
	"strconv"
	"testing"
	"time"

	"github.com/partigo/parti"
	"github.com/partigo/parti/source"
	"github.com/partigo/parti/strategy"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// joinWith adds a reader that was made with another number of partitions.
func (w *world) joinWith(parts int, opts ...Option) *member {
	w.t.Helper()
	full := w.parts
	w.parts = parts
	m := w.make(opts...)
	w.parts = full
	require.NoError(w.t, m.Start(w.ctx(time.Minute)))
	return m
}

// A Reader that was made with fewer partitions than the leader reads by its layout what it is given, and says so.
func TestReaderWithFewerPartitionsReadsByItsLayout(t *testing.T) {
	bubble(t, func(w *world) {
		w.create()
		w.publish(10)
		a := w.join()
		w.waitOwned(10 * time.Second) // a leads
		var told errorLog
		b := w.joinWith(4, told.hooks(), WithLayout(SubjectPerPartition("ORDERS", "orders", 4)))
		a.process()
		b.process()
		w.env.WaitFor(30*time.Second, "b has its share", func() bool { return len(b.Assigned()) == 4 })
		w.waitRead(30 * time.Second)
		w.publish(10)
		w.waitRead(30 * time.Second)
		require.Len(t, b.Assigned(), 4)
		require.Empty(t, b.Stats().Unreadable)
		require.ErrorContains(t, told.of(whole), "deploy all readers of the group with the same number")
		b.Pause()
		for _, p := range b.Stats().Partitions {
			require.True(t, p.Paused)
		}
		b.Resume()
		_, err := b.Committed(w.ctx(time.Minute), b.Assigned()[3])
		require.NoError(t, err)
	})
}

// With a resolver it cannot know where they are: it names what is not read.
func TestReaderWithFewerPartitionsNamesWhatItCannotRead(t *testing.T) {
	bubble(t, func(w *world) {
		w.create()
		a := w.join()
		w.waitOwned(10 * time.Second) // a leads
		var told errorLog
		b := w.joinWith(2, told.hooks(), WithResolver(w.layout.Resolve))
		w.env.WaitFor(30*time.Second, "b has its share", func() bool {
			return len(a.Assigned()) == 4 && len(b.Assigned())+len(b.Stats().Unreadable) == 4
		})
		unread := b.Stats().Unreadable
		require.NotEmpty(t, unread)
		for _, err := range unread {
			require.ErrorIs(t, err, ErrInvalidConfig)
		}
		require.ErrorContains(t, told.of(7), "partition 7 of group group is given to this Reader, which was made with 2 partitions")
		a.leave()
		b.leave()
		require.Empty(t, b.Stats().Unreadable)
	})
}

// What doc.go says of a process that only coordinates.
func TestCoordinatorLeadsReaders(t *testing.T) {
	bubble(t, func(w *world) {
		w.create()
		w.publish(10)
		a := w.join(WithManagerOptions(parti.WithRole(parti.RoleFollower)))
		a.process()
		time.Sleep(20 * time.Second)
		require.Zero(t, w.ledger.count(), "nobody leads")
		c := w.coordinate("group", 8)
		w.waitRead(time.Minute)
		require.True(t, c.IsLeader())
		a.leave()
		require.NoError(t, c.Stop(w.ctx(time.Minute)))
	})
}

// coordinate starts a process that only coordinates.
func (w *world) coordinate(group string, parts int) *parti.Manager {
	w.t.Helper()
	list := make([]types.Partition, parts)
	for p := range list {
		list[p] = types.NewPartition(strconv.Itoa(p))
	}
	m, err := parti.NewManager(w.env.Connect("coordinator").JS(), source.Static(list...), strategy.Sticky(), parti.WithNamespace(group),
		parti.WithRole(parti.RoleCoordinator), parti.WithStorage(w.storage), parti.WithHeartbeat(time.Second, 4*time.Second),
		parti.WithLeaderLease(3*time.Second), parti.WithWindows(2*time.Second, time.Second, 300*time.Millisecond))
	require.NoError(w.t, err)
	require.NoError(w.t, m.Start(w.ctx(time.Minute)))
	return m
}
