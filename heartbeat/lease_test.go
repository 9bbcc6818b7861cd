package heartbeat

import (
	"testing"
	"time"

	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestTimingRefusesWhatOneLostHeartbeatWouldEnd(t *testing.T) {
	for _, c := range []struct {
		name   string
		timing Timing
		fault  string
	}{
		{"the defaults", DefaultTiming(15*time.Second, 3*time.Second), ""},
		{"fast failover", DefaultTiming(3*time.Second, time.Second), ""},
		{"three intervals are too few", DefaultTiming(3*time.Second, 1200*time.Millisecond), "at least two intervals and one request timeout"},
		{"interval over TTL", DefaultTiming(3*time.Second, 5*time.Second), "at least two intervals"},
		{"no interval", DefaultTiming(3*time.Second, 0), "HeartbeatInterval"},
		{"TTL the server cannot announce", DefaultTiming(500*time.Millisecond, 100*time.Millisecond), "HeartbeatTTL"},
		{"fractions of a second", DefaultTiming(15500*time.Millisecond, time.Second), "whole seconds"},
		{"no room for handlers to return", Timing{TTL: 3 * time.Second, Interval: time.Second, Margin: 100 * time.Millisecond, FenceGrace: 100 * time.Millisecond, RequestTimeout: time.Second}, "margin"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := c.timing.Validate()
			if c.fault == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, types.ErrInvalidConfig)
			require.ErrorContains(t, err, c.fault)
		})
	}
}

// The arithmetic: valid until the moment before the last successful write was sent, plus TTL, less the margin; never shortened by
// a write that was sent earlier and acknowledged later.
func TestLeaseArithmetic(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, _ *natstest.Env) {
		timing := DefaultTiming(15*time.Second, 3*time.Second)
		l := NewLease(timing)
		require.False(t, l.Valid(), "no lease before the first write")
		sent := time.Now()
		time.Sleep(2 * time.Second) // the answer takes its time
		l.Renew(sent)
		require.Equal(t, timing.TTL-timing.Margin-2*time.Second, l.Left())
		l.Renew(sent.Add(-time.Second))
		require.Equal(t, timing.TTL-timing.Margin-2*time.Second, l.Left())
		time.Sleep(l.Left() - time.Nanosecond)
		require.True(t, l.Valid())
		time.Sleep(time.Nanosecond)
		require.False(t, l.Valid())
		l.Renew(time.Now())
		require.True(t, l.Valid())
		l.End()
		require.False(t, l.Valid())
	})
}

// Whatever the order of the acknowledgements, the lease never outlasts TTL − margin after the latest write.
func TestLeaseNeverOutlastsItsLatestWrite(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		timing := DefaultTiming(15*time.Second, 3*time.Second)
		l := NewLease(timing)
		latest := time.Duration(-1)
		for _, offset := range rapid.SliceOfN(rapid.Int64Range(0, int64(time.Hour)), 1, 20).Draw(t, "sent") {
			l.Renew(l.base.Add(time.Duration(offset)))
			latest = max(latest, time.Duration(offset))
		}
		if got, want := time.Duration(l.until.Load()), latest+timing.TTL-timing.Margin; got != want {
			t.Fatalf("until %v, want %v", got, want)
		}
	})
}
