package plan_test

import (
	"fmt"
	"testing"

	"github.com/partigo/parti/assignment/plan"
	"github.com/partigo/parti/strategy"
	"github.com/partigo/parti/types"
)

func group(partitions, workers int) plan.Input {
	in := plan.Input{Version: 1_700_000_000_000}
	for i := range partitions {
		in.Partitions = append(in.Partitions, types.NewPartition("eu", "orders", fmt.Sprintf("%06d", i)))
	}
	for i := range workers {
		in.Workers = append(in.Workers, plan.Worker{
			Holder: types.Holder{Worker: fmt.Sprintf("worker-%d", i), Incarnation: fmt.Sprintf("6ba7b810-9dad-11d1-80b4-%012d", i)},
			Target: true,
		})
	}
	return in
}

// BenchmarkNext measures preparing the input and making the commit, without the strategy in between.
func BenchmarkNext(b *testing.B) {
	for _, size := range []struct{ partitions, workers int }{{10_000, 100}, {100_000, 1_000}, {500_000, 10}, {500_000, 1_000}} {
		first := group(size.partitions, size.workers)
		p, err := plan.Prepare(first)
		if err != nil {
			b.Fatal(err)
		}
		res, err := p.Next(plan.Fallback(p.Strategy))
		if err != nil {
			b.Fatal(err)
		}
		name := fmt.Sprintf("%dx%d", size.partitions, size.workers)
		run := func(kind string, change func(*plan.Input)) {
			b.Run(name+"/"+kind, func(b *testing.B) {
				in := first
				in.Version++
				in.Previous = res.State
				change(&in)
				owners := []int(nil)
				for b.Loop() {
					p, err := plan.Prepare(in)
					if err != nil {
						b.Fatal(err)
					}
					if owners == nil {
						owners = plan.Fallback(p.Strategy)
					}
					if _, err := p.Next(owners); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		run("same", func(*plan.Input) {})
		run("leave", func(in *plan.Input) { in.Workers = in.Workers[1:] })
		run("reissue", func(in *plan.Input) {
			for _, w := range in.Workers {
				in.Reissue = append(in.Reissue, w.Holder)
			}
		})
	}
}

func BenchmarkFallback(b *testing.B) {
	p, err := plan.Prepare(group(100_000, 1_000))
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		plan.Fallback(p.Strategy)
	}
}

// 100,000 partitions on 1,000 workers: with nothing to heed, with labels of which each worker carries two, and with capacity.
func BenchmarkSolve(b *testing.B) {
	for _, kind := range []string{"plain", "labels", "capacity"} {
		b.Run(kind, func(b *testing.B) {
			in := plan.Input{Version: 1}
			for i := range 1000 {
				in.Workers = append(in.Workers, target(fmt.Sprintf("w%04d", i), "i"))
				switch w := &in.Workers[i]; kind {
				case "labels":
					w.Labels = []string{fmt.Sprint("l", i%10), fmt.Sprint("l", (i+1)%10)}
				case "capacity":
					w.Capacity.Partitions = 60 + i%80
				}
			}
			for i := range 100_000 {
				p := types.NewPartition(fmt.Sprintf("p%06d", i))
				if kind == "labels" {
					p.Label = fmt.Sprint("l", i%10)
				}
				in.Partitions = append(in.Partitions, p)
			}
			p, err := plan.Prepare(in)
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if _, err := p.Solve(with(strategy.Sticky())); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
