package parti_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti"
	"github.com/partigo/parti/source"
	"github.com/partigo/parti/strategy"
	"github.com/partigo/parti/types"
)

// work runs this process's share of the partitions until ctx ends.
func work(ctx context.Context, opts ...nats.Option) error {
	opts = append(opts, nats.MaxReconnects(-1), nats.IgnoreAuthErrorAbort()) // a connection that gives up ends its Manager
	conn, err := nats.Connect(nats.DefaultURL, opts...)
	if err != nil {
		return err
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		return err
	}
	mgr, err := parti.NewManager(js,
		source.Static(types.NewPartition("orders", "eu"), types.NewPartition("orders", "us")),
		strategy.Sticky(),
		parti.WithNamespace("shop"),
		parti.WithLogger(slog.Default()), // silent without
		parti.WithHandler(func(ctx context.Context, o parti.Ownership) error {
			fmt.Println("mine:", o.Partition) // o.Epoch is the fencing token: pass it on with every write
			<-ctx.Done()                      // work until then, and return when it ends
			return nil
		}),
	)
	if err != nil {
		return err
	}
	if err := mgr.Start(ctx); err != nil { // ctx bounds the start only
		return err
	}
	<-ctx.Done()
	stop, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return mgr.Stop(stop) // handlers return, others take over
}

// A worker alone in its group owns everything; the more there are, the less each one has.
func Example() {
	server := startServer()
	defer server.Close()

	untilPrinted(2, func(ctx context.Context) {
		if err := work(ctx, nats.InProcessServer(server)); err != nil {
			fmt.Println(err)
		}
	})
	// Unordered output:
	// mine: orders.eu
	// mine: orders.us
}

// Revoked and lost are different: after a revocation the handler may finish what it is doing, and nobody else starts before it has
// returned; a partition that was lost may soon run elsewhere.
func ExampleWithHandler() {
	server := startServer()
	defer server.Close()

	working := make(chan struct{})
	mgr := newManager(server, parti.WithHandler(func(ctx context.Context, o parti.Ownership) error {
		close(working)
		<-ctx.Done()
		switch context.Cause(ctx) {
		case parti.ErrRevoked:
			fmt.Println("finish the work at hand, then return")
		case parti.ErrLeaseExpired:
			fmt.Println("drop it at once")
		}
		return nil
	}))
	start(mgr)
	<-working
	if err := mgr.Stop(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output: finish the work at hand, then return
}

func ExampleWithHooks() {
	server := startServer()
	defer server.Close()

	opened := make(chan struct{})
	mgr := newManager(server, parti.WithHooks(parti.Hooks{
		OnAssigned: func(o parti.Ownership) { fmt.Println("open", o.Partition); close(opened) },
		OnRevoked:  func(o parti.Ownership) { fmt.Println("close", o.Partition) },
	}))
	start(mgr)
	<-opened
	if err := mgr.Stop(context.Background()); err != nil { // returns when the hooks have returned
		fmt.Println(err)
	}
	// Output:
	// open p
	// close p
}

func ExampleManager_Subscribe() {
	server := startServer()
	defer server.Close()

	mgr := newManager(server)
	changes, unsubscribe := mgr.Subscribe()
	defer unsubscribe()
	var seen []parti.State
	var reader sync.WaitGroup
	reader.Go(func() {
		for c := range changes { // closed by Stop
			seen = append(seen, c.To)
		}
	})
	start(mgr)
	if err := mgr.Stop(context.Background()); err != nil {
		fmt.Println(err)
	}
	reader.Wait()
	fmt.Println(seen[0], seen[1], "…", seen[len(seen)-2], seen[len(seen)-1])
	// Output: init joining … stopping stopped
}

func ExampleManager_Owns() {
	server := startServer()
	defer server.Close()

	running := make(chan parti.Ownership, 1)
	mgr := newManager(server, parti.WithHandler(func(ctx context.Context, o parti.Ownership) error {
		running <- o
		<-ctx.Done()
		return nil
	}))
	start(mgr)
	o := <-running
	epoch, ok := mgr.Epoch(o.Partition)
	fmt.Println(mgr.Owns(o.Partition), ok, epoch == o.Epoch)
	fmt.Println(mgr.Owns(types.NewPartition("another")))

	if err := mgr.Stop(context.Background()); err != nil {
		fmt.Println(err)
	}
	fmt.Println(mgr.Owns(o.Partition))
	// Output:
	// true true true
	// false
	// false
}

func ExampleManager_Status() {
	server := startServer()
	defer server.Close()

	mgr := newManager(server, parti.WithWorkerID("pod-3"))
	start(mgr)
	s := mgr.Status()
	fmt.Println(s.WorkerID, "leads:", s.Leading, "behind:", s.Behind, "parked:", s.Parked)
	if err := mgr.Stop(context.Background()); err != nil {
		fmt.Println(err)
	}
	fmt.Println(mgr.Status().State)
	// Output:
	// pod-3 leads: true behind: false parked: 0
	// stopped
}

// A health endpoint: 503 until the worker takes full part, and everything that there is to know as JSON.
func ExampleStatus() {
	server := startServer()
	defer server.Close()

	running := make(chan struct{})
	mgr := newManager(server, parti.WithWorkerID("pod-3"), parti.WithHandler(func(ctx context.Context, _ parti.Ownership) error {
		close(running)
		<-ctx.Done()
		return nil
	}))
	health := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		s := mgr.Status()
		w.Header().Set("Content-Type", "application/json")
		if !s.Ready() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_ = json.NewEncoder(w).Encode(s)
	})
	ask := func() {
		answer := httptest.NewRecorder()
		health.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/healthz", nil))
		var s parti.Status // the same type reads it
		if err := json.Unmarshal(answer.Body.Bytes(), &s); err != nil {
			fmt.Println(err)
		}
		fmt.Println(answer.Code, s.WorkerID, "running:", s.Running)
	}
	start(mgr)
	<-running
	ask()
	if err := mgr.Stop(context.Background()); err != nil {
		fmt.Println(err)
	}
	ask()
	// Output:
	// 200 pod-3 running: 1
	// 503 pod-3 running: 0
}

