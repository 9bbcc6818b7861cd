package main

import (
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/partigo/parti"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// The summary counts apart who can be given no partitions.
func TestSummaryCountsWorkers(t *testing.T) {
	say := func(limit int, roles ...parti.Role) string {
		v := parti.View{Namespace: "orders", MaxWorkers: limit}
		for _, r := range roles {
			v.Workers = append(v.Workers, parti.WorkerView{Role: r})
		}
		var b strings.Builder
		summary(&b, v)
		for line := range strings.Lines(b.String()) {
			if text, ok := strings.CutPrefix(line, "workers\t"); ok {
				return strings.TrimSpace(text)
			}
		}
		return ""
	}
	const worker, follower, coordinator = parti.RoleWorker, parti.RoleFollower, parti.RoleCoordinator
	require.Equal(t, "0", say(0))
	require.Equal(t, "2", say(0, worker, follower))
	require.Equal(t, "2, and 1 coordinator", say(0, worker, coordinator, follower))
	require.Equal(t, "1, at most 3 of them with partitions, and 2 coordinators", say(3, coordinator, coordinator, follower))
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
