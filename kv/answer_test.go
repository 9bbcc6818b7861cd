package kv_test

import (
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/partigo/parti/kv"
	"github.com/stretchr/testify/require"
)

// What PutMsg returns is stored as by Put, and PutAnswer tells a new revision from everything else.
func TestPutMsg(t *testing.T) {
	env := single(t)
	c := env.Connect("a")
	s := ensure(t, c, memory()).Control
	put := func(value string, expect uint64) (uint64, bool) {
		msg, err := s.PutMsg("a.b", []byte(value), expect)
		require.NoError(t, err)
		m, err := c.JS().Conn().RequestMsgWithContext(t.Context(), msg)
		require.NoError(t, err)
		return kv.PutAnswer(m)
	}
	rev, ok := put("1", 0)
	require.True(t, ok)
	e, err := s.Get(t.Context(), "a.b")
	require.NoError(t, err)
	require.Equal(t, "1", string(e.Value))
	require.Equal(t, e.Revision, rev)
	_, ok = put("2", rev+1)
	require.False(t, ok, "a conflict")
	_, ok = put("2", rev)
	require.True(t, ok)
	for _, data := range []string{"", "no JSON", "{}", `{"error":{"code":503},"stream":"KV_x","seq":7}`} {
		_, ok = kv.PutAnswer(&nats.Msg{Data: []byte(data)})
		require.False(t, ok, "%q", data)
	}
}
