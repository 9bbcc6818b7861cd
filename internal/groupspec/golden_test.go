package groupspec

import (
	"errors"
	"testing"
	"time"

	"github.com/partigo/parti/internal/golden"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// Other processes, of older and newer releases, read what is written here.
func TestGoldenSpec(t *testing.T) {
	settings := Settings{
		HeartbeatInterval: time.Second, LeaderLease: 2 * time.Second, ColdStartWindow: 3 * time.Second, ScaleWindow: 4 * time.Second,
		SettleDelay: 5 * time.Second, Cooldown: 6 * time.Second, DampingPeriod: 7 * time.Second, HandoffTimeout: 8 * time.Second,
		LabelSpillGrace: 9 * time.Second, UnlabeledPolicy: types.UnlabeledShared, ExpectedWorkers: 10, MaxWorkers: 11,
	}
	named := []types.Partition{types.NewPartition("eu", "orders"), {Keys: []string{"us"}, Weight: 250, Label: "gpu"}}
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, want := range map[string]Spec{
		"numbered.json": {Schema: 1, Source: Of(Numbers(64)), Strategy: "sticky", Settings: settings, By: "worker-1", At: at},
		"static.json":   {Schema: 1, Source: Of(named), Type: "main.mine", Settings: settings, By: "worker-1", At: at},
		"kv.json":       {Schema: 1, Source: Source{Kind: KV, Bucket: "lists", Key: "orders"}, Strategy: "hash", By: "worker-1", At: at},
	} {
		raw, err := want.Encode()
		require.NoError(t, err)
		got, err := Decode(golden.Equal(t, name, raw))
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

// What is read can be written and read again, and is the same group.
func FuzzDecode(f *testing.F) {
	raw, err := Spec{Source: Of([]types.Partition{types.NewPartition("a", "b")}), Strategy: "sticky", By: "w"}.Encode()
	require.NoError(f, err)
	f.Add(raw)
	f.Add([]byte(`{"schema":1,"source":{"kind":"numbered","count":99999999999}}`))
	f.Add([]byte(`{"schema":1,"source":{"kind":"static","partitions":[{"keys":["a"]},{"keys":["a"]}]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := Decode(data)
		if err != nil {
			require.True(t, errors.Is(err, types.ErrMalformed) != errors.Is(err, types.ErrUnsupportedSchema), "%v", err)
			require.Zero(t, s)
			return
		}
		require.True(t, s.Source.Count >= 0 && s.Source.Count <= maxPartitions)
		raw, err := s.Encode()
		if err != nil { // only for a time that JSON cannot carry
			require.ErrorContains(t, err, "Time")
			return
		}
		again, err := Decode(raw)
		require.NoError(t, err)
		require.True(t, s.Same(again))
	})
}