func ExampleStatus_MarshalJSON() {
	page, err := json.MarshalIndent(parti.Status{
		State: parti.StateDegraded, WorkerID: "pod-3", Role: parti.RoleWorker, LeaseLeft: 4200 * time.Millisecond, AppliedVersion: 17, Running: 12,
		Degraded: "no connection to NATS: it is RECONNECTING", LastError: errors.New("nats: timeout"),
	}, "", "  ")
	fmt.Println(string(page), err)
	// Output:
	// {
	//   "state": "degraded",
	//   "worker_id": "pod-3",
	//   "role": "worker",
	//   "leading": false,
	//   "applied_version": 17,
	//   "behind": false,
	//   "assigned": 0,
	//   "waiting": 0,
	//   "running": 12,
	//   "draining": 0,
	//   "lost": 0,
	//   "drained": false,
	//   "parked": 0,
	//   "degraded": "no connection to NATS: it is RECONNECTING",
	//   "ready": false,
	//   "lease_left": "4.2s",
	//   "last_error": "nats: timeout"
	// } <nil>
}

// What cannot work is refused before anything starts, all of it at once, with a text that says what to write instead.
func ExampleNewManager_refused() {
	server := startServer()
	defer server.Close()
	conn := connect(server)
	defer conn.Close()
	js, _ := jetstream.New(conn)

	_, err := parti.NewManager(js, source.Static(types.NewPartition("a.b")), strategy.Sticky(), parti.WithNamespace("my.shop"))
	fmt.Println(err)
	// Output:
	// parti: invalid configuration: Namespace "my.shop" may have letters, digits, '-' and '_' only; for example "orders"
	// source: partition 0: parti: invalid partition ["a.b"]: key 0 ("a.b") contains '.', '*' or '>', which NATS reads as separators or wildcards: split it into several keys or replace them
}

// Look at a group from outside: nothing is joined and nothing is written.
func ExampleInspect() {
	server := startServer()
	defer server.Close()

	mgr := newManager(server, parti.WithNamespace("orders"), parti.WithWorkerID("pod-0"))
	start(mgr)
	conn := connect(server)
	defer conn.Close()
	js, _ := jetstream.New(conn)

	view, err := parti.Inspect(context.Background(), js, "orders")
	if err != nil {
		fmt.Println(err)
	}
	fmt.Println("leader:", view.Leader.Worker)
	for _, w := range view.Workers {
		fmt.Println(w.ID, w.Role, w.Partitions)
	}
	for _, p := range view.Partitions {
		fmt.Println(p.ID, "belongs to", p.Owner.Worker)
	}
	if _, err = parti.Inspect(context.Background(), js, "nobody"); errors.Is(err, parti.ErrNoGroup) {
		fmt.Println("no such group")
	}
	if err := mgr.Stop(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// leader: pod-0
	// pod-0 worker 1
	// p belongs to pod-0
	// no such group
}
