package kv_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/kv"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// restricted runs f in virtual time with a server that has an unrestricted user "admin" and one, "worker", with the given permissions.
func restricted(t *testing.T, p *server.Permissions, f func(t *testing.T, env *natstest.Env)) {
	natstest.Bubble(t, f, natstest.WithServerOptions(func(o *server.Options) {
		o.Users = []*server.User{{Username: "admin", Password: "p"}, {Username: "worker", Password: "p", Permissions: p}}
	}))
}

func deny(publish, subscribe []string) *server.Permissions {
	return &server.Permissions{
		Publish:   &server.SubjectPermission{Allow: []string{">"}, Deny: publish},
		Subscribe: &server.SubjectPermission{Allow: []string{">"}, Deny: subscribe},
	}
}

func TestMissingPermissionsAreNamedAtStart(t *testing.T) {
	for name, tc := range map[string]struct {
		perm *server.Permissions
		want []string
	}{
		"API":    {deny([]string{"$JS.API.>"}, nil), []string{`$JS.API.STREAM.INFO.KV_orders-control`, `$JS.API.CONSUMER.CREATE.KV_orders-heartbeat`}},
		"writes": {deny([]string{"$KV.>"}, nil), []string{`publish to $KV.orders-control.`, `publish to $KV.orders-heartbeat.`}},
		"one":    {deny([]string{"$KV.orders-heartbeat.>"}, nil), []string{`publish to $KV.orders-heartbeat.`}},
		"reads":  {deny([]string{"$JS.API.DIRECT.>"}, nil), []string{`$JS.API.DIRECT.GET.KV_orders-control.`}},
		"live":   {deny(nil, []string{"_PARTI.>"}), []string{`subscribe to _PARTI.orders.live.*.*`}},
		"inbox":  {deny(nil, []string{"_INBOX.>"}), []string{`subscribe to _INBOX.`}},
	} {
		t.Run(name, func(t *testing.T) {
			restricted(t, tc.perm, func(t *testing.T, env *natstest.Env) {
				c := env.Connect("w", nats.UserInfo("worker", "p"))
				start := time.Now()
				_, err := kv.EnsureBuckets(t.Context(), c.JS(), memory())
				require.ErrorIs(t, err, types.ErrPermission)
				for _, w := range tc.want {
					require.ErrorContains(t, err, w)
				}
				require.Less(t, time.Since(start), time.Second, "it must not wait for answers that cannot come")
				require.Zero(t, streams(t, env))
			})
		})
	}
}

func TestMayNotCreateBuckets(t *testing.T) {
	restricted(t, deny([]string{"$JS.API.STREAM.CREATE.>"}, nil), func(t *testing.T, env *natstest.Env) {
		c := env.Connect("w", nats.UserInfo("worker", "p"))
		_, err := kv.EnsureBuckets(within(t, time.Second), c.JS(), memory())
		require.ErrorIs(t, err, types.ErrPermission)
		require.ErrorContains(t, err, `"$JS.API.STREAM.CREATE.KV_orders-control"`)

		// With the buckets there, the permission is not needed.
		ensure(t, env.Connect("a", nats.UserInfo("admin", "p")), memory())
		ensure(t, c, memory())
	})
}

// The permissions that CheckAccess documents are enough for everything.
func TestDocumentedPermissionsAreEnough(t *testing.T) {
	publish := []string{}
	for _, b := range []string{"orders-control", "orders-heartbeat"} {
		publish = append(publish, "$KV."+b+".>", "$JS.API.STREAM.INFO.KV_"+b, "$JS.API.DIRECT.GET.KV_"+b+".>")
		for _, call := range []string{"CREATE", "INFO", "DELETE", "MSG.NEXT"} {
			publish = append(publish, "$JS.API.CONSUMER."+call+".KV_"+b+".>")
		}
	}
	enough := &server.Permissions{
		Publish:   &server.SubjectPermission{Allow: publish},
		Subscribe: &server.SubjectPermission{Allow: []string{"_PARTI.orders.live.>", "_INBOX.>"}},
	}
	restricted(t, enough, func(t *testing.T, env *natstest.Env) {
		ensure(t, env.Connect("a", nats.UserInfo("admin", "p")), memory())
		c := env.Connect("w", nats.UserInfo("worker", "p"))
		b := ensure(t, c, memory())
		ctx := within(t, 5*time.Second)
		rev, err := b.Heartbeat.Create(ctx, "heartbeat.a", []byte("x"), 0)
		require.NoError(t, err)
		_, err = b.Heartbeat.Batch(ctx, []kv.Write{{Key: "heartbeat.b", Value: []byte("y")}, {Key: "heartbeat.a", Delete: true, Expect: rev}})
		require.NoError(t, err)
		_, err = b.Heartbeat.Get(ctx, "heartbeat.b")
		require.NoError(t, err)
		l, err := b.Heartbeat.List(ctx, "heartbeat.*")
		require.NoError(t, err)
		require.Len(t, l, 2)
		l, err = b.Control.ListKeys(ctx, "a.*", "b.*")
		require.NoError(t, err)
		require.Empty(t, l)
		_, err = b.Control.Identity(ctx)
		require.NoError(t, err)
		require.NoError(t, c.Conn().LastError())
	})
}

