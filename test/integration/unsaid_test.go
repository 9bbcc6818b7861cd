package integration

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/test/grouptest"
	"github.com/stretchr/testify/require"
)

// A worker that stops while the store does not answer says that its goodbye was not stored, and nothing else. The others wait for the expiry.
func TestGoodbyeThatIsNotStored(t *testing.T) {
	grouptest.Bubble(t, func(g *grouptest.Group) {
		g.Start(2)
		g.WaitAllRunning(10 * time.Second)
		w := g.Follower()
		w.Client.Gate().Lose(natstest.ToServer)
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		err := w.StopWithin(ctx)
		require.True(t, grouptest.Unsaid(err), "%v", err)
		require.False(t, grouptest.Unsaid(errors.Join(err, errors.New("something else"))))
		require.False(t, grouptest.Unsaid(nil))
		g.WaitRunningOn(ttl+announced, g.Live()...)
	}, fast, grouptest.Partitions(10))
}
