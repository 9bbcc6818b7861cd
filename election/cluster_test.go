package election

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/kv"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

func newReplicatedGroup(t *testing.T, namespace string, lease time.Duration) *group {
	return &group{t: t, namespace: namespace, lease: lease, storage: jetstream.MemoryStorage, replicas: 3}
}

// Three servers, real time. The parts share one cluster.
func TestOnThreeServers(t *testing.T) {
	natstest.Long(t)
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
		observer := c.Connect(fmt.Sprintf("o%d", i), (i+2)%3)
		r := &raceRun{
			a:        g.join(c.Connect(fmt.Sprintf("a%d", i), i%3)),
			rival:    leaseKey{store: g.open(c.Connect(fmt.Sprintf("b%d", i), (i+1)%3)), ttl: lease},
			ledger:   newLedger(t, g, observer),
			takeover: map[string]uint64{},
		}
		r.server = c.StreamLeader(r.a.store.Stream())
		runs[i] = r
		c.WaitSubscribed(observer)
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
		r.a.group.requireClean()
		// The leader may also have lost the stream and got it back.
		for began := time.Now(); !r.ledger.complete() && c.StreamLeader(r.a.store.Stream()) == r.server && time.Since(began) < 20*time.Second; {
			time.Sleep(10 * time.Millisecond)
		}
		if r.ledger.complete() {
			r.ledger.check(t)
		} else {
			t.Logf("%s: a new leader of the stream does not republish what the one before has stored", r.a.Name)
		}
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
	server   int               // led the stream at the beginning
}

func (r *raceRun) race(t *testing.T, nonce string) {
	for deadline := time.Now().Add(2 * time.Minute); !leads(r.a)(); pause(t.Context(), time.Millisecond) {
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
// cannot tell: its server goes on answering, with what it knew. docs/ROBUSTNESS.md row 8.
func isolateLeader(t *testing.T, c *natstest.Cluster) {
	const lease = 2 * time.Second
	g := newReplicatedGroup(t, "isolated", lease)
	creator := g.open(c.Connect("creator"))
	server := c.StreamLeader(creator.Stream())
	a := g.join(c.Connect("a", server))
	c.WaitFor(time.Minute, "a leads", leads(a))
	b, d := g.join(c.Connect("b", (server+1)%3)), g.join(c.Connect("d", (server+2)%3))
	defer g.watch(5 * time.Millisecond)()
	var term Term
	c.WaitFor(time.Minute, "a leads, and is heard of", func() (led bool) {
		term, led = a.Leading()
		_, okB := b.Leader()
		_, okD := d.Leader()
		return led && okB && okD
	})

	c.Isolate(server)
	cut := time.Now()
	c.WaitFor(lease+5*time.Second, "a has demoted itself", func() bool { _, ok := a.Leading(); return !ok })
	t.Logf("isolated: demoted after %v", time.Since(cut).Round(time.Millisecond))
	var next Term
	c.WaitFor(2*time.Minute, "another leader", func() (led bool) {
		if next, led = b.Leading(); !led {
			next, led = d.Leading()
		}
		return led
	})
	t.Logf("isolated: next leader after %v", time.Since(cut).Round(time.Millisecond))
	require.Greater(t, next.Revision, term.Revision)
	// What a reads is old, and must not make it lead.
	var old kv.Entry
	c.WaitFor(time.Minute, "the isolated server answers a read", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var err error
		old, err = a.store.Get(ctx, Key)
		return err == nil
	})
	require.Less(t, old.Revision, next.Revision, "it knows nothing of the next leader")
	info, err := DecodeInfo(old)
	require.NoError(t, err)
	require.Equal(t, term.Holder, info.Holder, "by what it knows a still leads")
	a.Recheck()
	pause(t.Context(), lease/2)
	_, ok := a.Leading()
	require.False(t, ok)
	g.requireClean()
}
