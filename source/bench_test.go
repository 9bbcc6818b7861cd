package source

import (
	"fmt"
	"testing"

	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/types"
)

func BenchmarkKV(b *testing.B) {
	for _, n := range []int{10_000, 500_000} {
		env := natstest.Single(b)
		c, s := newKV(b, env)
		if err := s.Set(b.Context(), parts(n)...); err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("ReadUnchanged/%d", n), func(b *testing.B) {
			for b.Loop() {
				if _, err := s.ListPartitions(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("ReadAnew/%d", n), func(b *testing.B) {
			for b.Loop() {
				if _, err := NewKV(c.JS(), "config", "partitions").ListPartitions(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("Modify/%d", n), func(b *testing.B) {
			i := int64(1)
			for b.Loop() {
				i++
				if err := s.Add(b.Context(), types.Partition{Keys: part(0).Keys, Weight: i}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
