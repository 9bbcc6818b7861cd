package source

import (
	"context"
	"errors"
	"testing"

	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

func TestStatic(t *testing.T) {
	in := []types.Partition{types.NewPartition("a", "1"), {Keys: []string{"a", "2"}, Weight: 7, Label: "gpu"}}
	s := Static(in...)
	require.NoError(t, s.Validate())
	in[0].Keys[0], in[1].Weight = "changed", 8
	got, err := s.ListPartitions(t.Context())
	require.NoError(t, err)
	require.Equal(t, []types.Partition{types.NewPartition("a", "1"), {Keys: []string{"a", "2"}, Weight: 7, Label: "gpu"}}, got)
	got[0].Keys[1] = "changed"
	got[0].Keys = append(got[0].Keys, "more") // must not run into the next partition's keys
	requireList(t, s, types.NewPartition("a", "1"), types.Partition{Keys: []string{"a", "2"}, Weight: 7, Label: "gpu"})
	requireList(t, Static())
}

func TestStaticReportsFaults(t *testing.T) {
	s := Static(types.NewPartition("a"), types.NewPartition("a"), types.NewPartition("b.c"))
	for _, err := range []error{s.Validate(), func() error { _, err := s.ListPartitions(t.Context()); return err }()} {
		require.ErrorIs(t, err, types.ErrDuplicatePartition)
		require.ErrorIs(t, err, types.ErrInvalidPartition)
	}
}

func TestFunc(t *testing.T) {
	mine := []types.Partition{types.NewPartition("a")}
	fail := errors.New("database down")
	var err error
	s := Func(func(context.Context) ([]types.Partition, error) { return mine, err })
	require.NoError(t, s.Validate())
	got, gotErr := s.ListPartitions(t.Context())
	require.NoError(t, gotErr)
	mine[0].Keys[0] = "b"
	require.Equal(t, "a", got[0].Keys[0])
	requireList(t, s, types.NewPartition("b"))

	mine = append(mine, mine[0])
	_, gotErr = s.ListPartitions(t.Context())
	require.ErrorIs(t, gotErr, types.ErrDuplicatePartition)
	err = fail
	got, gotErr = s.ListPartitions(t.Context())
	require.ErrorIs(t, gotErr, fail)
	require.Nil(t, got)

	require.ErrorIs(t, Func(nil).Validate(), types.ErrInvalidConfig)
	_, gotErr = Func(nil).ListPartitions(t.Context())
	require.ErrorIs(t, gotErr, types.ErrInvalidConfig)
}
