package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti"
	"github.com/partigo/parti/internal/groupspec"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/kv"
	"github.com/partigo/parti/source"
	"github.com/partigo/parti/strategy"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { natstest.VerifyTestMain(m) }

// ownCode is a source that no coordinator can have.
func ownCode() types.PartitionSource {
	return source.Func(func(context.Context) ([]types.Partition, error) {
		return []types.Partition{types.NewPartition("0")}, nil
	})
}

// bench is a server and the command beside it.
type bench struct {
	*natstest.Env
	t    *testing.T
	auth []nats.Option // by which workers log in
}

func newBench(t *testing.T) bench { return bench{Env: natstest.Single(t, natstest.WithTCP()), t: t} }

// run runs the command to its end.
func (b bench) run(args ...string) (code int, stdout, stderr string) {
	b.t.Helper()
	if args = append(args, "-server", b.Server.URL()); args[0] != "coordinator" {
		args = append(args, "-timeout", "1m") // a machine may be busy for longer than the default
	}
	var out, errs natstest.Buffer
	code = run(context.Background(), args, &out, &errs)
	return code, out.String(), errs.String()
}

func (b bench) done(args ...string) string {
	b.t.Helper()
	code, out, errs := b.run(args...)
	require.Equal(b.t, exitDone, code, errs)
	return out
}

// background runs the command until end is called or the test is over; end returns the exit code.
func (b bench) background(args ...string) (stdout, stderr *natstest.Buffer, end func() int) {
	ctx, cancel := context.WithCancel(context.Background())
	var out, errs natstest.Buffer
	code := make(chan int, 1)
	go func() { code <- run(ctx, append(args, "-server", b.Server.URL()), &out, &errs) }()
	end = sync.OnceValue(func() int {
		cancel()
		return <-code
	})
	b.t.Cleanup(func() {
		if end(); b.t.Failed() {
			b.t.Logf("%v printed %s%s", args, out.String(), errs.String())
		}
	})
	return &out, &errs, end
}

// worker starts a worker of a group, quick to settle. It lives on over seconds in which the machine is busy with something else.
func (b bench) worker(ns string, from types.PartitionSource, place types.AssignmentStrategy, opts ...parti.Option) *parti.Manager {
	b.t.Helper()
	opts = append([]parti.Option{
		parti.WithNamespace(ns), parti.WithStorage(jetstream.MemoryStorage), parti.WithHeartbeat(time.Second, 15*time.Second),
		parti.WithLeaderLease(10 * time.Second), parti.WithWindows(time.Second, time.Second, 100*time.Millisecond), parti.WithCooldown(100 * time.Millisecond),
		parti.WithHandler(func(ctx context.Context, _ parti.Ownership) error { <-ctx.Done(); return nil }),
	}, opts...)
	m, err := parti.NewManager(b.Connect("worker", b.auth...).JS(), from, place, opts...)
	require.NoError(b.t, err)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	require.NoError(b.t, m.Start(ctx))
	b.t.Cleanup(func() { b.stop(m) })
	return m
}

func (b bench) stop(m *parti.Manager) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := m.Stop(ctx); err != nil {
		b.t.Error(err)
	}
}

func (b bench) owned(ms ...*parti.Manager) (n int) {
	for _, m := range ms {
		n += m.Status().Running
	}
	return n
}

func (b bench) waitOwned(n int, ms ...*parti.Manager) {
	b.t.Helper()
	b.WaitFor(30*time.Second, fmt.Sprintf("%d partitions run", n), func() bool { return b.owned(ms...) == n })
}

func numbers(n int) types.PartitionSource {
	list := make([]types.Partition, n)
	for i := range list {
		list[i] = types.NewPartition(fmt.Sprint(i))
	}
	return source.Static(list...)
}

func TestUsage(t *testing.T) {
	for _, c := range []struct {
		args string
		code int
		says string
	}{
		{"", exitUsage, "parti coordinator"},
		{"help", exitDone, "parti coordinator"},
		{"help drain", exitDone, "-one-by-one"},
		{"inspect -h", exitDone, "-json"},
		{"nonsense", exitUsage, `unknown command "nonsense"`},
		{"inspect -nonsense x", exitUsage, "-nonsense"},
		{"inspect x -server nats://127.0.0.1:1", exitFailed, "connect to nats://127.0.0.1:1"},
		{"inspect x -nkey /does/not/exist", exitUsage, "-nkey"},
		{"inspect x -tlscert a", exitUsage, "-tlscert and -tlskey go together"},
	} {
		var out natstest.Buffer
		require.Equal(t, c.code, run(context.Background(), strings.Fields(c.args), &out, &out), c.args)
		require.Contains(t, out.String(), c.says, c.args)
	}
}

