package types_test

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/partigo/parti/internal/golden"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

func heartbeat() types.Heartbeat {
	return types.Heartbeat{
		WorkerID: "worker-1", Incarnation: "6ba7b810-9dad-41d1-80b4-000000000001", SchemaVersion: types.HeartbeatSchema,
		Capabilities: types.CapAckV1 | types.CapHandoffV1 | types.CapLabelsV1, State: types.WorkerActive,
		AppliedVersion: 1_760_000_000_003, ClaimedOver: types.ClaimedNothing, Nonce: "n1",
		Timestamp: time.Date(2026, 1, 2, 3, 4, 5, 600_000_000, time.UTC),
	}
}

func fullHeartbeat() types.Heartbeat {
	h := heartbeat()
	h.Labels = []string{"gpu", "zone/a"}
	h.State = types.WorkerRestarting
	h.LeaderRevision = 42
	h.AppliedDigest = "ae75ebef2ca19f099c1c356c3895c963"
	h.AppliedSourceRevision, h.AppliedSourceRevisionKnown = 9, true
	h.AppliedAt = h.Timestamp.Add(-time.Second)
	h.Unreturned = []types.Run{{Partition: "eu.orders.17", Epoch: 1_760_000_000_001}, {Partition: "eu.orders.18", Epoch: 1_760_000_000_002}}
	h.RestartGrace = 60_000
	h.ClaimedOver = types.ClaimedExpiry
	return h
}

