package election

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/partigo/parti/internal/golden"
	"github.com/partigo/parti/kv"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// Candidates of older and newer releases read what a leader writes.
func TestGoldenLeaderValue(t *testing.T) {
	first := record{
		Holder:       types.Holder{Worker: "worker-1", Incarnation: "6ba7b810-9dad-41d1-80b4-000000000001"},
		LeaseSeconds: 10, AcquiredAt: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Nonce: "n1",
	}
	renewed := first
	renewed.Term, renewed.CommitVersion, renewed.Nonce = 42, 1_760_000_000_003, "n2"
	for name, want := range map[string]record{"leader_first.json": first, "leader_renewed.json": renewed} {
		raw, err := json.Marshal(want)
		require.NoError(t, err)
		got, err := decode(kv.Entry{Key: Key, Value: golden.Equal(t, name, raw), Revision: 50})
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}
