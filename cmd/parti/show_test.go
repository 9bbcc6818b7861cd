package main

import (
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/partigo/parti"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// summed returns a line of the summary.
func summed(v parti.View, name string) string {
	var b strings.Builder
	summary(&b, v)
	for line := range strings.Lines(b.String()) {
		if text, ok := strings.CutPrefix(line, name+"\t"); ok {
			return strings.TrimSpace(text)
		}
	}
	return ""
}

// The summary counts apart who can be given no partitions.
func TestSummaryCountsWorkers(t *testing.T) {
	say := func(limit int, roles ...parti.Role) string {
		v := parti.View{Namespace: "orders", MaxWorkers: limit}
		for _, r := range roles {
			v.Workers = append(v.Workers, parti.WorkerView{Role: r, State: types.WorkerActive})
		}
		return summed(v, "workers")
	}
	const worker, follower, coordinator = parti.RoleWorker, parti.RoleFollower, parti.RoleCoordinator
	require.Equal(t, "0", say(0))
	require.Equal(t, "2", say(0, worker, follower))
	require.Equal(t, "2, and 1 coordinator", say(0, worker, coordinator, follower))
	require.Equal(t, "1, at most 3 of them with partitions, and 2 coordinators", say(3, coordinator, coordinator, follower))
}

// Who is gone is not counted as a worker, and what it owned is run by nobody. Where nobody is left, what helps is a worker of any kind that may lead.
func TestSummaryOfWhoIsGone(t *testing.T) {
	v := parti.View{Partitions: make([]parti.PartitionView, 7), Workers: []parti.WorkerView{
		{State: types.WorkerLeft, Partitions: 1}, {State: types.WorkerRestarting, Partitions: 2}, {Partitions: 3}, // the last one's key has expired
	}}
	say := func(w parti.WorkerView) (alone, count, partitions string) {
		x := v
		x.Workers = append([]parti.WorkerView{w}, v.Workers...)
		return summed(x, ""), summed(x, "workers"), summed(x, "partitions")
	}
	alone, count, partitions := say(parti.WorkerView{State: types.WorkerLeft, Partitions: 1})
	require.Contains(t, alone, "NOBODY IS ALIVE")
	require.Equal(t, "0; 4 gone", count)
	require.Equal(t, "7 owned (7 by workers that are gone), 0 parked", partitions)
	alone, count, partitions = say(parti.WorkerView{State: types.WorkerActive, Role: parti.RoleFollower, Partitions: 1})
	require.Contains(t, alone, "NOBODY HERE MAY LEAD")
	require.Equal(t, "1; 3 gone", count)
	require.Equal(t, "7 owned (6 by workers that are gone), 0 parked", partitions)
	alone, count, _ = say(parti.WorkerView{Fault: "no JSON", Role: parti.RoleWorker})
	require.Contains(t, alone, "NOBODY HERE MAY LEAD", "what cannot be read may be a worker of a later release")
	require.Equal(t, "1; 3 gone", count)
	alone, count, _ = say(parti.WorkerView{State: types.WorkerActive, Role: parti.RoleCoordinator})
	require.Empty(t, alone)
	require.Equal(t, "0, and 1 coordinator; 3 gone", count)
}

// What is no order names nothing but its key, which is what it is deleted by.
func TestOrdersShowTheirKeys(t *testing.T) {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	orders(w, []parti.OrderView{
		{Key: "control.drain-pod-1", ControlOrder: types.ControlOrder{Kind: types.ControlDrain, Worker: "pod-1", State: parti.ControlDone, Reason: "so"}},
		{Key: "control.scribble", Fault: "no order"},
	})
	require.NoError(t, w.Flush())
	lines := strings.Split(b.String(), "\n")
	require.Equal(t, []string{"ORDER", "WORKER", "PARTITION", "STATE", "KEY", "REASON"}, strings.Fields(lines[0]))
	require.Equal(t, []string{"drain", "pod-1", "done", "control.drain-pod-1", "so"}, strings.Fields(lines[1]))
	require.Equal(t, []string{"open", "control.scribble", "no", "order"}, strings.Fields(lines[2]))
}