func TestShowAndOrder(t *testing.T) {
	b := newBench(t)
	parts := source.Static(types.NewPartition("eu", "a:b"), types.NewPartition("us", "1"), types.Partition{Keys: []string{"gpu"}, Label: "gpu"})
	w0 := b.worker("orders", parts, strategy.Sticky(), parti.WithWorkerID("pod-0"))
	w1 := b.worker("orders", parts, strategy.Sticky(), parti.WithWorkerID("pod-1"), parti.WithRole(parti.RoleFollower))
	b.WaitFor(30*time.Second, "each has one", func() bool { return b.owned(w0) == 1 && b.owned(w1) == 1 })

	require.Equal(t, "orders\n", b.done("groups"))
	require.JSONEq(t, `["orders"]`, b.done("groups", "-json"))
	out := b.done("inspect", "orders")
	for _, want := range []string{"pod-0 (term", "pod-1", "2 owned, 1 parked", "no worker carries label gpu", "leads"} {
		require.Contains(t, out, want)
	}
	var v parti.View
	require.NoError(t, json.Unmarshal([]byte(b.done("inspect", "-json", "orders")), &v))
	require.Equal(t, "pod-0", v.Leader.Worker)
	require.Len(t, v.Partitions, 2)
	require.Contains(t, b.done("workers", "orders"), "pod-1")
	out = b.done("partitions", "orders", "-json")
	require.Contains(t, out, `"eu.a=3Ab"`)
	require.Contains(t, b.done("partitions", "orders"), "PARKED")

	// The other one takes over what is drained and evicted.
	require.Contains(t, b.done("drain", "orders", "pod-1"), "done by pod-0")
	b.waitOwned(2, w0)
	require.Contains(t, b.done("inspect", "orders"), "drained")
	require.Contains(t, b.done("undrain", "orders", "pod-1", "-as", "ann"), "done")
	b.WaitFor(30*time.Second, "its share", func() bool { return b.owned(w0) == 1 && b.owned(w1) == 1 })
	owner, other := w0, w1
	if !owner.Owns(types.NewPartition("eu", "a:b")) {
		owner, other = w1, w0
	}
	b.done("evict", "orders", owner.WorkerID(), "eu.a=3Ab")
	b.WaitFor(30*time.Second, "the other one runs it", func() bool { return other.Owns(types.NewPartition("eu", "a:b")) })

	code, _, errs := b.run("drain", "orders", "nobody")
	require.Equal(t, exitRefused, code, errs)
	require.Contains(t, errs, "unknown worker")
	for _, cmd := range []string{"inspect", "workers", "partitions", "coordinator"} {
		code, _, errs = b.run(cmd, "nothing")
		require.Equal(t, exitNoGroup, code, errs)
		require.Contains(t, errs, "no such group")
	}
	code, _, errs = b.run("drain", "orders")
	require.Equal(t, exitUsage, code)
	require.Contains(t, errs, "name the group and the worker")

	b.stop(w1)
	b.stop(w0)
	require.Contains(t, b.done("inspect", "orders"), "NOBODY IS ALIVE")
}

// A coordinator leads a group of followers, whose number of partitions it learns from them; it ends in good order, and follows
// when workers with another number start.
func TestCoordinator(t *testing.T) {
	b := newBench(t)
	w := b.worker("orders", numbers(8), strategy.ConsistentHash(), parti.WithRole(parti.RoleFollower))
	out, _, end := b.background("coordinator", "orders", "-poll", "200ms", "-max-workers", "1")
	b.waitOwned(8, w)
	b.WaitFor(30*time.Second, "it says so", func() bool { return out.String() != "" }) // which it does beside leading
	require.Equal(t, "coordinating orders as coordinator-0\n", out.String())
	w2 := b.worker("orders", numbers(12), strategy.ConsistentHash(), parti.WithRole(parti.RoleFollower))
	b.waitOwned(12, w)
	require.Zero(t, b.owned(w2), "beyond -max-workers")
	b.WaitFor(30*time.Second, "it is told so", func() bool { return strings.Contains(b.done("workers", "orders"), "stands by") })

	_, _, endOther := b.background("coordinator", "orders")
	b.WaitFor(30*time.Second, "both are there", func() bool { return strings.Count(b.done("workers", "orders"), "coordinating") == 2 })
	require.Equal(t, exitDone, end())
	b.WaitFor(30*time.Second, "the other leads", func() bool { return w.Status().Leader == "coordinator-1" })
	b.waitOwned(12, w, w2)
	require.Equal(t, exitDone, endOther())
}

