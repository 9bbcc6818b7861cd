package assignment

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// reader is a subscriber, and what the model says that it has not read yet.
type reader struct {
	ch     <-chan types.CalculatorState
	end    func()
	unread []types.CalculatorState
}

func (r *reader) tell(s types.CalculatorState) {
	r.unread = append(r.unread, s)
	r.unread = r.unread[max(0, len(r.unread)-stateBuffer):]
}

// read reads up to n states.
func (r *reader) read(t *rapid.T, n int) {
	for range min(n, len(r.unread)) {
		select {
		case s, open := <-r.ch:
			if !open || s != r.unread[0] {
				t.Fatalf("read %v (open: %v), want %v", s, open, r.unread[0])
			}
			r.unread = r.unread[1:]
		default:
			t.Fatalf("nothing to read, want %v", r.unread)
		}
	}
}

// finish ends the subscription, twice, and reads the rest.
func (r *reader) finish(t *rapid.T) {
	r.end()
	r.end()
	r.read(t, stateBuffer)
	select {
	case s, open := <-r.ch:
		if open {
			t.Fatalf("read %v, want nothing more", s)
		}
	default:
		t.Fatalf("not closed")
	}
}

// TestStateMachineModel drives the machine by random calls and compares it with the table of permitted transitions, and what subscribers who come and
// go read with the last states that they have not read.
func TestStateMachineModel(t *testing.T) {
	const idle, scaling, rebalancing, emergency = types.CalculatorIdle, types.CalculatorScaling, types.CalculatorRebalancing, types.CalculatorEmergency
	calls := []struct {
		do   func(*StateMachine) bool
		from []types.CalculatorState
		to   types.CalculatorState
		why  string
	}{
		{func(sm *StateMachine) bool { return sm.EnterScaling("s") }, []types.CalculatorState{idle}, scaling, "s"},
		{func(sm *StateMachine) bool { return sm.EnterRebalancing("r") }, []types.CalculatorState{scaling}, rebalancing, "r"},
		{func(sm *StateMachine) bool { return sm.TryClaimRebalancing("c") }, []types.CalculatorState{idle}, rebalancing, "c"},
		{func(sm *StateMachine) bool { return sm.TryClaimEmergency() }, []types.CalculatorState{idle, scaling}, emergency, types.LifecycleEmergency},
		{func(sm *StateMachine) bool { return sm.ReturnToIdle() }, []types.CalculatorState{scaling, rebalancing, emergency}, idle, ""},
	}
	rapid.Check(t, func(t *rapid.T) {
		var told []string
		var sm *StateMachine
		sm = NewStateMachine(func(from, to types.CalculatorState, reason string) {
			if to != idle && sm.GetScalingReason() != reason {
				t.Fatalf("told of %v for %q while the reason is %q", to, reason, sm.GetScalingReason())
			}
			told = append(told, fmt.Sprint(from, to, reason))
		})
		state, reason := idle, ""
		var want []string
		var readers []*reader
		pick := func(t *rapid.T) int {
			if len(readers) == 0 {
				t.Skip("nobody has subscribed")
			}
			return rapid.IntRange(0, len(readers)-1).Draw(t, "reader")
		}
		t.Repeat(map[string]func(*rapid.T){
			"call": func(t *rapid.T) {
				c := calls[rapid.IntRange(0, len(calls)-1).Draw(t, "call")]
				may := false
				for _, f := range c.from {
					may = may || f == state
				}
				if got := c.do(sm); got != may {
					t.Fatalf("transition to %v from %v: %v, want %v", c.to, state, got, may)
				}
				if may {
					why := c.why
					if c.to == idle {
						why = reason
					}
					want = append(want, fmt.Sprint(state, c.to, why))
					state, reason = c.to, c.why
					for _, r := range readers {
						r.tell(state)
					}
				}
			},
			"subscribe": func(t *rapid.T) {
				r := &reader{}
				r.ch, r.end = sm.Subscribe()
				r.tell(state)
				readers = append(readers, r)
			},
			"read": func(t *rapid.T) { readers[pick(t)].read(t, 1) },
			"unsubscribe": func(t *rapid.T) {
				i := pick(t)
				readers[i].finish(t)
				readers = slices.Delete(readers, i, i+1)
			},
			"": func(t *rapid.T) {
				if sm.GetState() != state || sm.GetScalingReason() != reason {
					t.Fatalf("is %v (%q), want %v (%q)", sm.GetState(), sm.GetScalingReason(), state, reason)
				}
				if fmt.Sprint(told) != fmt.Sprint(want) {
					t.Fatalf("told %v, want %v", told, want)
				}
			},
		})
		for _, r := range readers {
			r.finish(t)
		}
	})
}

