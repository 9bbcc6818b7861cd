package assignment

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti/assignment/plan"
	"github.com/partigo/parti/assignment/record"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/kv"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// pubGroup is a namespace with whoever publishes in it.
type pubGroup struct {
	t     *testing.T
	env   *natstest.Env
	store *kv.Store // of a client of the test's own
}

func newPubGroup(t *testing.T, env *natstest.Env) *pubGroup {
	g := &pubGroup{t: t, env: env}
	g.store = g.open(env.Connect("observer"))
	return g
}

// open returns the control bucket as c sees it.
func (g *pubGroup) open(c *natstest.Client) *kv.Store {
	b, err := kv.EnsureBuckets(g.t.Context(), c.JS(), kv.BucketConfig{
		Namespace: "ns", HeartbeatTTL: 15 * time.Second, Replicas: 1, Storage: jetstream.MemoryStorage, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(g.t, err)
	return b.Control
}

// lead makes the client the leader, whoever leads now, and returns its publisher before Bootstrap.
func (g *pubGroup) lead(c *natstest.Client, change ...func(*PublisherConfig)) (*AssignmentPublisher, *termLease) {
	store := g.open(c)
	l := &termLease{store: store, holder: types.Holder{Worker: c.Name, Incarnation: "i-" + c.Name}}
	require.NoError(g.t, l.acquire(g.t.Context()))
	cfg := PublisherConfig{Store: store, Committer: l, Holder: l.holder, Term: l.term}
	for _, f := range change {
		f(&cfg)
	}
	p, err := NewAssignmentPublisher(cfg)
	require.NoError(g.t, err)
	return p, l
}

// leadOn is lead and Bootstrap.
func (g *pubGroup) leadOn(c *natstest.Client, change ...func(*PublisherConfig)) (*AssignmentPublisher, *termLease, *plan.State) {
	p, l := g.lead(c, change...)
	state, err := p.Bootstrap(g.t.Context())
	require.NoError(g.t, err)
	return p, l, state
}

// keys returns the keys of values that start with prefix.
func (g *pubGroup) keys(prefix string) []string {
	entries, err := g.store.ListKeys(g.t.Context(), prefix+"*")
	require.NoError(g.t, err)
	var keys []string
	for k, e := range entries {
		if !e.Absent() {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	return keys
}

// overwrite puts value under key, whatever is there.
func (g *pubGroup) overwrite(key string, value []byte) {
	_, err := g.store.Batch(g.t.Context(), []kv.Write{{Key: key, Value: value, Any: true}})
	require.NoError(g.t, err)
}

func (g *pubGroup) delete(key string) {
	_, err := g.store.Batch(g.t.Context(), []kv.Write{{Key: key, Any: true, Delete: true}})
	require.NoError(g.t, err)
}

// termLease is a committer that does what the elector does, without renewals of its own.
type termLease struct {
	store  *kv.Store
	holder types.Holder
	term   uint64
	rev    uint64
	// lose, where not nil, makes an answer of Commit unknown although the batch was sent or not.
	lose    func(send func() error) error
	commits int
}

func (l *termLease) value(version int64) []byte {
	return fmt.Appendf(nil, `{"worker":%q,"incarnation":%q,"commit_version":%d}`, l.holder.Worker, l.holder.Incarnation, version)
}

func (l *termLease) acquire(ctx context.Context) error {
	e, err := l.store.Get(ctx, LeaderKey)
	if err != nil && !errors.Is(err, kv.ErrNotFound) {
		return err
	}
	var was struct {
		CommitVersion int64 `json:"commit_version"`
	}
	_ = json.Unmarshal(e.Value, &was)
	l.rev, err = l.store.Put(ctx, LeaderKey, l.value(was.CommitVersion), e.Revision, 0)
	l.term = l.rev
	return err
}

// renew makes the leader key young, as the elector does all the time.
func (l *termLease) renew(ctx context.Context) error {
	e, err := l.store.Get(ctx, LeaderKey)
	if err == nil {
		l.rev, err = l.store.Put(ctx, LeaderKey, e.Value, l.rev, 0)
	}
	return err
}

func (l *termLease) Commit(ctx context.Context, term uint64, version int64, _ string, writes []kv.Write) ([]uint64, error) {
	if term != l.term {
		return nil, types.ErrLeadershipLost
	}
	var revs []uint64
	send := func() (err error) {
		all := append([]kv.Write{{Key: LeaderKey, Value: l.value(version), Expect: l.rev}}, writes...)
		if revs, err = l.store.Batch(ctx, all); err == nil {
			l.rev = revs[0]
			l.commits++
		}
		return err
	}
	if l.lose != nil {
		return nil, l.lose(send)
	}
	err := send()
	if kv.IsConflict(err) {
		if now, getErr := l.store.Get(ctx, LeaderKey); getErr == nil && now.Revision == l.rev {
			return nil, fmt.Errorf("%w: %w", types.ErrCommitConflict, err)
		}
		return nil, fmt.Errorf("%w: %w", types.ErrLeadershipLost, err)
	}
	if err != nil {
		return nil, err
	}
	return revs[1:], nil
}

func partitions(n int) []types.Partition {
	ps := make([]types.Partition, n)
	for i := range ps {
		ps[i] = types.NewPartition(fmt.Sprintf("p%05d", i))
	}
	return ps
}

// spread gives ps to n workers in turn, all under one epoch.
func spread(version, epoch int64, n int, ps []types.Partition) *plan.State {
	s := &plan.State{Version: version, Slices: make([]plan.Slice, n)}
	for i := range s.Slices {
		s.Slices[i].Holder = types.Holder{Worker: fmt.Sprintf("w%04d", i), Incarnation: fmt.Sprintf("%08d-0000-4000-8000-000000000000", i)}
	}
	for i, p := range ps {
		e := &s.Slices[i%n].Entries
		*e = append(*e, types.AssignmentEntry{Partition: p, Epoch: epoch})
	}
	for i := range s.Slices {
		sortEntries(s.Slices[i].Entries)
	}
	return s
}

func sortEntries(es []types.AssignmentEntry) {
	slices.SortFunc(es, func(a, b types.AssignmentEntry) int { return cmp.Compare(a.ID(), b.ID()) })
}

// touch returns state at version, in which worker i has a new epoch.
func touch(state *plan.State, version int64, i int) *plan.State {
	s := &plan.State{Version: version, Slices: slices.Clone(state.Slices), Parked: state.Parked}
	s.Slices[i].Entries = slices.Clone(s.Slices[i].Entries)
	for j := range s.Slices[i].Entries {
		s.Slices[i].Entries[j].Epoch = version
	}
	return s
}

func at(state *plan.State, version int64) *plan.State {
	s := *state
	s.Version = version
	return &s
}

// sourceOf returns the source that state covers.
func sourceOf(state *plan.State) []types.Partition {
	var ps []types.Partition
	for _, s := range state.Slices {
		for _, e := range s.Entries {
			ps = append(ps, e.Partition)
		}
	}
	for _, e := range state.Parked {
		if !e.Retired {
			ps = append(ps, e.Partition)
		}
	}
	return ps
}

func input(state *plan.State) PublishInput {
	return PublishInput{State: state, Source: sourceOf(state), Lifecycle: types.LifecycleManual}
}

// publish publishes and expects success.
func (g *pubGroup) publish(p *AssignmentPublisher, state *plan.State) types.AssignmentCommit {
	g.t.Helper()
	c, err := p.Publish(g.t.Context(), input(state))
	require.NoError(g.t, err)
	return c
}

// requireState compares what two states say.
func requireState(t *testing.T, want, got *plan.State) {
	t.Helper()
	require.Equal(t, len(want.Slices), len(got.Slices))
	for i := range want.Slices {
		require.Equal(t, want.Slices[i].Holder, got.Slices[i].Holder)
		require.True(t, sameEntries(want.Slices[i].Entries, got.Slices[i].Entries), "entries of %v", want.Slices[i].Holder)
	}
	require.Equal(t, want.Parked, got.Parked)
	require.Equal(t, want.Version, got.Version)
}

// readable fails unless everything that the stored commit refers to can be read.
func (g *pubGroup) readable() (types.AssignmentCommit, uint64) {
	g.t.Helper()
	ctx := g.t.Context()
	e, err := g.store.Get(ctx, record.CommitKey)
	require.NoError(g.t, err)
	c, err := record.DecodeCommit(e.Value)
	require.NoError(g.t, err)
	get := record.StoreGetter(g.store)
	refs, err := record.FetchIndex(ctx, get, &c)
	require.NoError(g.t, err)
	_, err = record.FetchParked(ctx, get, &c)
	require.NoError(g.t, err)
	for _, r := range refs {
		_, err := record.FetchAndVerifyCommitPayload(ctx, get, r)
		require.NoError(g.t, err)
	}
	return c, e.Revision
}

// pubCounter counts what a publisher reports.
type pubCounter struct {
	types.NopMetrics
	created, adopted, published, failed, deleted int
}

func (c *pubCounter) CommitPublished(_ int64, _ time.Duration, err error) {
	if err == nil {
		c.published++
	} else {
		c.failed++
	}
}

func (c *pubCounter) PayloadsWritten(created, adopted int) {
	c.created += created
	c.adopted += adopted
}

func (c *pubCounter) GarbageCollected(deleted, _ int) { c.deleted += deleted }

func counted(c *pubCounter) func(*PublisherConfig) {
	return func(cfg *PublisherConfig) { cfg.Metrics = c }
}

func (g *pubGroup) anyRef(c types.AssignmentCommit) types.AssignmentPayloadRef {
	refs, err := record.FetchIndex(g.t.Context(), record.StoreGetter(g.store), &c)
	require.NoError(g.t, err)
	return refs[len(refs)/2]
}