// A coordinator that starts together with the first worker waits for what that one leaves in the background; not for ever.
func TestCoordinatorIsEarly(t *testing.T) {
	natstest.Long(t)
	b := newBench(t)
	w := b.worker("orders", numbers(8), strategy.Sticky(), parti.WithRole(parti.RoleFollower))
	buckets, err := kv.OpenBuckets(t.Context(), b.Connect("admin").JS(), "orders")
	require.NoError(t, err)
	var told kv.Entry
	b.WaitFor(30*time.Second, "it has told", func() bool {
		told, err = buckets.Control.Get(t.Context(), groupspec.Key)
		return err == nil && !told.Absent()
	})
	taken, err := buckets.Control.Delete(t.Context(), groupspec.Key, told.Revision)
	require.NoError(t, err)
	code, _, errs := b.run("coordinator", "orders")
	require.Equal(t, exitRefused, code)
	require.Contains(t, errs, "none of its workers has told yet")

	asked, err := b.Connect("onlooker").Conn().SubscribeSync("$JS.API.DIRECT.GET.KV_orders-control.$KV.orders-control." + groupspec.Key)
	require.NoError(t, err)
	_, _, end := b.background("coordinator", "orders")
	for range 2 { // so it has been told once that there is nothing
		_, err = asked.NextMsg(time.Minute)
		require.NoError(t, err)
	}
	_, err = buckets.Control.Put(t.Context(), groupspec.Key, told.Value, taken, 0)
	require.NoError(t, err)
	b.waitOwned(8, w)
	require.Equal(t, exitDone, end())
}

// What is not the command's to lead is refused, in words, unless the flags say what is missing.
func TestCoordinatorRefuses(t *testing.T) {
	b := newBench(t)
	own := ownCode()
	follower := parti.WithRole(parti.RoleFollower)
	custom := b.worker("custom", own, strategy.Sticky(), follower)
	odd := b.worker("odd", numbers(3), strategy.ConsistentHash(strategy.WithLoadFactor(1.5)), follower)
	for args, says := range map[string]string{
		"custom":                   "its partitions come from *source.FuncSource, code of its own",
		"odd":                      "its strategy is strategy.ConsistentHashStrategy",
		"custom -strategy nothing": "use sticky, round-robin",
		"custom odd -partitions 3": "-partitions and -source-kv are about one group",
		"custom -all":              "name the groups, or use -all",
		"custom -source-kv x":      "write bucket/key",
		"custom -partitions -1":    "positive N",
		"custom -poll 1ms":         "at least 100ms",
	} {
		b.WaitFor(30*time.Second, "it says "+says, func() bool { // until the workers have left their specs
			code, _, errs := b.run(append([]string{"coordinator"}, strings.Fields(args)...)...)
			return (code == exitRefused || code == exitUsage) && strings.Contains(errs, says)
		})
	}
	_, _, end := b.background("coordinator", "custom", "-partitions", "4")
	b.waitOwned(4, custom)
	require.Equal(t, exitDone, end())
	_, _, end = b.background("coordinator", "odd", "-strategy", "sticky")
	b.waitOwned(3, odd)
	require.Equal(t, exitDone, end())
}

// With -all it leads every group that it can, also those that appear later, whatever their sources are.
func TestCoordinatorOfAll(t *testing.T) {
	b := newBench(t)
	follower := parti.WithRole(parti.RoleFollower)
	first := b.worker("first", source.Static(types.NewPartition("a"), types.NewPartition("b")), strategy.Sticky(), follower)
	own := ownCode()
	b.worker("custom", own, strategy.Sticky(), follower)
	out, errs, end := b.background("coordinator", "-all", "-poll", "200ms")
	b.waitOwned(2, first)

	js := b.Connect("admin").JS()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, err := js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: "lists", Storage: jetstream.MemoryStorage})
	require.NoError(t, err)
	list := source.NewKV(js, "lists", "later")
	require.NoError(t, list.Add(ctx, types.NewPartition("x"), types.NewPartition("y"), types.NewPartition("z")))
	later := b.worker("later", list, strategy.RoundRobin(), follower)
	b.waitOwned(3, later)
	require.NoError(t, list.Add(ctx, types.NewPartition("w")))
	b.waitOwned(4, later)
	b.WaitFor(30*time.Second, "it says what it leaves alone", func() bool {
		return strings.Count(errs.String(), "code of its own") == 1
	})
	for _, ns := range []string{"first", "later"} {
		says := "coordinating " + ns + " as coordinator-0\n"
		b.WaitFor(30*time.Second, "it says "+says, func() bool { return strings.Contains(out.String(), says) })
	}
	require.NotContains(t, out.String(), "custom")
	require.Equal(t, exitDone, end())
}
