package types_test

import (
	"testing"
	"time"

	"github.com/partigo/parti/internal/golden"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

func TestGoldenControlOrder(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 600_000_000, time.UTC)
	for name, want := range map[string]types.ControlOrder{
		"control_open.json": {Kind: types.ControlDrain, Worker: "worker-1", Mode: types.DrainOneByOne, RequestedBy: "ops", At: at},
		"control_done.json": {
			Kind: types.ControlEvictPartition, Worker: "worker-1", Partition: "eu.orders.17", RequestedBy: "ops", At: at,
			State: types.ControlDone, Reason: "it runs elsewhere", By: "worker-2", AnsweredAt: at.Add(time.Second),
			Incarnation: "6ba7b810-9dad-41d1-80b4-000000000001",
		},
	} {
		raw, err := want.Encode()
		require.NoError(t, err)
		got, err := types.DecodeControlOrder(types.ControlKey(want.Kind, want.Worker, "x"), golden.Equal(t, name, raw))
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}
