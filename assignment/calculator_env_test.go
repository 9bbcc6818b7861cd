package assignment

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti/assignment/plan"
	"github.com/partigo/parti/assignment/record"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/kv"
	"github.com/partigo/parti/strategy"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

const (
	testTTL      = 15 * time.Second
	testInterval = 3 * time.Second
)

// directCommitter commits without an elector.
type directCommitter struct {
	store   *kv.Store
	commits atomic.Int64
	before  atomic.Pointer[func(context.Context) error] // may refuse a commit, or take its time
}

func (d *directCommitter) Commit(ctx context.Context, _ uint64, _ int64, _ string, writes []kv.Write) ([]uint64, error) {
	if f := d.before.Load(); f != nil {
		if err := (*f)(ctx); err != nil {
			return nil, err
		}
	}
	revs, err := d.store.Batch(ctx, writes)
	if kv.IsConflict(err) {
		err = fmt.Errorf("%w: %w", types.ErrCommitConflict, err)
	}
	if err == nil {
		d.commits.Add(1)
	}
	return revs, err
}

// testSource is a source that does what it is told.
type testSource struct {
	mu      sync.Mutex
	list    []types.Partition
	calls   int
	do      func(context.Context) error
	signals chan struct{}
}

func (s *testSource) ListPartitions(ctx context.Context) ([]types.Partition, error) {
	s.mu.Lock()
	s.calls++
	do, list := s.do, s.list
	s.mu.Unlock()
	if do != nil {
		if err := do(ctx); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func (s *testSource) Watch(ctx context.Context) (<-chan struct{}, error) {
	out := make(chan struct{}, 1)
	go func() {
		defer close(out)
		for {
			select {
			case <-s.signals:
				out <- struct{}{}
			case <-ctx.Done():
				return
			}
		}
	}()
	return out, nil
}

func (s *testSource) set(n int) {
	ps := make([]types.Partition, n)
	for i := range ps {
		ps[i] = types.NewPartition(fmt.Sprintf("p%04d", i))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = ps
}

func (s *testSource) behave(do func(context.Context) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.do = do
}

func (s *testSource) looks() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

// calcEnv is a group with one calculator.
type calcEnv struct {
	*natstest.Env
	t         *testing.T
	leader    *natstest.Client
	buckets   kv.Buckets // over the leader's connection
	outside   kv.Buckets // over another one
	fleet     *fleet
	source    *testSource
	committer *directCommitter
	calc      *Calculator
	stepDown  chan error
	term      uint64
}

func newCalcEnv(t *testing.T, env *natstest.Env) *calcEnv {
	e := &calcEnv{Env: env, t: t, leader: env.Connect("leader"), source: &testSource{signals: make(chan struct{}, 1)}, stepDown: make(chan error, 1)}
	cfg := testBuckets()
	var err error
	e.buckets, err = kv.EnsureBuckets(t.Context(), e.leader.JS(), cfg)
	require.NoError(t, err)
	e.outside, err = kv.EnsureBuckets(t.Context(), env.Connect("outside").JS(), cfg)
	require.NoError(t, err)
	e.fleet = newFleet(t, e.outside.Heartbeat)
	e.committer = &directCommitter{store: e.buckets.Control}
	e.source.set(10)
	return e
}

func testBuckets() kv.BucketConfig {
	return kv.BucketConfig{
		Namespace: "g", HeartbeatTTL: testTTL, Replicas: 1, Storage: jetstream.MemoryStorage, Logger: slog.New(slog.DiscardHandler),
	}
}

func (e *calcEnv) publisher() *AssignmentPublisher {
	e.term++
	pub, err := NewAssignmentPublisher(PublisherConfig{
		Store: e.buckets.Control, Committer: e.committer, Holder: types.Holder{Worker: "leader", Incarnation: "i"}, Term: e.term,
	})
	require.NoError(e.t, err)
	return pub
}

// start starts a calculator; the one before is stopped.
func (e *calcEnv) start(changes ...func(*Config)) {
	e.stop()
	cfg := Config{
		Namespace: "g", Heartbeats: e.buckets.Heartbeat, Publisher: e.publisher(), Source: e.source, Strategy: strategy.Sticky(),
		HeartbeatTTL: testTTL, LabelSpillGrace: types.NeverSpill, OnStepDown: func(err error) { e.stepDown <- err },
	}
	for _, c := range changes {
		c(&cfg)
	}
	calc, err := NewCalculator(cfg)
	require.NoError(e.t, err)
	require.NoError(e.t, calc.Start())
	e.calc = calc
	e.t.Cleanup(func() { require.NoError(e.t, calc.Stop(context.Background())) })
}

func (e *calcEnv) stop() {
	if e.calc != nil {
		require.NoError(e.t, e.calc.Stop(context.Background()))
	}
}

// commit returns the present commit and what it says; a nil state where there is none.
func (e *calcEnv) commit() (types.AssignmentCommit, *plan.State) {
	pub, err := NewAssignmentPublisher(PublisherConfig{
		Store: e.outside.Control, Committer: e.committer, Holder: types.Holder{Worker: "x", Incarnation: "i"}, Term: 1,
	})
	require.NoError(e.t, err)
	s, err := pub.Bootstrap(context.Background())
	require.NoError(e.t, err)
	if c := pub.LastCommit(); c != nil {
		return *c, s
	}
	return types.AssignmentCommit{}, nil
}

// awaitCommit waits for a commit above version and returns it with the time that it took.
func (e *calcEnv) awaitCommit(above int64, limit time.Duration) (types.AssignmentCommit, *plan.State, time.Duration) {
	e.t.Helper()
	began := time.Now()
	e.WaitFor(limit, fmt.Sprintf("a commit above %d", above), func() bool { return e.calc.CurrentVersion() > above })
	took := time.Since(began)
	c, s := e.commit()
	return c, s, took
}

// quiet checks that nothing is committed for d.
func (e *calcEnv) quiet(d time.Duration) {
	e.t.Helper()
	before := e.committer.commits.Load()
	time.Sleep(d)
	require.Equal(e.t, before, e.committer.commits.Load(), "commits in %v", d)
}

// steady makes a first commit with the workers, which acknowledge it, and lets the cooldown pass.
func (e *calcEnv) steady(ids ...string) (types.AssignmentCommit, *plan.State) {
	e.fleet.join(ids...)
	e.start()
	c, s, _ := e.awaitCommit(0, 10*time.Second)
	e.fleet.ack(c.Version)
	e.fleet.change(func(h *types.Heartbeat) { h.State = types.WorkerActive }, ids...)
	e.quiet(11 * time.Second)
	return c, s
}

// owners returns the owner of each partition, and checks that each of the source's has exactly one or is parked.
func (e *calcEnv) owners(s *plan.State) map[string]string {
	e.t.Helper()
	owners := map[string]string{}
	for _, sl := range s.Slices {
		for _, en := range sl.Entries {
			if was, twice := owners[en.ID()]; twice {
				e.t.Errorf("%s is owned by %s and %s", en.ID(), was, sl.Worker)
			}
			owners[en.ID()] = sl.Worker
		}
	}
	return owners
}

func moves(before, after map[string]string) (n int) {
	for p, w := range after {
		if b, ok := before[p]; ok && b != w {
			n++
		}
	}
	return n
}

func workersOf(s *plan.State) (ids []string) {
	for _, sl := range s.Slices {
		ids = append(ids, sl.Worker)
	}
	return ids
}

func ids(n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprintf("w-%03d", i))
	}
	return out
}

func (e *calcEnv) dropCommit(value []byte) {
	ent, err := e.outside.Control.Get(context.Background(), record.CommitKey)
	require.NoError(e.t, err)
	if value == nil {
		_, err = e.outside.Control.Delete(context.Background(), record.CommitKey, ent.Revision)
	} else {
		_, err = e.outside.Control.Put(context.Background(), record.CommitKey, value, ent.Revision, 0)
	}
	require.NoError(e.t, err)
}

var errTest = errors.New("test")