// TestStateMachineConcurrently: of many who claim at once one succeeds, and a subscriber that never reads stops nobody.
func TestStateMachineConcurrently(t *testing.T) {
	sm := NewStateMachine(nil)
	_, unsubscribe := sm.Subscribe()
	defer unsubscribe()
	for range 200 {
		var wg sync.WaitGroup
		won := make(chan bool, 20)
		for i := range cap(won) {
			wg.Go(func() {
				if i%2 == 0 {
					won <- sm.TryClaimEmergency()
				} else {
					won <- sm.TryClaimRebalancing("x")
				}
			})
		}
		wg.Wait()
		close(won)
		n := 0
		for w := range won {
			if w {
				n++
			}
		}
		require.Equal(t, 1, n)
		require.True(t, sm.ReturnToIdle())
	}
}

func set(ids ...string) map[string]bool {
	m := make(map[string]bool)
	for _, id := range ids {
		m[id] = true
	}
	return m
}

func TestEmergencyDetector(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, _ *natstest.Env) {
		d := NewEmergencyDetector(5 * time.Second)
		check := func(curr map[string]bool, prev ...string) ([]string, bool) {
			return d.CheckEmergency(set(prev...), curr)
		}

		dead, pending := check(set("a"), "a", "b")
		require.Empty(t, dead)
		require.True(t, pending)
		time.Sleep(4 * time.Second)
		check(set("a", "b"), "a", "b") // it came back
		dead, _ = check(set("a"), "a", "b")
		require.Empty(t, dead)
		time.Sleep(4 * time.Second)
		dead, pending = check(set("a"), "a", "b")
		require.Empty(t, dead, "the grace began anew")
		require.True(t, pending)
		require.Equal(t, time.Second, time.Until(d.deadline("b")))
		d.ObserveAlive([]string{"b"})
		time.Sleep(time.Second)
		dead, _ = check(set("a"), "a", "b")
		require.Empty(t, dead, "somebody saw it alive")
		time.Sleep(5 * time.Second)
		dead, pending = check(set("a"), "a", "b")
		require.Equal(t, []string{"b"}, dead)
		require.False(t, pending)

		check(set("a"), "a") // nobody counts on b any more
		require.Len(t, d.firstSeen, 1)
		time.Sleep(50 * time.Second)
		check(set("a"), "a")
		require.Empty(t, d.firstSeen, "stranded entries are dropped")
	})
}

func TestCredibility(t *testing.T) {
	c := NewCredibility(3)
	require.True(t, c.Observe(10, 6))
	require.False(t, c.Observe(10, 5))
	require.True(t, c.Suspicious())
	require.False(t, c.Observe(10, 0))
	require.True(t, c.Observe(10, 8), "a good one in between")
	require.False(t, c.Suspicious())
	require.False(t, c.Observe(10, 0))
	require.False(t, c.Observe(10, 0))
	require.False(t, c.Believes(10, 0))
	require.True(t, c.Observe(10, 0))
	require.True(t, c.Believes(10, 0))
	c.Reset()
	require.False(t, c.Believes(10, 0))
	require.True(t, c.Observe(0, 0), "nothing to lose")
	require.True(t, NewCredibility(1).Observe(10, 0))
}
