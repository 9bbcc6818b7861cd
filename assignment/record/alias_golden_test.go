package record_test

import (
	"testing"

	"github.com/partigo/parti/assignment/record"
	"github.com/partigo/parti/internal/golden"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// Programs in other languages read it, see docs/PLAIN-WORKERS.md.
func TestGoldenAlias(t *testing.T) {
	raw, err := record.EncodeAlias("js-1", 1_760_000_000_003, entries())
	require.NoError(t, err)
	a, err := record.DecodeAlias(golden.Equal(t, "alias.json", raw))
	require.NoError(t, err)
	require.Equal(t, "js-1", a.WorkerID)
	require.Len(t, a.Partitions, len(entries()))
	empty, err := record.EncodeAlias("js-1", 1_760_000_000_004, nil)
	require.NoError(t, err)
	_, err = record.DecodeAlias(golden.Equal(t, "alias_empty.json", empty))
	require.NoError(t, err)
}

// Whatever is read, what is written from it says the same.
func FuzzDecodeAlias(f *testing.F) {
	raw, err := record.EncodeAlias("js-1", 7, entries())
	require.NoError(f, err)
	f.Add(raw)
	f.Add([]byte(`{"schema":1,"worker_id":"a","version":1,"partitions":[{"keys":["a"]},{"keys":null}]}`))
	f.Add([]byte(`{"schema":2}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		a, err := record.DecodeAlias(data)
		if !known(t, err) {
			require.Zero(t, a)
			return
		}
		require.NoError(t, types.ValidateWorkerID(a.WorkerID))
		require.True(t, types.ValidVersion(a.Version))
		var owned []types.AssignmentEntry
		for _, p := range a.Partitions {
			owned = append(owned, types.AssignmentEntry{Partition: p.Partition, Epoch: p.Epoch})
		}
		again, err := record.EncodeAlias(a.WorkerID, a.Version, owned)
		if err != nil {
			require.ErrorIs(t, err, types.ErrPayloadTooLarge)
			return
		}
		back, err := record.DecodeAlias(again)
		require.NoError(t, err)
		require.Equal(t, a.WorkerID, back.WorkerID)
		require.Equal(t, a.Version, back.Version)
		require.Len(t, back.Partitions, len(a.Partitions))
	})
}
