package parti

import (
	"testing"

	"github.com/partigo/parti/source"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// What can only panic later is refused, nil pointers and functions in an interface too.
func TestNilArgumentsAreRefused(t *testing.T) {
	for _, s := range []types.AssignmentStrategy{nil, types.StrategyFunc(nil)} {
		_, err := NewManager(nil, (*source.StaticSource)(nil), s)
		require.ErrorIs(t, err, ErrInvalidConfig)
		require.ErrorContains(t, err, "the strategy is nil")
		require.ErrorContains(t, err, "the source is nil")
		require.ErrorContains(t, err, "the JetStream context is nil")
	}
}
