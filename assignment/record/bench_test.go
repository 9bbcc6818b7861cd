package record_test

import (
	"fmt"
	"testing"

	"github.com/partigo/parti/assignment/record"
	"github.com/partigo/parti/types"
)

func slice(first, n int) []types.AssignmentEntry {
	entries := make([]types.AssignmentEntry, n)
	for i := range entries {
		entries[i] = types.AssignmentEntry{
			Partition: types.NewPartition("eu", "orders", fmt.Sprintf("%06d", first+i)),
			Epoch:     1_700_000_000_000 + int64(i%3),
			From:      []types.From{{Holder: types.Holder{Worker: fmt.Sprintf("worker-%d", i%7), Incarnation: "6ba7b810-9dad-11d1-80b4-00c04fd430c8"}, Version: 1_700_000_000_000}},
		}
	}
	return entries
}

// BenchmarkEncode is what a commit of 100,000 partitions costs the leader if every slice has changed.
func BenchmarkEncode(b *testing.B) {
	for _, workers := range []int{1, 1_000} {
		var slices [][]types.AssignmentEntry
		for i := range workers {
			slices = append(slices, slice(i*(100_000/workers), 100_000/workers))
		}
		b.Run(fmt.Sprintf("100000x%d/bytes+hash+digest", workers), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				for _, s := range slices {
					raw, err := record.EncodePayload(s)
					if err != nil {
						b.Fatal(err)
					}
					record.Hash(raw)
					record.SetDigest(s)
				}
			}
		})
		b.Run(fmt.Sprintf("100000x%d/pack", workers), func(b *testing.B) {
			b.ReportAllocs()
			var raws [][]byte
			for _, s := range slices {
				raw, err := record.EncodePayload(s)
				if err != nil {
					b.Fatal(err)
				}
				raws = append(raws, raw)
			}
			for b.Loop() {
				for _, raw := range raws {
					if _, _, err := record.Pack(raw); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}

func BenchmarkDecodePayload(b *testing.B) {
	for _, n := range []int{100, 100_000} {
		raw, err := record.EncodePayload(slice(0, n))
		if err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(raw)))
			for b.Loop() {
				if _, err := record.DecodePayload(raw); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
