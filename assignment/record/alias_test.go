package record

import (
	"strings"
	"testing"

	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// The bytes are a contract with programs in other languages: see docs/PLAIN-WORKERS.md.
func TestAliasFormat(t *testing.T) {
	data, err := EncodeAlias("js-1", 1764453213000, []types.AssignmentEntry{
		{Partition: types.Partition{Keys: []string{"eu", "b c"}, Weight: 7, Label: "gpu"}, Epoch: 12,
			From: []types.From{{Holder: types.Holder{Worker: "w", Incarnation: "i"}, Version: 12}}},
		{Partition: types.NewPartition("eu", "a"), Epoch: 11},
	})
	require.NoError(t, err)
	require.Equal(t, `{"schema":1,"worker_id":"js-1","version":1764453213000,"partitions":[`+
		`{"id":"eu.a","epoch":11,"keys":["eu","a"],"weight":100,"subject":"eu.a"},`+
		`{"id":"eu.b=20c","epoch":12,"keys":["eu","b c"],"weight":7,"label":"gpu","subject":"eu.b c","earlier_owner":true}]}`, string(data))

	a, err := DecodeAlias(data)
	require.NoError(t, err)
	require.Equal(t, "js-1", a.WorkerID)
	require.Len(t, a.Partitions, 2)
	empty, err := EncodeAlias("js-1", 1, nil)
	require.NoError(t, err)
	require.Contains(t, string(empty), `"partitions":[]`, "a list, also where there is nothing")
}

func TestAliasFaults(t *testing.T) {
	_, err := EncodeAlias("js-1", 1, []types.AssignmentEntry{{Partition: types.NewPartition(strings.Repeat("x", MaxAlias)), Epoch: 1}})
	require.ErrorIs(t, err, types.ErrPayloadTooLarge)
	for text, want := range map[string]error{
		`{"schema":2}`: types.ErrUnsupportedSchema,
		`{"schema":1}`: types.ErrMalformed,
		`{"schema":1,"worker_id":"a b","version":1}`:              types.ErrMalformed,
		`{"schema":1,"worker_id":"a","version":4503599627370496}`: types.ErrMalformed,
		`{`: types.ErrMalformed,
	} {
		_, err := DecodeAlias([]byte(text))
		require.ErrorIs(t, err, want, text)
	}
}
