package groupspec

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

func TestOf(t *testing.T) {
	require.Equal(t, Source{Kind: Numbered, Count: 64}, Of(Numbers(64)))
	named := []types.Partition{types.NewPartition("a", "b"), {Keys: []string{"0"}, Label: "x"}}
	require.Equal(t, Source{Kind: Static, Count: 2, Partitions: named}, Of(named))
	weighed := Numbers(2)
	weighed[1].Weight = 7
	require.Equal(t, Static, Of(weighed).Kind)
	var large []types.Partition
	for i := range 20_000 {
		large = append(large, types.NewPartition(fmt.Sprintf("partition-%d", i)))
	}
	require.Equal(t, Source{Kind: Static, Count: 20_000}, Of(large), "a list that is too large is only counted")
}

func TestRoundTrip(t *testing.T) {
	s := Spec{
		Schema: 1, Source: Of(Numbers(3)), Strategy: "sticky", By: "w", At: time.Unix(1, 0).UTC(),
		Settings: Settings{HeartbeatInterval: time.Second, UnlabeledPolicy: types.UnlabeledShared, MaxWorkers: 3},
	}
	data, err := s.Encode()
	require.NoError(t, err)
	got, err := Decode(data)
	require.NoError(t, err)
	require.Equal(t, s, got)
	other := s
	other.By, other.At = "v", time.Unix(2, 0)
	require.True(t, s.Same(other))
	other.Settings.MaxWorkers++
	require.False(t, s.Same(other))
}

func TestDecodeRefuses(t *testing.T) {
	for data, want := range map[string]error{
		"":             types.ErrMalformed,
		"{}":           types.ErrMalformed,
		`{"schema":2}`: types.ErrUnsupportedSchema,
		`{"schema":1,"source":{"kind":"numbered","count":-1}}`:                                               types.ErrMalformed,
		`{"schema":1,"source":{"kind":"numbered","count":99999999999}}`:                                      types.ErrMalformed,
		`{"schema":1,"source":{"kind":"static","partitions":[{"keys":["a"]},{"keys":["a"]}]}}`:               types.ErrMalformed,
		`{"schema":1,"source":{"kind":"static","partitions":[{"keys":["` + strings.Repeat(".", 9) + `"]}]}}`: types.ErrMalformed,
	} {
		_, err := Decode([]byte(data))
		require.ErrorIs(t, err, want, data)
	}
}
