package types_test

import (
	"testing"

	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

func TestControlOrderIsChecked(t *testing.T) {
	for value, fault := range map[string]string{
		`{"kind":"drain","worker":"w"}`:                                                   "",
		`{"kind":"drain","worker":"w","mode":"one-by-one","state":"done"}`:                "",
		`{"kind":"undrain","worker":"w","unknown":1}`:                                     "",
		`{"state":"refused","reason":"whatever it was"}`:                                  "",
		`{"kind":"drain","worker":"v"}`:                                                   "belong under",
		`{"kind":"drain","worker":"a b"}`:                                                 "worker",
		`{"kind":"drain","worker":"w","mode":"x"}`:                                        "all-at-once",
		`{"kind":"undrain","worker":"w","mode":"one-by-one"}`:                             "only a drain",
		`{"kind":"evict-worker","worker":"w","partition":"p"}`:                            "only an eviction of a partition",
		`{"kind":"evict-partition","worker":"w"}`:                                         "partition is empty",
		`{"kind":"evict-worker","worker":"w","state":"accepted"}`:                         "incarnation",
		`{"kind":"evict-worker","worker":"w","state":"accepted","incarnation":"i"}`:       "",
		`{"kind":"evict-partition","worker":"w","partition":"p","state":"in the making"}`: "state",
		`{"kind":"shoot","worker":"w"}`:                                                   "kind",
		`[]`:                                                                              "no JSON",
		``:                                                                                "no JSON",
	} {
		_, err := types.DecodeControlOrder("control.drain-w", []byte(value))
		if fault == "" {
			require.NoError(t, err, value)
			continue
		}
		require.ErrorIs(t, err, types.ErrMalformed, value)
		require.ErrorContains(t, err, fault, value)
	}
}

// What is refused can be written back and read again, whatever it was.
func FuzzControlOrder(f *testing.F) {
	f.Add([]byte(`{"kind":"drain","worker":"w","mode":"one-by-one","at":"2026-01-02T15:04:05Z"}`))
	f.Add([]byte(`{"kind":"evict-partition","worker":"w","partition":"a/b","state":"done","incarnation":"i"}`))
	f.Add([]byte("{"))
	f.Fuzz(func(t *testing.T, data []byte) {
		o, err := types.DecodeControlOrder("control.x", data)
		if err != nil {
			require.ErrorIs(t, err, types.ErrMalformed)
			return
		}
		again, err := o.Encode()
		require.NoError(t, err)
		back, err := types.DecodeControlOrder("control.x", again)
		require.NoError(t, err)
		require.Equal(t, o.Kind, back.Kind)
		require.Equal(t, o.State, back.State)
	})
}
