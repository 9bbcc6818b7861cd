package election

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti/internal/kv"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

func newReplicatedGroup(t *testing.T, namespace string, lease time.Duration) *group {
	return &group{t: t, namespace: namespace, lease: lease, storage: jetstream.MemoryStorage, replicas: 3}
}

// Three servers, real time. The parts share one cluster.
func TestOnThreeServers(t *testing.T) {
	c := natstest.NewCluster(t, 3)
	t.Run("a former leader's commit never lands", func(t *testing.T) { raceCommits(t, c) })
	t.Run("an isolated leader", func(t *testing.T) { isolateLeader(t, c) })
}

// raceCommits lets a leader commit while somebody else takes its key over, through another server.
func raceCommits(t *testing.T, c *natstest.Cluster) {
	const groups, races = 8, 40
	var runs [groups]*raceRun
	var wg sync.WaitGroup
	for i := range runs {
		g := newReplicatedGroup(t, fmt.Sprintf("race%d", i), lease)
		r := &raceRun{
			a:        g.join(c.Connect(fmt.Sprintf("a%d", i), i%3)),
			rival:    leaseKey{store: g.open(c.Connect(fmt.Sprintf("b%d", i), (i+1)%3)), ttl: lease},
			ledger:   newLedger(t, g, c.Connect(fmt.Sprintf("o%d", i), (i+2)%3)),
			takeover: map[string]uint64{},
		}
		runs[i] = r
		c.WaitInterest(kv.LiveSubject(g.namespace, Key))
	}
	for _, r := range runs {
		wg.Go(func() {
			for n := range races {
				r.race(t, fmt.Sprintf("n%d", n))
			}
		})
	}
	wg.Wait()
	written, refused, unknown := 0, 0, 0
	for _, r := range runs {
		c.WaitFor(5*time.Second, "the observer has heard everything", r.ledger.complete)
		r.a.group.requireClean()
		r.ledger.check(t)
		for nonce, taken := range r.takeover {
			if v, ok := r.ledger.values[nonce]; ok {
				require.Greater(t, v.Term, taken, "%s landed under a term that had been taken over", nonce)
			}
		}
		written, refused, unknown = written+len(r.ledger.ok), refused+len(r.ledger.refused), unknown+r.ledger.unknown
	}
	t.Logf("%d races: %d commits written, %d refused, %d unknown", groups*races, written, refused, unknown)
	require.Positive(t, written)
	require.Positive(t, refused)
}

type raceRun struct {
	a        *member
	rival    leaseKey
	ledger   *ledger
	takeover map[string]uint64 // nonce of the commit it raced with: revision
}

func (r *raceRun) race(t *testing.T, nonce string) {
	for deadline := time.Now().Add(20 * time.Second); !leads(r.a)(); pause(t.Context(), time.Millisecond) {
		if time.Now().After(deadline) {
			t.Errorf("%s: no leader", r.a.Name)
			return
		}
	}
	expect := r.a.current().revision
	var wg sync.WaitGroup
	wg.Go(func() { _ = r.a.commitNow(t.Context(), r.ledger, nonce) })
	wg.Go(func() {
		pause(t.Context(), rand.N(time.Millisecond)) // a commit reads first
		value := record{Holder: types.Holder{Worker: "b", Incarnation: nonce}, LeaseSeconds: 10, Nonce: nonce}
		if taken, err := r.rival.put(t.Context(), value, expect); err == nil {
			r.takeover[nonce] = taken
			_, _ = r.rival.remove(t.Context(), taken)
		}
	})
	wg.Wait()
}

// isolateLeader cuts off the server that leads the stream, together with the worker that leads the group. The worker
// cannot tell: its server goes on answering, with what it knew. FAILURES row 8.
func isolateLeader(t *testing.T, c *natstest.Cluster) {
	const lease = 2 * time.Second
	g := newReplicatedGroup(t, "isolated", lease)
	creator := g.open(c.Connect("creator"))
	server := c.StreamLeader(creator.Stream())
	a := g.join(c.Connect("a", server))
	c.WaitFor(10*time.Second, "a leads", leads(a))
	b, d := g.join(c.Connect("b", (server+1)%3)), g.join(c.Connect("d", (server+2)%3))
	defer g.watch(5 * time.Millisecond)()
	c.WaitFor(10*time.Second, "a is heard of", func() bool {
		_, okB := b.Leader()
		_, okD := d.Leader()
		return okB && okD
	})
	term := g.leader().term(t)

	c.Isolate(server)
	cut := time.Now()
	c.WaitFor(lease+5*time.Second, "a has demoted itself", func() bool { _, ok := a.Leading(); return !ok })
	t.Logf("isolated: demoted after %v", time.Since(cut).Round(time.Millisecond))
	c.WaitFor(30*time.Second, "another leader", func() bool { l := g.leader(); return l == b || l == d })
	t.Logf("isolated: next leader after %v", time.Since(cut).Round(time.Millisecond))
	require.Greater(t, g.leader().term(t), term)
	// What a reads, if it reads anything, is old, and must not make it lead.
	a.Recheck()
	if e, err := a.store.Get(t.Context(), Key); err == nil {
		info, err := DecodeInfo(e)
		t.Logf("meanwhile the isolated server answers: %+v %v", info, err)
	}
	pause(t.Context(), lease/2)
	_, ok := a.Leading()
	require.False(t, ok)
	g.requireClean()
}
