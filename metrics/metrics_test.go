package metrics

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/partigo/parti/consumer"
	"github.com/partigo/parti/types"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
)

// gathered returns everything in the registry, in text.
func gathered(t *testing.T, r *prometheus.Registry) string {
	t.Helper()
	families, err := r.Gather()
	require.NoError(t, err)
	var b strings.Builder
	for _, f := range families {
		fmt.Fprintln(&b, f)
	}
	return b.String()
}

// example returns a value that is not zero for the parameter of a method.
func example(p reflect.Type) reflect.Value {
	switch p {
	case reflect.TypeFor[error]():
		return reflect.ValueOf(errors.New("x"))
	case reflect.TypeFor[time.Duration]():
		return reflect.ValueOf(20 * time.Millisecond)
	case reflect.TypeFor[types.State]():
		return reflect.ValueOf(types.StateStable)
	case reflect.TypeFor[types.CalculatorState]():
		return reflect.ValueOf(types.CalculatorScaling)
	}
	v := reflect.New(p).Elem()
	switch p.Kind() {
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Uint8, reflect.Uint64:
		v.SetUint(1)
	default:
		v.SetInt(7)
	}
	return v
}

// callEach calls every method of the interface, and requires that each changes what is gathered.
func callEach(t *testing.T, r *prometheus.Registry, on any, methods reflect.Type) {
	for i := range methods.NumMethod() {
		m := methods.Method(i)
		args := make([]reflect.Value, m.Type.NumIn())
		for k := range args {
			args[k] = example(m.Type.In(k))
		}
		before := gathered(t, r)
		reflect.ValueOf(on).MethodByName(m.Name).Call(args)
		require.NotEqual(t, before, gathered(t, r), "%s is not measured", m.Name)
	}
}

func registry(t *testing.T, cs ...prometheus.Collector) *prometheus.Registry {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	for _, c := range cs {
		require.NoError(t, r.Register(c))
	}
	return r
}

func TestEveryMethodIsMeasured(t *testing.T) {
	m, c := NewManager("g"), NewConsumer("g")
	r := registry(t, m, c, NewManager("h"), NewConsumer("h"))
	m.LeaderChanged(true)
	callEach(t, r, m, reflect.TypeFor[types.Metrics]())
	c.PartitionAssigned(7, 3)
	c.Lag(7, 3)
	callEach(t, r, c, reflect.TypeFor[consumer.Metrics]())
}

// Names and texts are what Prometheus' own linter asks for.
func TestConventions(t *testing.T) {
	m, c := NewManager("g"), NewConsumer("g")
	r := registry(t, m, c)
	m.LeaderChanged(true)
	callEach(t, r, m, reflect.TypeFor[types.Metrics]())
	c.PartitionAssigned(7, 3)
	c.Buffered(7, 1, 2)
	c.Lag(7, 3)
	c.Handled(7, time.Second, nil)
	c.Committed(7, time.Second, nil)
	c.Poisoned(7, consumer.PoisonStop)
	problems, err := testutil.GatherAndLint(r)
	require.NoError(t, err)
	require.Empty(t, problems)
}

func TestState(t *testing.T) {
	m := NewManager("g")
	r := registry(t, m)
	want := func(state string) {
		t.Helper()
		require.NoError(t, testutil.GatherAndCompare(r, strings.NewReader(fmt.Sprintf(
			"# HELP parti_state 1 for the state that the Manager is in.\n# TYPE parti_state gauge\nparti_state{group=\"g\",state=%q} 1\n", state)), "parti_state"))
	}
	want("init")
	m.StateChanged(types.StateInit, types.StateJoining)
	m.StateChanged(types.StateJoining, types.StateDegraded)
	want("degraded")
}

// What only the leader knows is shown while it leads: not before, and not after, when the leader's work winds down and still reports.
func TestLeaderGaugesEndWithTheTerm(t *testing.T) {
	m := NewManager("g")
	r := registry(t, m)
	names := []string{
		"parti_leader_state", "parti_leader_live_workers", "parti_leader_parked_partitions", "parti_leader_workers_behind",
		"parti_leader_workers_held_back", "parti_leader_workers_standing_by", "parti_leader_label_workers", "parti_leader_label_parked_partitions",
	}
	count := func() int {
		n, err := testutil.GatherAndCount(r, names...)
		require.NoError(t, err)
		return n
	}
	report := func() {
		m.CalculatorStateChanged(types.CalculatorIdle, types.CalculatorScaling, "x")
		m.WorkersSeen(3)
		m.PartitionsParked(0)
		m.WorkersBehind(1)
		m.WorkersDamped(0)
		m.WorkersStandingBy(2)
		m.LabelPool("gpu", 1, 0)
		m.LabelPool("old", 0, 4)
	}
	report()
	require.Zero(t, count())
	for term := 1.0; term <= 2; term++ {
		m.LeaderChanged(true)
		require.Zero(t, count(), "nothing is left of an earlier term")
		report()
		require.Equal(t, 10, count())
		m.LabelPool("old", 0, 0)
		require.Equal(t, 8, count())
		m.LeaderChanged(false)
		require.Zero(t, count())
		report()
		require.Zero(t, count())
		require.Equal(t, term, testutil.ToFloat64(m.terms.c.WithLabelValues()))
	}
}

// Gauges of a partition disappear with it, also when a report comes late.
func TestPartitionGauges(t *testing.T) {
	c := NewConsumer("g")
	r := registry(t, c)
	gauges := []string{"parti_consumer_partition_epoch", "parti_consumer_lag_messages", "parti_consumer_buffered_messages", "parti_consumer_buffered_bytes"}
	count := func() int {
		n, err := testutil.GatherAndCount(r, gauges...)
		require.NoError(t, err)
		return n
	}
	c.Lag(3, 9)
	require.Zero(t, count(), "nobody's")
	for p := range 3 {
		c.PartitionAssigned(p, int64(100+p))
		c.Lag(p, uint64(p))
		c.Buffered(p, 1, 2)
	}
	require.Equal(t, 12, count())
	require.Equal(t, 2.0, testutil.ToFloat64(c.lag.g.WithLabelValues("2")))
	c.PartitionGone(2)
	c.Lag(2, 5)
	c.Buffered(2, 5, 5)
	require.Equal(t, 8, count())
}
