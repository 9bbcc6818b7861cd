package ownership

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// told is what OnOwnership was told, by partition.
type told struct {
	mu  sync.Mutex
	all map[string][]types.OwnershipChange
}

// tellsInto sets the hook.
func tellsInto(l *told) func(*Config) {
	l.all = map[string][]types.OwnershipChange{}
	return func(c *Config) {
		c.Hooks.OnOwnership = func(c types.OwnershipChange) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.all[c.Partition.ID()] = append(l.all[c.Partition.ID()], c)
		}
	}
}

// take returns what was told of a partition since the last call, in short.
func (l *told) take(id string) []string {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []string
	for _, c := range l.all[id] {
		s := fmt.Sprintf("%d %v→%v", c.Epoch, c.From, c.To)
		if c.Forced {
			s += " forced"
		}
		for _, h := range c.WaitingFor {
			s += " " + h.Worker
		}
		if c.Cause != nil {
			s += ": " + strings.TrimPrefix(strings.SplitN(c.Cause.Error(), ":", 3)[1], " ")
		}
		out = append(out, s)
	}
	delete(l.all, id)
	return out
}

func TestTransitionsAreTold(t *testing.T) {
	var l told
	for _, c := range []struct {
		name string
		do   func(r *rig)
		want []string
	}{
		{"started and revoked", func(r *rig) {
			r.apply(10, entry("a", 10))
			r.beat()
			r.apply(11)
		}, []string{"10 released→assigned", "10 assigned→running", "10 running→draining: partition revoked", "10 draining→released: partition revoked"}},
		{"planned move from another", func(r *rig) {
			r.set(other("o1", 9))
			r.apply(10, entry("a", 10, from("other", "o1", 10)))
			r.beat()
			r.hears(other("o1", 10))
		}, []string{"10 released→assigned", "10 assigned→waiting other", "10 waiting→running"}},
		{"acknowledged before the own heartbeat is stored", func(r *rig) {
			r.apply(10, entry("a", 10, from("other", "o1", 10)))
			r.hears(other("o1", 10))
			r.beat()
		}, []string{"10 released→assigned", "10 assigned→running"}},
		{"forced", func(r *rig) {
			r.apply(10, entry("a", 10, from("other", "o1", 10)))
			for range 10 {
				r.set(other("o1", 9)) // it lives
				r.beat()
				time.Sleep(5 * time.Second)
			}
		}, []string{"10 released→assigned", "10 assigned→waiting other", "10 waiting→running forced other"}},
		{"taken away before it was decided", func(r *rig) {
			r.apply(10, entry("a", 10))
			r.apply(11)
		}, []string{"10 released→assigned", "10 assigned→released: partition revoked"}},
		{"taken away while it waits", func(r *rig) {
			r.apply(10, entry("a", 10, from("other", "o1", 10)))
			r.beat()
			r.apply(11)
		}, []string{"10 released→assigned", "10 assigned→waiting other", "10 waiting→released: partition revoked"}},
		{"A, B, A while the first run drains", func(r *rig) {
			r.hold("a")
			r.apply(10, entry("a", 10))
			r.beat()
			r.apply(11)
			r.apply(12, entry("a", 12, from("me", "i1", 11), from("other", "o1", 12)))
			r.beat()
			r.hears(other("o1", 12))
			r.letGo("a")
		}, []string{
			"10 released→assigned", "10 assigned→running", "10 running→draining: partition revoked", "12 released→assigned", "12 assigned→waiting other",
			"10 draining→released: partition revoked", "12 waiting→running",
		}},
		{"given again in one step", func(r *rig) {
			r.hold("a")
			r.apply(10, entry("a", 10))
			r.beat()
			r.apply(12, entry("a", 12, from("me", "i1", 12)))
			r.beat()
			r.letGo("a")
		}, []string{
			"10 released→assigned", "10 assigned→running", "10 running→draining: partition revoked", "12 released→assigned", "12 assigned→waiting",
			"10 draining→released: partition revoked", "12 waiting→running",
		}},
		{"lease ends", func(r *rig) {
			r.hold("a")
			r.apply(10, entry("a", 10))
			r.beat()
			time.Sleep(testTTL)
			synctest.Wait()
			require.Equal(t, types.OwnershipLost, r.rt.Partitions()[0].State)
			r.letGo("a")
		}, []string{"10 released→assigned", "10 assigned→running", "10 running→lost: lease expired", "10 lost→released: lease expired"}},
		{"lease ends during a drain, and while one waits", func(r *rig) {
			r.hold("a")
			r.apply(10, entry("a", 10))
			r.beat()
			r.apply(12, entry("a", 12))
			r.beat()
			time.Sleep(testTTL)
			synctest.Wait()
			r.letGo("a")
		}, []string{
			"10 released→assigned", "10 assigned→running", "10 running→draining: partition revoked", "12 released→assigned", "12 assigned→waiting",
			"12 waiting→released: lease expired", "10 draining→lost: lease expired", "10 lost→released: lease expired",
		}},
		{"the key is lost", func(r *rig) {
			r.apply(10, entry("a", 10))
			r.beat()
			r.rt.Fence(errors.New("heartbeat: key lost"))
		}, []string{"10 released→assigned", "10 assigned→running", "10 running→lost: key lost", "10 lost→released: key lost"}},
		{"stop", func(r *rig) {
			r.hold("a")
			r.apply(10, entry("a", 10))
			r.beat()
			r.rt.Drain()
			require.True(t, r.rt.Apply(Commit{Holder: r.me, Version: 11, Entries: []types.AssignmentEntry{entry("a", 11)}, Digest: "d"}))
			r.letGo("a")
		}, []string{"10 released→assigned", "10 assigned→running", "10 running→draining: stopped", "10 draining→released: stopped"}},
		{"stop while it waits", func(r *rig) {
			r.apply(10, entry("a", 10, from("other", "o1", 10)))
			r.beat()
			r.rt.Drain()
		}, []string{"10 released→assigned", "10 assigned→waiting other", "10 waiting→released: stopped"}},
	} {
		for _, passive := range []bool{false, true} {
			if passive && (strings.Contains(c.name, "A, B, A") || strings.Contains(c.name, "again") || strings.Contains(c.name, "lease ends")) {
				continue // nothing of its own has to return
			}
			t.Run(fmt.Sprint(c.name, ", passive ", passive), func(t *testing.T) {
				withRig(t, func(r *rig) {
					c.do(r)
					require.Equal(t, c.want, l.take("a"))
				}, tellsInto(&l), func(c *Config) {
					if passive {
						c.Handler = nil
					}
				})
			})
		}
	}
}

