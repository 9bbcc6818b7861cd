package integration

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti"
	"github.com/partigo/parti/test/checker"
	"github.com/partigo/parti/test/grouptest"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

func inspect(g *grouptest.Group, js jetstream.JetStream) parti.View {
	g.T.Helper()
	ctx, cancel := limited(5 * time.Second)
	defer cancel()
	v, err := parti.Inspect(ctx, js, grouptest.Namespace)
	require.NoError(g.T, err)
	return v
}

func workerView(t *testing.T, v parti.View, id string) parti.WorkerView {
	t.Helper()
	for _, w := range v.Workers {
		if w.ID == id {
			return w
		}
	}
	require.Fail(t, "no such worker", "%s in %+v", id, v.Workers)
	return parti.WorkerView{}
}

// Inspect shows what the workers and the leader know, of a group with every kind of member.
func TestInspect(t *testing.T) {
	grouptest.Bubble(t, func(g *grouptest.Group) {
		js := g.Env.Connect("operator").JS()
		c := g.Start(1, append([]parti.Option{parti.WithMaxWorkers(2)}, coordinator...)...)[0]
		g.Leader()
		workers := g.Start(3, follower, parti.WithWorkerPool("f"))
		g.WaitFor(10*time.Second, "all but one run", func() bool { return g.Oracle.Idle() == 1 })
		g.Sleep(5 * time.Second)

		v := inspect(g, js)
		status := c.Manager.Status()
		require.Equal(t, types.Holder{Worker: c.ID(), Incarnation: status.Incarnation}, v.Leader)
		require.NotZero(t, v.Term)
		require.Equal(t, version(g), v.Version)
		require.Equal(t, ttl, v.HeartbeatTTL)
		require.Equal(t, 2, v.MaxWorkers)
		require.Len(t, v.Workers, 4)
		require.Len(t, v.Partitions, 20)
		require.Equal(t, []parti.ParkedView{{ID: "gpu-only", Label: "gpu", Reason: "no worker carries label gpu"}}, v.Parked)
		lead := workerView(t, v, c.ID())
		require.Equal(t, parti.RoleCoordinator, lead.Role)
		require.True(t, lead.Leading)
		require.Zero(t, lead.Partitions)
		require.False(t, lead.StandingBy)
		require.Equal(t, types.WorkerCoordinating, lead.State)
		var standby []string
		for _, w := range workers {
			seen := workerView(t, v, w.ID())
			require.Equal(t, parti.RoleFollower, seen.Role)
			require.Equal(t, w.Manager.Status().Incarnation, seen.Incarnation)
			require.Equal(t, types.WorkerActive, seen.State)
			require.Equal(t, g.Counts()[w.ID()], seen.Partitions)
			require.False(t, seen.Behind)
			require.Equal(t, v.Version, seen.AppliedVersion)
			if seen.StandingBy {
				standby = append(standby, w.ID())
			}
		}
		require.Equal(t, status.WorkersStandingBy, standby)
		for _, p := range v.Partitions {
			require.Positive(t, p.Epoch)
			found := false
			for _, w := range workers {
				epoch, owns := w.Manager.Epoch(types.NewPartition(p.ID))
				require.Equal(t, w.ID() == p.Owner.Worker, owns)
				found = found || owns && epoch == p.Epoch
			}
			require.True(t, found, "%+v", p)
		}

		// An order that is under way, and runs that have not returned.
		active := workers[0]
		if g.Counts()[active.ID()] == 0 {
			active = workers[1]
		}
		ctx, cancel := limited(time.Minute)
		defer cancel()
		_, err := parti.Drain(ctx, js, grouptest.Namespace, active.ID(), parti.WithoutWaiting(), parti.WithRequester("ann"))
		require.NoError(t, err)
		g.Sleep(500 * time.Millisecond)
		v = inspect(g, js)
		require.Len(t, v.Orders, 1)
		require.Equal(t, parti.ControlAccepted, v.Orders[0].State)
		require.Equal(t, "ann", v.Orders[0].RequestedBy)
		seen := workerView(t, v, active.ID())
		require.True(t, seen.Drained)
		require.Len(t, seen.Unreturned, 10, "%+v", seen)
		g.WaitFor(10*time.Second, "it has gone over", func() bool { return g.Oracle.Idle() == 1 })

		c.Kill()
		workers[2].Kill()
		g.Sleep(10 * time.Second)
		v = inspect(g, js)
		require.Empty(t, v.Leader.Worker)
		require.Zero(t, v.Term)
		require.Empty(t, workerView(t, v, workers[2].ID()).State, "its key has expired, and nobody leads who could replace it")
	}, fast, grouptest.PartitionList(append(grouptest.Numbered(20), types.Partition{Keys: []string{"gpu-only"}, Label: "gpu"})...),
		grouptest.Drain(func(string) time.Duration { return 2 * time.Second }))
}

