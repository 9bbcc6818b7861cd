package parti

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti/source"
	"github.com/partigo/parti/strategy"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// configure returns the settings that a Manager takes from the options, or its refusal.
func configure(opts ...Option) (Config, error) {
	js := struct{ jetstream.JetStream }{} // nothing is asked of it
	m, err := NewManager(js, source.Static(types.NewPartition("a")), strategy.Sticky(), opts...)
	if err != nil {
		return Config{}, err
	}
	return m.Config(), nil
}

// A Config that sets nothing is DefaultConfig, except that it has to name its group.
func TestZeroIsTheDefault(t *testing.T) {
	want := DefaultConfig()
	got, err := configure(WithConfig(Config{Namespace: want.Namespace}))
	require.NoError(t, err)
	require.Equal(t, want, got)
	byDefault, err := configure()
	require.NoError(t, err)
	require.Equal(t, want, byDefault)

	require.NoError(t, (&Config{Namespace: "orders"}).Validate())
	err = (&Config{}).Validate()
	require.ErrorIs(t, err, ErrInvalidConfig)
	require.ErrorContains(t, err, "Namespace")
	require.NotContains(t, err.Error(), "\n", "nothing else is wrong with it")
	zero := Config{Namespace: "orders"}
	require.NoError(t, zero.Validate())
	require.Equal(t, Config{Namespace: "orders"}, zero, "it is only looked at")
}

// What 0 means as the argument of an option: none where that reads so, and the default elsewhere.
func TestZeroOfAnOption(t *testing.T) {
	for name, c := range map[string]struct {
		option Option
		change func(*Config) // of the defaults
	}{
		"windows":         {WithWindows(0, 0, 0), func(c *Config) { c.ColdStartWindow, c.ScaleWindow, c.SettleDelay = -1, -1, -1 }},
		"cold start only": {WithWindows(0, time.Second, time.Minute), func(c *Config) { c.ColdStartWindow, c.ScaleWindow, c.SettleDelay = -1, time.Second, time.Minute }},
		"cooldown":        {WithCooldown(0), func(c *Config) { c.Cooldown = -1 }},
		"damping":         {WithDampingPeriod(0), func(c *Config) { c.DampingPeriod = -1 }},
		"spill grace":     {WithLabelSpillGrace(0), func(c *Config) { c.LabelSpillGrace = -1 }},
		"never spill":     {WithLabelSpillGrace(types.NeverSpill), nil},
		"heartbeat":       {WithHeartbeat(0, 0), nil},
		"leader lease":    {WithLeaderLease(0), nil},
		"handoff":         {WithHandoffTimeout(0), nil},
		"drain":           {WithDrainTimeout(0), nil},
		"start":           {WithStartTimeout(0), nil},
		"alerts":          {WithDegradedAlerts(0, 0, 0), nil},
		"replicas":        {WithReplicas(0), nil},
		"expected":        {WithExpectedWorkers(0), nil},
		"most":            {WithMaxWorkers(0), nil},
		"capacity":        {WithCapacity(0, 0), nil},
		"pool":            {WithWorkerPool(""), nil},
		"ID":              {WithWorkerID(""), nil},
		"role":            {WithRole(""), nil},
		"labels":          {WithLabels(), nil},
		"policy":          {WithUnlabeledPolicy(""), nil},
		"storage":         {WithStorage(0), nil},
		"ownership":       {WithOwnership(0), nil},
		"logger":          {WithLogger(nil), nil},
		"metrics":         {WithMetrics(nil), nil},
	} {
		want := DefaultConfig()
		if c.change != nil {
			c.change(&want)
		}
		got, err := configure(c.option)
		require.NoError(t, err, name)
		require.Equal(t, want, got, name)
	}
}

// A negative duration is none where a group can do without, and refused elsewhere.
func TestNegativeDurations(t *testing.T) {
	none := Config{
		Namespace: "orders", ColdStartWindow: -1, ScaleWindow: -2, SettleDelay: -time.Second, Cooldown: -1, DampingPeriod: -1, LabelSpillGrace: -5,
		HandoffTimeout: -1,
	}
	require.NoError(t, none.Validate())
	for name, change := range map[string]func(*Config){
		"HeartbeatInterval": func(c *Config) { c.HeartbeatInterval = -1 },
		"HeartbeatTTL":      func(c *Config) { c.HeartbeatTTL = -time.Second },
		"LeaderLease":       func(c *Config) { c.LeaderLease = -time.Second },
		"DrainTimeout":      func(c *Config) { c.DrainTimeout = -1 },
		"StartTimeout":      func(c *Config) { c.StartTimeout = -1 },
		"DegradedWarn":      func(c *Config) { c.DegradedWarn = -1 },
	} {
		bad := Config{Namespace: "orders"}
		change(&bad)
		err := bad.Validate()
		require.ErrorIs(t, err, ErrInvalidConfig, name)
		t.Log(fmt.Sprint(err))
	}
	_, err := configure(WithLogger(slog.Default()), WithStartTimeout(-1))
	require.ErrorContains(t, err, "StartTimeout is -1ns: use a positive duration, or 0 for the default")
}