// With Available ownership the end of a lease ends no run, and what has not begun is given back.
func TestTransitionsWhenAvailable(t *testing.T) {
	var l told
	withRig(t, func(r *rig) {
		r.apply(10, entry("a", 10), entry("b", 10, from("other", "o1", 10)))
		r.beat()
		time.Sleep(2 * testTTL)
		require.Equal(t, []string{"10 released→assigned", "10 assigned→running"}, l.take("a"))
		require.Equal(t, []string{"10 released→assigned", "10 assigned→waiting other", "10 waiting→released: lease expired"}, l.take("b"))
	}, tellsInto(&l), func(c *Config) { c.Available = true })
}

// A hook that blocks delays neither its own partition, nor others, nor the end of the lease; what does not fit is dropped and counted.
func TestBlockedOwnershipHookDelaysNothing(t *testing.T) {
	var hang chan struct{} // of the bubble
	var l told
	drops := &dropped{}
	withRig(t, func(r *rig) {
		r.apply(10, entry("a", 10), entry("b", 10))
		r.beat()
		require.ElementsMatch(t, []string{"start a 10", "start b 10"}, r.take())
		require.Equal(t, []string{"10 released→assigned", "10 assigned→running"}, l.take("b"))
		for v := int64(11); v < 11+changesWaiting; v++ {
			r.apply(v, entry("a", v), entry("b", 10))
			r.beat()
		}
		require.Empty(t, l.take("a"), "the first call has not returned")
		require.Positive(t, drops.get())
		lost := drops.get()
		time.Sleep(testTTL)
		synctest.Wait()
		require.Len(t, r.seen().expired, 1)
		require.Empty(t, r.rt.Partitions())
		require.Equal(t, []string{"10 running→lost: lease expired", "10 lost→released: lease expired"}, l.take("b"))
		close(hang)
		require.Len(t, l.take("a"), 1+changesWaiting)
		require.Equal(t, lost+2, drops.get())
	}, tellsInto(&l), func(c *Config) {
		hang = make(chan struct{})
		note := c.Hooks.OnOwnership
		c.Hooks.OnOwnership = func(o types.OwnershipChange) {
			if o.Partition.ID() == "a" {
				<-hang
			}
			note(o)
		}
		c.Metrics = drops
	})
}

type dropped struct {
	types.NopMetrics
	mu sync.Mutex
	n  int
}

func (d *dropped) ChangesDropped(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.n += n
}

func (d *dropped) get() int {
	synctest.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.n
}