func TestGoldenHeartbeat(t *testing.T) {
	for name, want := range map[string]types.Heartbeat{"heartbeat.json": heartbeat(), "heartbeat_full.json": fullHeartbeat()} {
		raw, err := want.Encode()
		require.NoError(t, err)
		got, err := types.DecodeHeartbeat("worker-1", golden.Equal(t, name, raw))
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

func TestGoldenLegacyHeartbeatIsATimestamp(t *testing.T) {
	want := types.Heartbeat{WorkerID: "agent", State: types.WorkerActive, Legacy: true, Timestamp: time.Date(2026, 1, 2, 3, 4, 5, 600_000_000, time.UTC)}
	for _, text := range []string{string(golden.Equal(t, "heartbeat_legacy.txt", []byte("2026-01-02T03:04:05.6Z"))), `"2026-01-02T03:04:05.6Z"`, " 2026-01-02T03:04:05.600Z\n"} {
		got, err := types.DecodeHeartbeat("agent", []byte(text))
		require.NoError(t, err)
		require.Equal(t, want, got)
		require.False(t, got.Capabilities.Has(types.CapAckV1))
	}
}

// An older release may state a schema and no capabilities: it is then treated like an agent, and needs no incarnation.
func TestHeartbeatWithoutCapabilities(t *testing.T) {
	h, err := types.DecodeHeartbeat("w", []byte(`{"worker_id":"w","schema_version":1,"later":{"x":[1]}}`))
	require.NoError(t, err)
	require.False(t, h.Legacy)
	require.False(t, h.Capabilities.Has(types.CapAckV1))
	require.Equal(t, types.Holder{Worker: "w"}, h.Holder())
}

func TestDecodeHeartbeatRefuses(t *testing.T) {
	encode := func(change func(h *types.Heartbeat)) string {
		h := heartbeat()
		change(&h)
		raw, err := h.Encode()
		require.NoError(t, err)
		return string(raw)
	}
	many := strings.Repeat(`{"partition":"p","epoch":1},`, types.MaxUnreturned+1)
	for text, want := range map[string]struct {
		kind error
		says string
	}{
		"":       {types.ErrMalformed, "is empty"},
		" \n":    {types.ErrMalformed, "is empty"},
		"hello":  {types.ErrMalformed, "neither JSON nor"},
		"[]":     {types.ErrMalformed, "neither JSON nor"},
		"{":      {types.ErrMalformed, `heartbeat of "worker-1"`},
		"{}":     {types.ErrMalformed, "no schema_version"},
		`{"a":}`: {types.ErrMalformed, `heartbeat of "worker-1"`},
		encode(func(h *types.Heartbeat) { h.SchemaVersion = 2 }):                                           {types.ErrUnsupportedSchema, "schema 2, this release reads up to 1"},
		encode(func(h *types.Heartbeat) { h.SchemaVersion = 0 }):                                           {types.ErrMalformed, "no schema_version"},
		encode(func(h *types.Heartbeat) { h.WorkerID = "other" }):                                          {types.ErrMalformed, `speaks for "other"`},
		encode(func(h *types.Heartbeat) { h.Incarnation = "" }):                                            {types.ErrMalformed, "no incarnation"},
		encode(func(h *types.Heartbeat) { h.AppliedVersion = types.MaxVersion }):                           {types.ErrMalformed, "has applied_version 4503599627370496"},
		encode(func(h *types.Heartbeat) { h.AppliedVersion = math.MaxInt64 }):                              {types.ErrMalformed, "versions lie between"},
		encode(func(h *types.Heartbeat) { h.AppliedVersion = -1 }):                                         {types.ErrMalformed, "has applied_version -1"},
		encode(func(h *types.Heartbeat) { h.Unreturned = []types.Run{{Partition: "p", Epoch: 1 << 62}} }):  {types.ErrMalformed, "of an epoch that is none"},
		`{"worker_id":"worker-1","schema_version":1,"unreturned":[` + strings.TrimSuffix(many, ",") + `]}`: {types.ErrMalformed, "names 65 runs"},
	} {
		_, err := types.DecodeHeartbeat("worker-1", []byte(text))
		require.ErrorIs(t, err, want.kind, text)
		require.ErrorContains(t, err, want.says, text)
	}
}

func TestHeartbeatNamesAtMost64Runs(t *testing.T) {
	h := heartbeat()
	for i := range types.MaxUnreturned {
		h.Unreturned = append(h.Unreturned, types.Run{Partition: strings.Repeat("p", 200) + strconv.Itoa(i), Epoch: 1})
	}
	raw, err := h.Encode()
	require.NoError(t, err)
	require.Less(t, len(raw), 32<<10)
	require.True(t, h.Names(h.Unreturned[63].Partition))
	require.False(t, h.Names("other"))
	h.Unreturned = append(h.Unreturned, types.Run{Partition: "p", Epoch: 1})
	_, err = h.Encode()
	require.ErrorIs(t, err, types.ErrMalformed)
}

func TestClaimedOverProvesRelease(t *testing.T) {
	for over, want := range map[types.ClaimedOver]bool{
		types.ClaimedExpiry: true, types.ClaimedLeft: true, types.ClaimedRestarting: true, types.ClaimedOwn: true,
		types.ClaimedNothing: false, "": false, "something later": false,
	} {
		require.Equal(t, want, over.ProvesRelease(), over)
	}
	for state, gone := range map[types.WorkerState]bool{
		types.WorkerLeft: true, types.WorkerRestarting: true,
		types.WorkerJoining: false, types.WorkerActive: false, types.WorkerDraining: false, "": false,
	} {
		require.Equal(t, gone, state.Gone(), state)
	}
}

func FuzzDecodeHeartbeat(f *testing.F) {
	for _, h := range []types.Heartbeat{heartbeat(), fullHeartbeat()} {
		raw, err := h.Encode()
		require.NoError(f, err)
		f.Add(raw)
	}
	f.Add([]byte("2026-01-02T03:04:05.6Z"))
	f.Add([]byte(`{"worker_id":"worker-1","schema_version":2}`))
	for _, v := range []int64{math.MaxInt64, math.MinInt64, types.MaxVersion, types.MaxVersion - 1} {
		f.Add(fmt.Appendf(nil, `{"worker_id":"worker-1","schema_version":1,"applied_version":%d,"unreturned":[{"partition":"p","epoch":%d}]}`, v, v))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		h, err := types.DecodeHeartbeat("worker-1", data)
		if err != nil {
			require.True(t, errors.Is(err, types.ErrMalformed) != errors.Is(err, types.ErrUnsupportedSchema), "%v", err)
			return
		}
		require.Equal(t, "worker-1", h.WorkerID)
		require.LessOrEqual(t, len(h.Unreturned), types.MaxUnreturned)
		require.True(t, h.AppliedVersion == 0 || types.ValidVersion(h.AppliedVersion))
		if h.Legacy {
			return
		}
		raw, err := h.Encode()
		if err != nil { // only for a time that JSON cannot carry
			require.ErrorContains(t, err, "Time")
			return
		}
		again, err := types.DecodeHeartbeat("worker-1", raw)
		require.NoError(t, err)
		second, err := again.Encode()
		require.NoError(t, err)
		require.Equal(t, string(raw), string(second))
	})
}
