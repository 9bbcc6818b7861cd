//go:build !race

// The race detector makes this one take a minute; .ci/run runs it without.

package integration

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/test/grouptest"
	"github.com/stretchr/testify/require"
)

var incarnations = flag.Int("incarnations", 70, "how many workers come and go in TestIncarnationsLeaveNothingBehind")

// Row 39: workers come and go, each under an ID of its own, in good order and not, for days longer than anything is kept. The keys of both
// buckets, markers included, grow with what is alive and with what the retention keeps, not with how many have been.
//
//	go test ./test/integration -run TestIncarnationsLeaveNothingBehind -incarnations 5000
func TestIncarnationsLeaveNothingBehind(t *testing.T) {
	natstest.Long(t)
	const hours, early = 34, 26 // what is kept is kept for a day
	each := max(2, *incarnations/hours)
	grouptest.Bubble(t, func(g *grouptest.Group) {
		g.Start(3)
		g.WaitAllRunning(5 * time.Minute)
		before, most := map[string]int{}, map[string]int{}
		for hour := range hours {
			var ws []*grouptest.Worker
			for i := range each {
				ws = append(ws, g.Make(parti.WithWorkerID(fmt.Sprintf("h%d-%d", hour, i))))
			}
			done := make(chan error, len(ws))
			for _, w := range ws {
				go func() { done <- w.Start() }()
			}
			for range ws {
				require.NoError(t, <-done)
			}
			g.Sleep(time.Minute)
			require.Zero(t, g.Oracle.Idle())
			require.LessOrEqual(t, g.Spread(), 1, "they have their share")
			for i, w := range ws {
				if i%2 == 0 {
					w.Stop()
					continue
				}
				w.Kill()
				ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
				_ = w.StopWithin(ctx) // what is left of the process ends
				cancel()
			}
			g.Sleep(50 * time.Minute)
			now := keysByKind(t, g)
			switch {
			case hour == early:
				before = now
			case hour > early:
				for kind, n := range now {
					most[kind] = max(most[kind], n)
				}
			}
		}
		t.Logf("after %d h, %d incarnations: %v; the most until %d h, %d incarnations: %v", early, early*each, before, hours, hours*each, most)
		for kind, n := range most {
			require.LessOrEqual(t, n, before[kind]+before[kind]/4+20, kind)
		}
		require.LessOrEqual(t, most["logs"], 25+each, "ten for their number, those that workers have applied, and markers of those collected lately")
		require.LessOrEqual(t, most["others"], 3, "the lead, the commit, and the present orders")
		g.Sleep(4 * time.Hour) // markers live for 20 TTLs
		require.Equal(t, 3, keysByKind(t, g)["heartbeats"])
	}, grouptest.Partitions(30), grouptest.Server(natstest.WithVirtualLimit(300*time.Hour)), grouptest.Manager(
		parti.WithHeartbeat(2*time.Minute, 8*time.Minute), parti.WithLeaderLease(5*time.Minute),
		parti.WithWindows(20*time.Second, 20*time.Second, 5*time.Second), parti.WithCooldown(5*time.Second)))
}

// keysByKind counts the keys of both buckets, markers included.
func keysByKind(t *testing.T, g *grouptest.Group) map[string]int {
	t.Helper()
	n := map[string]int{}
	count := func(bucket string, kind func(key string) string) {
		stream, err := g.Leader().Client.JS().Stream(context.Background(), "KV_"+grouptest.Namespace+"-"+bucket)
		require.NoError(t, err)
		info, err := stream.Info(context.Background(), jetstream.WithSubjectFilter(">"))
		require.NoError(t, err)
		for subject := range info.State.Subjects {
			n[kind(strings.TrimPrefix(subject, "$KV."+grouptest.Namespace+"-"+bucket+"."))]++
		}
	}
	count("heartbeat", func(string) string { return "heartbeats" })
	count("control", func(key string) string {
		switch {
		case strings.HasPrefix(key, "assignment._commit_log."):
			return "logs"
		case strings.HasPrefix(key, "assignment._payload."), strings.HasPrefix(key, "assignment._chunk."):
			return "payloads"
		}
		return "others"
	})
	return n
}
