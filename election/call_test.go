package election

import (
	"context"
	"testing"
	"time"

	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// A connection that blocks in a write makes a call outlive its context. The elector goes on without it, and makes no other
// call before it has ended.
func TestCallThatHangs(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		g := newGroup(t)
		a := g.prepare(env.Connect("a")) // not started: this is its goroutine
		start := time.Now()
		hang := make(chan struct{})
		_, err := call(a.Elector, t.Context(), start.Add(time.Second), func(context.Context) (int, error) { <-hang; return 1, nil })
		require.ErrorIs(t, err, types.ErrOutcomeUnknown)
		require.Equal(t, time.Second+hangGrace, time.Since(start))

		sent := false
		_, err = call(a.Elector, t.Context(), start.Add(2*time.Second), func(context.Context) (int, error) { sent = true; return 1, nil })
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, types.ErrOutcomeUnknown)
		require.False(t, sent)

		close(hang)
		v, err := call(a.Elector, t.Context(), start.Add(3*time.Second), func(context.Context) (int, error) { return 1, nil })
		require.NoError(t, err)
		require.Equal(t, 1, v)
	})
}
