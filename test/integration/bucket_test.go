package integration

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/test/checker"
	"github.com/partigo/parti/test/grouptest"
	"github.com/stretchr/testify/require"
)

// A bucket is gone, and somebody has made a stream of another kind in its place, which no worker may touch. Everybody says so, with what is
// wrong, fences, and changes nothing in it; when the stream is gone the group makes its bucket anew and goes on.
func TestBucketCannotBeRemade(t *testing.T) {
	natstest.Long(t)
	for _, which := range []string{"control", "heartbeat"} {
		t.Run(which, func(t *testing.T) {
			opts := []grouptest.Option{fast, grouptest.Partitions(30)}
			if which == "heartbeat" { // to the checker the keys are gone since the bucket is there again; they are gone for much longer
				opts = append(opts, grouptest.Ignoring(checker.HeartbeatWait))
			}
			grouptest.Bubble(t, func(g *grouptest.Group) {
				g.Start(3)
				g.WaitFor(10*time.Second, "an even share each", func() bool { return g.Oracle.Idle() == 0 && g.Spread() == 0 })
				js, ctx := g.Env.Connect("operator").JS(), context.Background()
				bucket := grouptest.Namespace + "-" + which
				g.Checker.AllowStoreLoss()
				require.NoError(t, js.DeleteStream(ctx, "KV_"+bucket))
				foreign := jetstream.StreamConfig{Name: "KV_" + bucket, Subjects: []string{"$KV." + bucket + ".>"}, Storage: jetstream.MemoryStorage}
				_, err := js.CreateStream(ctx, foreign)
				require.NoError(t, err)
				g.WaitFor(4*ttl+leadTerm, "everybody says so", func() bool {
					for _, w := range g.Live() {
						if s := w.Manager.Status(); !degraded(w) || s.Ready() {
							return false
						}
					}
					return true
				})
				reasons := ""
				for _, w := range g.Live() {
					reasons += w.Manager.Status().Degraded + "\n"
				}
				want := "cannot be made anew"
				if which == "heartbeat" {
					want = "foreign configuration" // which their own writes tell first
				}
				require.Contains(t, reasons, want)
				g.Sleep(30 * time.Second)
				s, err := js.Stream(ctx, "KV_"+bucket)
				require.NoError(t, err)
				require.Empty(t, s.CachedInfo().Config.Metadata["parti"], "it is still not ours")

				require.NoError(t, js.DeleteStream(ctx, "KV_"+bucket))
				g.WaitFor(6*ttl+leadTerm, "all is well again", func() bool {
					for _, w := range g.Live() {
						if !w.Manager.Status().Ready() {
							return false
						}
					}
					return g.Oracle.Idle() == 0 && g.Spread() <= 1
				})
			}, opts...)
		})
	}
}
