package checker

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti/internal/natstest"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { natstest.VerifyTestMain(m) }

const (
	forgeTTL   = 4 * time.Second
	forgeLease = 10 * time.Second
)

// recorder takes the place of the test that a forged history would fail.
type recorder struct {
	mu       sync.Mutex
	errors   []string
	logs     []string
	cleanups []func()
}

func (r *recorder) Helper() {}
func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.errors = append(r.errors, fmt.Sprintf(format, args...))
}
func (r *recorder) Logf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.logs = append(r.logs, fmt.Sprintf(format, args...))
}
func (r *recorder) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }

// forge writes histories by hand, as leaders and workers would, and with the faults that a case wants.
type forge struct {
	*testing.T
	env *natstest.Env
	js  jetstream.JetStream
	rec *recorder
	c   *Checker

	watcher *natstest.Client // the checker's
	storage jetstream.StorageType
	quiet   bool // do not wait for the checker after each commit
	nonce   int
	version int64
	commits map[int64]commit
	digests map[int64]map[Holder]string
	leader  leaderValue
	term    uint64
	revs    map[string]uint64 // of the last write of each key
	beats   map[Holder]heartbeat
}

func newForge(t *testing.T, env *natstest.Env, opts ...Option) *forge {
	f := &forge{T: t, storage: jetstream.MemoryStorage, env: env, js: env.Connect("forge").JS(), rec: &recorder{}, version: 1_000_000, commits: map[int64]commit{},
		digests: map[int64]map[Holder]string{}, revs: map[string]uint64{}, beats: map[Holder]heartbeat{}}
	f.createStream("ns-control", 0)
	f.createStream("ns-heartbeat", forgeTTL)
	f.attach(opts...)
	return f
}

// attach attaches a checker, in place of the one so far.
func (f *forge) attach(opts ...Option) {
	if f.c != nil {
		f.c.Detach()
	}
	f.watcher = f.env.Connect("checker")
	f.c = Attach(f.rec, f.watcher.Conn(), "ns", opts...)
	f.T.Cleanup(f.c.Detach)
}

func (f *forge) createStream(bucket string, age time.Duration) {
	_, err := f.js.CreateStream(f.Context(), jetstream.StreamConfig{
		Name: "KV_" + bucket, Subjects: []string{"$KV." + bucket + ".>"}, Storage: f.storage, MaxMsgsPerSubject: 1,
		MaxAge: age, Discard: jetstream.DiscardNew, DenyDelete: true, AllowRollup: true, AllowDirect: true, AllowMsgTTL: true,
		AllowAtomicPublish: true, SubjectDeleteMarkerTTL: 10 * time.Minute,
		RePublish: &jetstream.RePublish{Source: "$KV." + bucket + ".*.*", Destination: "_PARTI.ns.live.{{wildcard(1)}}.{{wildcard(2)}}"},
	})
	require.NoError(f, err)
}

func subject(key string) string {
	if len(key) > len(keyHeartbeat) && key[:len(keyHeartbeat)] == keyHeartbeat {
		return "$KV.ns-heartbeat." + key
	}
	return "$KV.ns-control." + key
}

func (f *forge) next() string { f.nonce++; return "nonce-" + strconv.Itoa(f.nonce) }

// write stores a value at the revision known, or unguarded where guard is false.
func (f *forge) write(key string, v any, guard bool, opts ...jetstream.PublishOpt) uint64 {
	data, ok := v.([]byte)
	if !ok {
		var err error
		data, err = json.Marshal(v)
		require.NoError(f, err)
	}
	return f.send(&nats.Msg{Subject: subject(key), Data: data}, key, guard, opts...)
}

func (f *forge) remove(key string) {
	f.send(&nats.Msg{Subject: subject(key), Header: nats.Header{"KV-Operation": {"DEL"}}}, key, true)
}

func (f *forge) send(msg *nats.Msg, key string, guard bool, opts ...jetstream.PublishOpt) uint64 {
	if guard {
		opts = append(opts, jetstream.WithExpectLastSequencePerSubject(f.last(key)))
	}
	ack, err := f.js.PublishMsg(f.Context(), msg, opts...)
	require.NoError(f, err)
	f.revs[key] = ack.Sequence
	return ack.Sequence
}

// last is the revision of a key, read because markers have revisions too.
func (f *forge) last(key string) uint64 {
	stream, err := f.js.Stream(f.Context(), "KV_ns-"+map[bool]string{true: "heartbeat", false: "control"}[subject(key)[:len("$KV.ns-h")] == "$KV.ns-h"])
	require.NoError(f, err)
	m, err := stream.GetLastMsgForSubject(f.Context(), subject(key))
	if err != nil {
		require.ErrorIs(f, err, jetstream.ErrMsgNotFound)
		return 0
	}
	return m.Sequence
}

// beat stores a heartbeat of the holder: what it said before, as far as mods change nothing.
func (f *forge) beat(h Holder, mods ...func(*heartbeat)) {
	b, ok := f.beats[h]
	if !ok {
		b = heartbeat{WorkerID: h.Worker, Incarnation: h.Incarnation, SchemaVersion: 1, Capabilities: 7, State: "active", ClaimedOver: "nothing"}
	}
	b.Nonce = f.next()
	for _, mod := range mods {
		mod(&b)
	}
	f.beats[h] = b
	f.write(keyHeartbeat+h.Worker, b, true)
}

// ack makes a heartbeat acknowledge a version properly.
func (f *forge) ack(version int64, named ...run) func(*heartbeat) {
	return func(b *heartbeat) {
		b.AppliedVersion, b.LeaderRevision = version, f.commits[version].LeaderRevision
		b.AppliedDigest, b.Unreturned = f.digests[version][b.holder()], named
	}
}

func state(s string) func(*heartbeat)   { return func(b *heartbeat) { b.State = s } }
func over(what string) func(*heartbeat) { return func(b *heartbeat) { b.ClaimedOver = what } }

func (f *forge) acquire(h Holder, mods ...func(*leaderValue)) {
	v := leaderValue{Worker: h.Worker, Incarnation: h.Incarnation, AcquiredAt: time.Now(), CommitVersion: f.version, Nonce: f.next()}
	if len(f.commits) == 0 {
		v.CommitVersion = 0
	}
	for _, mod := range mods {
		mod(&v)
	}
	f.leader = v
	f.term = f.write(keyLeader, v, true, jetstream.WithMsgTTL(forgeLease))
}

func (f *forge) renew(mods ...func(*leaderValue)) {
	f.leader.Term, f.leader.Nonce = f.term, f.next()
	for _, mod := range mods {
		mod(&f.leader)
	}
	f.write(keyLeader, f.leader, true, jetstream.WithMsgTTL(forgeLease))
}

// rules returns the rules that were broken, each once, sorted.
func (f *forge) rules() []Rule {
	f.c.Detach()
	var rules []Rule
	for _, v := range f.c.Report() {
		rules = append(rules, v.Rule)
	}
	slices.Sort(rules)
	return slices.Compact(rules)
}