func TestPermissionErrorsOfOperations(t *testing.T) {
	secret := deny([]string{"$KV.orders-control.secret.>", "$JS.API.DIRECT.GET.KV_orders-control.$KV.orders-control.secret.>",
		"$JS.API.CONSUMER.CREATE.KV_orders-control.*.$KV.orders-control.secret.*"}, []string{"_PARTI.orders.live.secret.*"})
	restricted(t, secret, func(t *testing.T, env *natstest.Env) {
		c := env.Connect("w", nats.UserInfo("worker", "p"))
		b := ensure(t, c, memory())
		short := func() context.Context { return within(t, 100*time.Millisecond) }

		_, err := b.Control.Put(short(), "secret.a", []byte("x"), 0, 0)
		require.ErrorIs(t, err, types.ErrPermission)
		require.ErrorContains(t, err, `may not publish to "$KV.orders-control.secret.a"`)
		require.True(t, kv.IsUnknown(err), "the report may be older than the write")
		_, err = b.Control.Batch(short(), []kv.Write{{Key: "a.b"}, {Key: "secret.b"}})
		require.ErrorIs(t, err, types.ErrPermission)
		_, err = b.Control.Get(short(), "secret.a")
		require.ErrorIs(t, err, types.ErrPermission)
		_, err = b.Control.List(short(), "secret.*")
		require.ErrorIs(t, err, types.ErrPermission)
		require.ErrorIs(t, err, types.ErrPartialListing)

		sub, err := c.Conn().SubscribeSync(kv.LiveSubject(ns, "secret.*"))
		require.NoError(t, err, "nats.go says nothing here")
		require.ErrorIs(t, kv.CheckSubscribed(short(), c.Conn(), sub), types.ErrPermission)
		sub, err = c.Conn().SubscribeSync(kv.LiveSubject(ns, "open.*"))
		require.NoError(t, err)
		require.NoError(t, kv.CheckSubscribed(short(), c.Conn(), sub), "an older report about another subject does not count")

		// A timeout for another reason is not explained by an older report.
		_, err = b.Control.Put(short(), "secret.a", nil, 0, 0)
		require.ErrorIs(t, err, types.ErrPermission)
		c.Gate().Hold(natstest.Both)
		_, err = b.Control.Put(short(), "open.a", nil, 0, 0)
		require.True(t, kv.IsUnknown(err))
		require.NotErrorIs(t, err, types.ErrPermission)
		c.Gate().Heal()
	})
}

// Who has told the JetStream context to wait longer than usual is not told earlier that nobody answers.
func TestAccessWaitsAsLongAsTheContextOfJetStream(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		c := env.Connect("a")
		js, err := jetstream.New(c.Conn(), jetstream.WithDefaultTimeout(20*time.Second))
		require.NoError(t, err)
		c.Gate().Hold(natstest.FromServer)
		time.AfterFunc(15*time.Second, c.Gate().Heal)
		require.NoError(t, kv.CheckAccess(t.Context(), js, ns))

		c.Gate().Hold(natstest.FromServer)
		began := time.Now()
		require.ErrorIs(t, kv.CheckAccess(t.Context(), c.JS(), ns), types.ErrNoServer)
		require.Equal(t, 5*time.Second, time.Since(began))
		c.Gate().Heal()
	})
}

func TestPermissionErrorLeavesOtherErrorsAlone(t *testing.T) {
	env := single(t)
	c := env.Connect("a")
	other := errors.New("x")
	require.Equal(t, other, kv.PermissionError(c.Conn(), "op", other, ""))
	require.NoError(t, kv.PermissionError(c.Conn(), "op", nil, ""))
	require.Equal(t, nats.ErrTimeout, kv.PermissionError(c.Conn(), "op", nats.ErrTimeout, ""))
}
