package integration

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/partigo/parti"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// A login that is refused twice closes a connection for good, whatever MaxReconnects says, and so ends its Manager. With IgnoreAuthErrorAbort the
// worker is degraded, and takes part again when the login is right.
func TestRefusedLoginEndsTheManagerUnlessIgnored(t *testing.T) {
	natstest.Long(t)
	user := &server.User{Username: "u", Password: "secret"}
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		login := func(password string) {
			env.Server.Stop()
			user.Password = password
			require.NoError(t, env.Server.Start())
		}
		begin := func(name string, opts ...nats.Option) (*natstest.Client, *parti.Manager) {
			c := env.Connect(name, append(opts, nats.UserInfo("u", "secret"))...)
			m := manager(t, c.JS())
			require.NoError(t, m.Start(t.Context()))
			return c, m
		}
		c, short := begin("short")
		_, patient := begin("patient", nats.IgnoreAuthErrorAbort())
		require.NoError(t, short.WaitReady(t.Context()))
		require.NoError(t, patient.WaitReady(t.Context()))
		require.Equal(t, -1, c.Conn().Opts.MaxReconnect)

		login("another")
		env.WaitFor(time.Minute, "the Manager ends", func() bool { return short.State() == parti.StateStopped })
		require.True(t, c.Conn().IsClosed())
		require.ErrorIs(t, c.Conn().LastError(), nats.ErrAuthorization)
		require.ErrorIs(t, short.Status().LastError, parti.ErrConnectionClosed)
		time.Sleep(10 * time.Minute)
		require.Equal(t, parti.StateDegraded, patient.State())
		require.Contains(t, patient.Status().Degraded, "no connection to NATS")

		login("secret")
		env.WaitFor(time.Minute, "it takes part again", func() bool {
			return patient.Status().Ready() && patient.IsLeader() && len(patient.Assignment().Partitions) == 1
		})
		require.Equal(t, types.StateStable, patient.State())
		require.NoError(t, patient.Stop(context.Background()))
	}, natstest.WithServerOptions(func(o *server.Options) { o.Users = []*server.User{user} }))
}
