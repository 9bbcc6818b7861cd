package main

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti"
	"github.com/partigo/parti/internal/groupspec"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/kv"
	"github.com/partigo/parti/strategy"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// A coordinator whose connection is closed for good leads nothing and could not begin to: it says so and ends with an error, so that whoever
// runs it starts another one.
func TestCoordinatorEndsWithItsConnection(t *testing.T) {
	natstest.Long(t)
	b := newBench(t)
	w := b.worker("orders", numbers(8), strategy.Sticky(), parti.WithRole(parti.RoleFollower))
	for _, args := range [][]string{{"orders"}, {"-all"}} {
		var out, errs natstest.Buffer
		c, _ := find("coordinator")
		fs, conn, do := c.flags(&errs)
		rest, err := parse(fs, append(args, "-poll", "200ms", "-server", b.Server.URL()))
		require.NoError(t, err)
		cl, err := conn.open(&out, &errs)
		require.NoError(t, err)
		ended := make(chan error, 1)
		go func() { ended <- do(t.Context(), cl, rest) }()
		b.WaitFor(30*time.Second, "it coordinates", func() bool { return strings.Contains(out.String(), "coordinating orders") })
		b.waitOwned(8, w)
		cl.nc.Close()
		select {
		case err = <-ended:
		case <-time.After(time.Minute):
			t.Fatalf("it has not ended; it says %s", errs.String())
		}
		require.ErrorContains(t, err, "closed for good")
		require.Equal(t, exitFailed, exitCode(err))
	}
}

// A login that is refused again and again, which closes a connection where nats.go is not told otherwise, is waited out.
func TestCoordinatorOutlastsRefusedLogins(t *testing.T) {
	natstest.Long(t)
	lead := &server.User{Username: "lead", Password: "secret"}
	b := bench{t: t, Env: natstest.Single(t, natstest.WithTCP(), natstest.WithServerOptions(func(o *server.Options) {
		o.Users = []*server.User{lead, {Username: "work", Password: "secret"}}
	})), auth: []nats.Option{nats.UserInfo("work", "secret")}}
	const refused = "nats: authorization violation"
	login := func(password string) {
		b.Server.Stop()
		lead.Password = password
		require.NoError(t, b.Server.Start())
	}
	opts := []parti.Option{parti.WithRole(parti.RoleFollower), parti.WithStorage(jetstream.FileStorage)}
	w := b.worker("orders", numbers(8), strategy.Sticky(), opts...)
	ctx, cancel := context.WithCancel(t.Context())
	var out, errs natstest.Buffer
	code := make(chan int, 1)
	url := strings.Replace(b.Server.URL(), "nats://", "nats://lead:secret@", 1)
	go func() { code <- run(ctx, []string{"coordinator", "orders", "-server", url}, &out, &errs) }()
	b.waitOwned(8, w)
	login("another")
	b.WaitFor(time.Minute, "it was refused three times", func() bool { return strings.Count(strings.ToLower(errs.String()), refused) >= 3 })
	require.Empty(t, code)
	login("secret")
	w2 := b.worker("orders", numbers(8), strategy.Sticky(), opts...)
	b.WaitFor(time.Minute, "it leads", func() bool { return b.owned(w2) == 4 && b.owned(w) == 4 })
	cancel()
	require.Equal(t, exitDone, <-code, errs.String())
}

// What goes wrong with one of the named groups after it was led is told and tried again. The others are led meanwhile.
func TestCoordinatorKeepsTheOtherGroups(t *testing.T) {
	b := newBench(t)
	follower := parti.WithRole(parti.RoleFollower)
	bad := b.worker("bad", numbers(3), strategy.Sticky(), follower)
	good := b.worker("good", numbers(3), strategy.Sticky(), follower)
	_, errs, end := b.background("coordinator", "bad", "good", "-poll", "200ms")
	b.waitOwned(6, bad, good)

	buckets, err := kv.OpenBuckets(t.Context(), b.Connect("admin").JS(), "bad")
	require.NoError(t, err)
	told, err := buckets.Control.Get(t.Context(), groupspec.Key)
	require.NoError(t, err)
	spec, err := groupspec.Decode(told.Value)
	require.NoError(t, err)
	spec.Settings.LeaderLease = 1500 * time.Millisecond // which no Manager takes
	value, err := spec.Encode()
	require.NoError(t, err)
	revision, err := buckets.Control.Put(t.Context(), groupspec.Key, value, told.Revision, 0)
	require.NoError(t, err)
	b.WaitFor(30*time.Second, "it says so", func() bool { return strings.Contains(errs.String(), "LeaderLease is 1.5s") })
	require.Contains(t, errs.String(), "led as before")
	b.WaitFor(30*time.Second, "it leads by the last spec that it could follow", func() bool { return bad.Refresh(t.Context()) == nil })

	good2 := b.worker("good", numbers(5), strategy.Sticky(), follower)
	b.waitOwned(5, good, good2)
	require.Equal(t, 3, b.owned(bad), "what runs goes on")
	_, err = buckets.Control.Put(t.Context(), groupspec.Key, told.Value, revision, 0)
	require.NoError(t, err)
	bad2 := b.worker("bad", numbers(4), strategy.Sticky(), follower)
	b.waitOwned(4, bad, bad2)
	require.Equal(t, exitDone, end())
}

