package test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/source"
	"github.com/partigo/parti/strategy"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { natstest.VerifyTestMain(m) }

// A group lives its whole life with the permissions of docs/OPERATIONS.md, and the server refuses nothing.
func TestDocumentedPermissions(t *testing.T) {
	users := documentedUsers(t, "## Permissions")
	env := natstest.Single(t, natstest.WithServerOptions(func(o *server.Options) { o.Users = users }))

	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	join := func(name, user string) (*parti.Manager, *nats.Conn) {
		c := env.Connect(name, nats.UserInfo(user, "secret"))
		m, err := parti.NewManager(c.JS(), source.Static(types.NewPartition("a"), types.NewPartition("b")), strategy.Sticky(),
			parti.WithNamespace("orders"), parti.WithStorage(jetstream.MemoryStorage), parti.WithWorkerID(name),
			parti.WithHeartbeat(time.Second, 20*time.Second), parti.WithLeaderLease(5*time.Second),
			parti.WithWindows(time.Second, time.Second, 100*time.Millisecond), parti.WithCooldown(100*time.Millisecond),
			parti.WithHandler(func(ctx context.Context, _ parti.Ownership) error { <-ctx.Done(); return nil }))
		require.NoError(t, err)
		require.NoError(t, m.Start(ctx))
		require.NoError(t, m.WaitReady(ctx))
		return m, c.Conn()
	}
	first, _ := join("first", "admin") // creates the streams
	require.NoError(t, first.Stop(ctx))

	leader, leaderConn := join("leader", "worker")
	follower, followerConn := join("follower", "worker")
	env.WaitFor(time.Minute, "somebody leads, and looks", func() bool { return follower.Refresh(ctx) == nil })
	require.NoError(t, leader.Stop(ctx)) // and the other takes over
	require.NoError(t, follower.Stop(ctx))
	require.NoError(t, leaderConn.LastError())
	require.NoError(t, followerConn.LastError())
}
