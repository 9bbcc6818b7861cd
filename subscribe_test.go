package parti

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/source"
	"github.com/partigo/parti/strategy"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { natstest.VerifyTestMain(m) }

// dropCounter counts what slow subscribers and hooks have missed.
type dropCounter struct {
	types.NopMetrics
	dropped atomic.Int64
}

func (d *dropCounter) ChangesDropped(n int) { d.dropped.Add(int64(n)) }

func unstarted(t *testing.T, opts ...Option) *Manager {
	t.Helper()
	js := struct{ jetstream.JetStream }{} // nothing is asked of it
	m, err := NewManager(js, source.Static(types.NewPartition("a")), strategy.Sticky(), opts...)
	require.NoError(t, err)
	return m
}

// A subscriber that does not read misses the oldest changes, which is counted, and neither the last one nor the order.
func TestSlowSubscriberMissesTheOldest(t *testing.T) {
	var metrics dropCounter
	m := unstarted(t, WithMetrics(&metrics))
	slow, unsubscribe := m.Subscribe()
	defer unsubscribe()
	const changes = 2*subscriptionBuffer + 10
	for i := range changes {
		m.health.setPhase([]types.State{StateJoining, StateWaiting}[i%2], fmt.Sprint(i))
	}
	require.EqualValues(t, changes+1-subscriptionBuffer, metrics.dropped.Load(), "beside the changes there was the first state")
	require.Len(t, slow, subscriptionBuffer)
	for i := changes - subscriptionBuffer; i < changes; i++ {
		require.Equal(t, fmt.Sprint(i), (<-slow).Reason)
	}
	require.Empty(t, slow)
	late, unsubscribeLate := m.Subscribe()
	defer unsubscribeLate()
	first := <-late
	require.Equal(t, fmt.Sprint(changes-1), first.Reason)
	require.Equal(t, m.State(), first.To)
}

// Hooks that a slow one holds up are bounded: the oldest calls are dropped and counted, and the last one is made.
func TestSlowHookMissesTheOldest(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, _ *natstest.Env) {
		var metrics dropCounter
		var told []string
		block := make(chan struct{})
		m := unstarted(t, WithMetrics(&metrics), WithHooks(Hooks{OnStateChanged: func(c StateChange) {
			<-block
			told = append(told, c.Reason)
		}}))
		const changes = groupHooks + 100
		for i := range changes {
			m.health.setPhase([]types.State{StateJoining, StateWaiting}[i%2], fmt.Sprint(i))
			if i == 0 {
				time.Sleep(time.Millisecond) // the first call has begun, so it is not waiting any more
			}
		}
		close(block)
		require.NoError(t, m.hooks.Wait(context.Background()))
		require.EqualValues(t, changes-1-groupHooks, metrics.dropped.Load())
		require.Len(t, told, groupHooks+1)
		require.Equal(t, "0", told[0])
		for i, reason := range told[1:] {
			require.Equal(t, fmt.Sprint(changes-groupHooks+i), reason)
		}
		m.cancel()
	})
}