// A hook that panics, or ends its goroutine, is called for the next transition all the same, and what it does to its argument harms nobody.
func TestOwnershipHookThatFails(t *testing.T) {
	var l told
	withRig(t, func(r *rig) {
		r.apply(10, entry("a", 10))
		r.beat()
		r.apply(11)
		require.Equal(t, []string{"10 released→assigned", "10 assigned→running", "10 running→draining: partition revoked", "10 draining→released: partition revoked"},
			l.take("a"))
		require.NoError(t, r.rt.Told(t.Context()))
	}, tellsInto(&l), func(c *Config) {
		note := c.Hooks.OnOwnership
		c.Hooks.OnOwnership = func(o types.OwnershipChange) {
			note(o)
			o.Partition.Keys[0] = "spoilt"
			if o.To == types.OwnershipRunning {
				runtime.Goexit()
			}
			panic("no")
		}
	})
}

// Whatever happens in whatever order: the transitions of each ownership are a chain from released to released of steps that exist, those of
// one partition are told in the order in which they were, at rest they agree with what Partitions says, and never do two ownerships of a
// partition run at once.
func TestTransitionsAreChains(t *testing.T) {
	for seed := range uint64(12) {
		var l told
		withRig(t, func(r *rig) { randomly(r, &l, rand.New(rand.NewPCG(seed, 1))) }, tellsInto(&l))
	}
}

func randomly(r *rig, l *told, rnd *rand.Rand) {
	ids := []string{"a", "b", "c", "d"}
	version, life := int64(10), 1
	epochs := map[string]int64{}
	for range 200 {
		switch rnd.IntN(8) {
		case 0, 1, 2:
			version++
			var entries []types.AssignmentEntry
			for _, id := range ids {
				switch rnd.IntN(4) {
				case 0:
					epochs[id] = 0
				case 1:
					epochs[id] = version
				}
				if e := epochs[id]; e > 0 && rnd.IntN(2) == 0 {
					entries = append(entries, entry(id, e, from("other", "o1", e)))
				} else if e > 0 {
					entries = append(entries, entry(id, e))
				}
			}
			r.rt.Apply(Commit{Holder: r.me, Version: version, Entries: entries, Digest: "d"})
		case 3, 4:
			r.beat()
		case 5:
			r.hears(other("o1", version))
		case 6:
			id := ids[rnd.IntN(len(ids))]
			r.mu.Lock()
			if r.release[id] != nil {
				r.let(id)
			} else {
				r.release[id] = make(chan struct{})
			}
			r.mu.Unlock()
		case 7:
			if rnd.IntN(6) > 0 {
				time.Sleep(time.Duration(rnd.IntN(3000)) * time.Millisecond)
				break
			}
			returned := r.rt.Fence(types.ErrLeaseExpired)
			r.mu.Lock()
			for id := range r.release {
				r.let(id)
			}
			r.mu.Unlock()
			<-returned
			life++
			r.me.Incarnation = fmt.Sprint("i", life)
			r.renew(testTTL)
			r.rt.Begin(r.me)
			clear(epochs)
		}
		if rnd.IntN(4) == 0 {
			l.check(r)
		}
	}
	l.check(r)
}

// follows says which states may follow which.
var follows = map[types.OwnershipState][]types.OwnershipState{
	types.OwnershipReleased: {types.OwnershipAssigned},
	types.OwnershipAssigned: {types.OwnershipWaiting, types.OwnershipRunning, types.OwnershipReleased},
	types.OwnershipWaiting:  {types.OwnershipRunning, types.OwnershipReleased},
	types.OwnershipRunning:  {types.OwnershipDraining, types.OwnershipLost},
	types.OwnershipDraining: {types.OwnershipLost, types.OwnershipReleased},
	types.OwnershipLost:     {types.OwnershipReleased},
}

func (l *told) check(r *rig) {
	t := r.t
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	var now []string
	for id, changes := range l.all {
		states := map[int64]types.OwnershipState{} // by epoch
		var at time.Time
		for _, c := range changes {
			from, known := states[c.Epoch]
			if !known {
				from = types.OwnershipReleased
			}
			require.Equal(t, from, c.From, "%s %d", id, c.Epoch)
			require.Contains(t, follows[c.From], c.To)
			require.False(t, c.At.Before(at))
			require.Equal(t, c.To > types.OwnershipRunning, c.Cause != nil, "%v→%v", c.From, c.To)
			at, states[c.Epoch] = c.At, c.To
			if c.To == types.OwnershipReleased {
				delete(states, c.Epoch)
			}
			begun := 0
			for _, s := range states {
				if s > types.OwnershipWaiting {
					begun++
				}
			}
			require.LessOrEqual(t, begun, 1)
		}
		for epoch, s := range states {
			now = append(now, fmt.Sprint(id, epoch, s))
		}
	}
	var want []string
	for _, p := range r.rt.Partitions() {
		want = append(want, fmt.Sprint(p.ID, p.Epoch, p.State))
	}
	slices.Sort(now)
	slices.Sort(want)
	require.Equal(t, want, now)
}
