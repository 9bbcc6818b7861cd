package parti

import (
	"errors"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// An error of the leader's Refresh is for errors.Is the same where its answer arrives, whatever it wraps, and its text is there to read.
func TestRefreshAnswersKeepTheirKind(t *testing.T) {
	require.NoError(t, refreshResult(refreshAnswer(nil)))
	require.NoError(t, refreshResult(&nats.Msg{}), "an earlier release's")
	for _, kind := range refreshKinds {
		err := refreshResult(refreshAnswer(fmt.Errorf("while looking: %w", kind)))
		require.EqualError(t, err, "parti: refresh: the leader reports: while looking: "+kind.Error())
		for _, other := range refreshKinds {
			require.Equal(t, errors.Is(kind, other), errors.Is(err, other), "%v, %v", kind, other)
		}
	}
	both := refreshResult(refreshAnswer(fmt.Errorf("%w: %w", types.ErrSourceFailed, types.ErrDuplicatePartition)))
	require.ErrorIs(t, both, ErrSourceFailed)
	require.ErrorIs(t, both, ErrDuplicatePartition)

	earlier := refreshResult(&nats.Msg{Data: []byte("parti: partition source failed: no table")})
	require.EqualError(t, earlier, "parti: refresh: the leader reports: parti: partition source failed: no table")
	later := refreshResult(&nats.Msg{Data: []byte("x"), Header: nats.Header{refreshCode: {"something-new"}}})
	require.EqualError(t, later, "parti: refresh: the leader reports: x")
}
