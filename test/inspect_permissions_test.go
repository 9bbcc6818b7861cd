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

// Who may only read can inspect a group, and nothing that it does is refused.
func TestInspectPermissions(t *testing.T) {
	var publish []string
	for _, stream := range []string{"KV_orders-control", "KV_orders-heartbeat"} {
		publish = append(publish, "$JS.API.STREAM.INFO."+stream, "$JS.API.DIRECT.GET."+stream+".>")
		for _, call := range []string{"CREATE", "INFO", "DELETE", "MSG.NEXT"} {
			publish = append(publish, "$JS.API.CONSUMER."+call+"."+stream+".>")
		}
	}
	env := natstest.Single(t, natstest.WithServerOptions(func(o *server.Options) {
		o.Users = []*server.User{{Username: "admin", Password: "secret"}, {Username: "reader", Password: "secret", Permissions: &server.Permissions{
			Publish:   &server.SubjectPermission{Allow: append(publish, "$JS.API.STREAM.LIST")},
			Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.>"}},
		}}}
	}))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	m, err := parti.NewManager(env.Connect("worker", nats.UserInfo("admin", "secret")).JS(), source.Static(types.NewPartition("a")), strategy.Sticky(),
		parti.WithNamespace("orders"), parti.WithStorage(jetstream.MemoryStorage), parti.WithExpectedWorkers(1))
	require.NoError(t, err)
	require.NoError(t, m.Start(ctx))
	require.NoError(t, m.WaitReady(ctx))
	reader := env.Connect("reader", nats.UserInfo("reader", "secret"))
	v, err := parti.Inspect(ctx, reader.JS(), "orders")
	require.NoError(t, err)
	require.Len(t, v.Partitions, 1)
	groups, err := parti.Groups(ctx, reader.JS())
	require.NoError(t, err)
	require.Equal(t, []string{"orders"}, groups)
	require.NoError(t, reader.Conn().LastError())
	require.NoError(t, m.Stop(ctx))
}
