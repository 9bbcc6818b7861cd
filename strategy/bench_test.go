package strategy_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/partigo/parti/strategy"
	"github.com/partigo/parti/types"
)

// benchJoin measures one worker joining m others, with 100 partitions for each of these. The bench program in
// test/bench/strategy measures the same at a fixed number of partitions and judges the result.
func benchJoin(b *testing.B, s types.AssignmentStrategy, weight func(int) int64) {
	for _, m := range []int{10, 100, 1000} {
		b.Run(fmt.Sprintf("workers=%d", m), func(b *testing.B) {
			in := types.AssignmentInput{Workers: workers(m), Partitions: partitions(100*m, 1+m/10, weight)}
			in = joined(in, assign(b, s, in))
			b.ReportAllocs()
			var out []int
			for b.Loop() {
				out, _ = s.Assign(context.Background(), in)
			}
			load, mean := loads(in, out)
			most := int64(0)
			for _, l := range load {
				most = max(most, l)
			}
			b.ReportMetric(float64(most)/mean, "max/mean")
			b.ReportMetric(float64(strategy.Moves(in, out)), "moves")
		})
	}
}

func BenchmarkStickyEqual(b *testing.B)    { benchJoin(b, strategy.Sticky(), nil) }
func BenchmarkStickyMixed(b *testing.B)    { benchJoin(b, strategy.Sticky(), mixedWeight) }
func BenchmarkConsistentHash(b *testing.B) { benchJoin(b, strategy.ConsistentHash(), nil) }
func BenchmarkWeightedConsistentHash(b *testing.B) {
	benchJoin(b, strategy.WeightedConsistentHash(), mixedWeight)
}
func BenchmarkRoundRobin(b *testing.B) { benchJoin(b, strategy.RoundRobin(), nil) }