// What does not exist or cannot be read is an error that says so, and the rest is shown.
func TestInspectFaults(t *testing.T) {
	grouptest.Bubble(t, func(g *grouptest.Group) {
		js := g.Env.Connect("operator").JS()
		ctx, cancel := limited(time.Minute)
		defer cancel()
		_, err := parti.Inspect(ctx, js, "nobody")
		require.ErrorIs(t, err, parti.ErrNoGroup)
		require.ErrorContains(t, err, "KV_nobody-control")
		_, err = parti.Inspect(ctx, js, "no.body")
		require.ErrorIs(t, err, parti.ErrInvalidConfig)
		_, err = parti.Inspect(ctx, nil, "nobody")
		require.ErrorIs(t, err, parti.ErrInvalidConfig)
		for _, bucket := range []string{"foreign-control", "foreign-heartbeat"} {
			_, err = js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: bucket, Storage: jetstream.MemoryStorage})
			require.NoError(t, err)
		}
		_, err = parti.Inspect(ctx, js, "foreign")
		require.ErrorIs(t, err, parti.ErrForeignBucket)

		w := g.Start(1)[0]
		g.WaitAllRunning(10 * time.Second)
		v := inspect(g, js)
		require.Equal(t, w.ID(), v.Leader.Worker)
		put := func(key, value string) {
			_, err := js.Publish(ctx, "$KV."+grouptest.Namespace+key, []byte(value))
			require.NoError(t, err)
		}
		g.Checker.AllowOperator()
		put("-heartbeat.heartbeat.odd", "{")
		put("-control.control.x", "garbage")
		v, err = parti.Inspect(ctx, js, grouptest.Namespace)
		require.ErrorIs(t, err, parti.ErrMalformed)
		require.ErrorContains(t, err, "heartbeat.odd")
		require.Len(t, v.Partitions, 20, "the rest is shown")
		require.NotEmpty(t, workerView(t, v, "odd").Fault)
	}, fast)
}

// A commit and a leader key that are no such thing are named.
func TestInspectGarbage(t *testing.T) {
	grouptest.Bubble(t, func(g *grouptest.Group) {
		w := g.Start(1)[0]
		g.WaitAllRunning(10 * time.Second)
		js := g.Env.Connect("operator").JS()
		w.Stop()
		ctx, cancel := limited(time.Minute)
		defer cancel()
		for _, key := range []string{"election.leader", "assignment._commit"} {
			_, err := js.Publish(ctx, "$KV."+grouptest.Namespace+"-control."+key, []byte("garbage"))
			require.NoError(t, err)
		}
		v, err := parti.Inspect(ctx, js, grouptest.Namespace)
		require.ErrorIs(t, err, parti.ErrMalformed)
		require.ErrorContains(t, err, "election.leader")
		require.ErrorContains(t, err, "assignment._commit")
		require.Zero(t, v.Version)
		require.Empty(t, v.Leader.Worker)
	}, fast, grouptest.Ignoring(checker.LeaderForm, checker.CommitForm, checker.Unguarded))
}