// With -all a group that is gone is looked for by nobody, and led when it is there again.
func TestCoordinatorForgetsWhatIsGone(t *testing.T) {
	b := newBench(t)
	own := ownCode()
	follower := parti.WithRole(parti.RoleFollower)
	w := b.worker("tmp", own, strategy.Sticky(), follower)
	_, errs, _ := b.background("coordinator", "-all", "-poll", "100ms")
	b.WaitFor(30*time.Second, "it leaves it alone", func() bool { return strings.Contains(errs.String(), "code of its own") })
	b.stop(w)

	admin := b.Connect("admin")
	const list = "$JS.API.STREAM.LIST"
	asked := make(chan *nats.Msg, 10_000) // in the order in which the server got it
	for _, subject := range []string{list, "$JS.API.STREAM.INFO.KV_tmp-heartbeat"} {
		_, err := admin.Conn().ChanSubscribe(subject, asked)
		require.NoError(t, err)
	}
	for _, name := range []string{"KV_tmp-heartbeat", "KV_tmp-control"} {
		require.NoError(t, admin.JS().DeleteStream(t.Context(), name))
	}
	lists := 0 // since it last looked for the group
	b.WaitFor(30*time.Second, "it only looks which groups there are", func() bool {
		for len(asked) > 0 {
			if lists++; (<-asked).Subject != list {
				lists = 0
			}
		}
		return lists >= 4
	})
	b.waitOwned(2, b.worker("tmp", numbers(2), strategy.Sticky(), follower))
	require.NotContains(t, errs.String(), parti.ErrNoGroup.Error())
}

// What a group's workers have set counts where a coordinator leads it, whether that is something, nothing or the default.
func TestCoordinatorTakesTheSettings(t *testing.T) {
	b := newBench(t)
	for name, opts := range map[string][]parti.Option{
		"none": {
			parti.WithWindows(0, 0, 0), parti.WithCooldown(0), parti.WithDampingPeriod(0), parti.WithLabelSpillGrace(0), parti.WithHandoffTimeout(-1),
			parti.WithUnlabeledPolicy(types.UnlabeledShared),
		},
		"some": {
			parti.WithWindows(3*time.Second, 2*time.Second, time.Second), parti.WithCooldown(time.Second), parti.WithDampingPeriod(time.Hour),
			parti.WithLabelSpillGrace(time.Minute), parti.WithHandoffTimeout(time.Minute), parti.WithExpectedWorkers(3), parti.WithMaxWorkers(5),
		},
		"default": {
			parti.WithWindows(30*time.Second, 10*time.Second, 2*time.Second), parti.WithCooldown(10 * time.Second), // other than the bench's
		},
	} {
		w := b.worker(name, numbers(1), strategy.Sticky(), append(opts, parti.WithRole(parti.RoleFollower))...)
		buckets, err := kv.OpenBuckets(t.Context(), b.Connect("admin").JS(), name)
		require.NoError(t, err)
		var spec *groupspec.Spec
		b.WaitFor(30*time.Second, "it has told", func() bool {
			spec, err = readSpec(t.Context(), buckets.Control)
			return err == nil && spec != nil
		})
		l := leading{maxWorkers: -1, log: slog.New(slog.DiscardHandler)}
		got, want := l.config(name, buckets, spec), w.Config()
		require.NoError(t, got.Validate())
		// What a coordinator has of its own.
		got.Role, got.WorkerPool, got.StartTimeout, got.Logger = want.Role, want.WorkerPool, want.StartTimeout, want.Logger
		require.Equal(t, want, got, name)
	}
}
