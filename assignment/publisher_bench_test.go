package assignment

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti/assignment/plan"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/kv"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// Real time, file storage, one server in the process.
func BenchmarkPublisher(b *testing.B) {
	for _, size := range []struct{ workers, partitions int }{{200, 10_000}, {1_000, 100_000}} {
		ps := partitions(size.partitions)
		b.Run(fmt.Sprintf("%dx%d", size.workers, size.partitions), func(b *testing.B) {
			env := natstest.Single(b)
			buckets, err := kv.EnsureBuckets(b.Context(), env.Connect("a").JS(), kv.BucketConfig{
				Namespace: "ns", HeartbeatTTL: 15 * time.Second, Replicas: 1, Storage: jetstream.FileStorage, Logger: slog.New(slog.DiscardHandler),
			})
			require.NoError(b, err)
			l := &termLease{store: buckets.Control, holder: types.Holder{Worker: "a", Incarnation: "i"}}
			require.NoError(b, l.acquire(b.Context()))
			p, err := NewAssignmentPublisher(PublisherConfig{Store: buckets.Control, Committer: l, Holder: l.holder, Term: l.term})
			require.NoError(b, err)
			_, err = p.Bootstrap(b.Context())
			require.NoError(b, err)
			gc, err := NewCommitGC(CommitGCConfig{Publisher: p})
			require.NoError(b, err)
			publish := func(s *plan.State) {
				_, err := p.Publish(b.Context(), PublishInput{State: s, Source: ps, Lifecycle: types.LifecycleManual})
				require.NoError(b, err)
			}
			state := spread(p.NextVersion(), 1, size.workers, ps)
			b.Run("all-changed", func(b *testing.B) {
				for b.Loop() {
					b.StopTimer()
					v := p.NextVersion()
					state = spread(v, v, size.workers, ps)
					b.StartTimer()
					publish(state)
				}
			})
			b.Run("one-changed", func(b *testing.B) {
				for i := 0; b.Loop(); i++ {
					state = touch(state, p.NextVersion(), i%size.workers)
					publish(state)
				}
			})
			b.Run("none-changed", func(b *testing.B) {
				for b.Loop() {
					publish(at(state, p.NextVersion()))
				}
			})
			b.Run("bootstrap", func(b *testing.B) {
				for b.Loop() {
					_, err := p.Bootstrap(b.Context())
					require.NoError(b, err)
				}
			})
			publish(at(state, p.NextVersion()))
			b.Run("gc-pass", func(b *testing.B) {
				for b.Loop() {
					require.NoError(b, l.renew(b.Context()))
					_, err := gc.RunOnce(b.Context())
					require.NoError(b, err)
				}
				b.ReportMetric(float64(len(p.base().keys)), "live")
			})
			b.Run("coverage", func(b *testing.B) {
				for b.Loop() {
					require.NoError(b, CheckCoverage(state, ps))
				}
			})
		})
	}
}
