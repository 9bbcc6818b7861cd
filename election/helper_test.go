package election

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti/internal/backoff"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/kv"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { natstest.VerifyTestMain(m) }

// debugLog shows what the electors do with ELECTION_DEBUG=1.
func debugLog() *slog.Logger {
	if os.Getenv("ELECTION_DEBUG") == "" {
		return discard()
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

const (
	lease          = 10 * time.Second
	requestTimeout = 2 * time.Second
)

// event is a change of leadership as one member reported it.
type event struct {
	at    time.Time
	name  string
	term  Term
	began bool
	err   error
}

// group is several processes that contend for one key.
type group struct {
	t         *testing.T
	namespace string
	lease     time.Duration
	storage   jetstream.StorageType
	replicas  int

	mu         sync.Mutex
	members    []*member
	events     []event
	violations []string
}

type member struct {
	*natstest.Client
	*Elector
	group   *group
	store   *kv.Store
	holder  types.Holder
	sub     *nats.Subscription
	silent  int // calls of OnSilence
	onLost  func()
	stopped bool
}

func newGroup(t *testing.T) *group {
	return &group{t: t, namespace: "ns", lease: lease, storage: jetstream.MemoryStorage, replicas: 1}
}

// open returns the control bucket over that client. A cluster that has just started may not answer, or miss a server, so there it
// is asked until it can.
func (g *group) open(c *natstest.Client) *kv.Store {
	g.t.Helper()
	for start := time.Now(); ; {
		ctx, cancel := context.WithTimeout(g.t.Context(), 2*time.Second)
		b, err := kv.EnsureBuckets(ctx, c.JS(), kv.BucketConfig{
			Namespace: g.namespace, HeartbeatTTL: 15 * time.Second, Replicas: g.replicas, Storage: g.storage, Logger: discard(),
		})
		cancel()
		if g.replicas > 1 && err != nil && time.Since(start) < 2*time.Minute {
			pause(g.t.Context(), 100*time.Millisecond)
			continue
		}
		require.NoError(g.t, err)
		return b.Control
	}
}

// join starts an elector on the client, fed by the live subject, as a candidate.
func (g *group) join(c *natstest.Client) *member {
	g.t.Helper()
	m := g.prepare(c)
	m.Start()
	m.SetCandidate(m.holder, true)
	return m
}

func (g *group) prepare(c *natstest.Client) *member {
	g.t.Helper()
	m := &member{Client: c, group: g, store: g.open(c), holder: types.Holder{Worker: c.Name, Incarnation: c.Name + "-1"}}
	var err error
	m.Elector, err = New(Config{
		Store: m.store, Lease: g.lease, RequestTimeout: requestTimeout, Logger: debugLog(),
		OnElected: m.elected, OnLost: m.lost,
		OnSilence: func() { g.mu.Lock(); m.silent++; g.mu.Unlock() },
	})
	require.NoError(g.t, err)
	m.sub, err = c.Conn().Subscribe(kv.LiveSubject(g.namespace, Key), func(msg *nats.Msg) {
		if e, err := kv.ParseLive(g.namespace, msg); err == nil {
			m.Observe(e)
		}
	})
	require.NoError(g.t, err)
	c.Conn().SetReconnectHandler(func(*nats.Conn) { m.Recheck() })
	g.mu.Lock()
	g.members = append(g.members, m)
	g.mu.Unlock()
	g.t.Cleanup(m.stop)
	return m
}

func (m *member) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_ = m.Stop(ctx)
	<-m.done
}

// crash ends the member as a killed process ends: nothing is released.
func (m *member) crash() {
	m.Kill()
	m.group.mu.Lock()
	m.stopped = true
	m.group.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = m.Stop(ctx)
	<-m.done
}

func (m *member) elected(t Term) {
	g := m.group
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, e := range g.events {
		if e.began && e.term.Revision >= t.Revision {
			g.violations = append(g.violations, fmt.Sprintf("term %d began after term %d", t.Revision, e.term.Revision))
		}
	}
	for i := len(g.events) - 1; i >= 0; i-- {
		if e := g.events[i]; e.name == m.Name {
			if e.began {
				g.violations = append(g.violations, fmt.Sprintf("%s: term %d began before term %d was lost", m.Name, t.Revision, e.term.Revision))
			}
			break
		}
	}
	g.events = append(g.events, event{at: time.Now(), name: m.Name, term: t, began: true})
	g.exclusive()
}

func (m *member) lost(t Term, err error) {
	g := m.group
	if now, ok := m.Leading(); ok && now == t {
		g.violate("%s leads term %d although it is lost", m.Name, t.Revision)
	}
	g.mu.Lock()
	g.events = append(g.events, event{at: time.Now(), name: m.Name, term: t, err: err})
	g.mu.Unlock()
	if m.onLost != nil {
		m.onLost()
	}
}

func (g *group) violate(format string, args ...any) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.violations = append(g.violations, fmt.Sprintf(format, args...))
}

// exclusive checks that one member at most trusts a term. Call it with g.mu held.
func (g *group) exclusive() {
	for i, a := range g.members {
		ta, ok := a.Leading()
		if !ok {
			continue
		}
		for _, b := range g.members[i+1:] {
			tb, ok := b.Leading()
			if again, still := a.Leading(); ok && still && again == ta {
				g.violations = append(g.violations, fmt.Sprintf("%v: %s trusts term %d and %s trusts term %d",
					time.Now().Format("15:04:05.000"), a.Name, ta.Revision, b.Name, tb.Revision))
			}
		}
	}
}

// watch checks for exclusiveness every so often until stop is called.
func (g *group) watch(every time.Duration) (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-quit:
				return
			case <-tick.C:
				g.mu.Lock()
				g.exclusive()
				g.mu.Unlock()
			}
		}
	}()
	return func() { close(quit); <-done }
}

// leader returns the member that leads, or nil.
func (g *group) leader() *member {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, m := range g.members {
		if _, ok := m.Leading(); ok && !m.stopped {
			return m
		}
	}
	return nil
}

func (g *group) requireClean() {
	g.t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	require.Empty(g.t, g.violations[:min(len(g.violations), 10)])
}

// history returns the events of one member.
func (g *group) history(m *member) []event {
	g.mu.Lock()
	defer g.mu.Unlock()
	var out []event
	for _, e := range g.events {
		if e.name == m.Name {
			out = append(out, e)
		}
	}
	return out
}

func (m *member) silences() int {
	m.group.mu.Lock()
	defer m.group.mu.Unlock()
	return m.silent
}

// term returns the member's present term.
func (m *member) term(t *testing.T) uint64 {
	t.Helper()
	term, ok := m.Leading()
	require.True(t, ok, "%s does not lead", m.Name)
	return term.Revision
}

func leads(m *member) func() bool {
	return func() bool { _, ok := m.Leading(); return ok }
}

// pause waits, and reports false if ctx ended first.
func pause(ctx context.Context, d time.Duration) bool { return backoff.Sleep(ctx, d) == nil }
