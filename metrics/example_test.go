package metrics_test

import (
	"fmt"
	"time"

	"github.com/partigo/parti/metrics"
	"github.com/prometheus/client_golang/prometheus"
)

// What a Manager is given with parti.WithMetrics is what a registry collects from.
func ExampleNewManager() {
	m := metrics.NewManager("orders")
	registry := prometheus.NewRegistry()
	registry.MustRegister(m)

	m.HeartbeatSent(3*time.Millisecond, nil) // the Manager does this

	families, err := registry.Gather()
	if err != nil {
		fmt.Println(err)
	}
	for _, f := range families {
		if f.GetName() == "parti_heartbeat_duration_seconds" {
			fmt.Println(f.GetName(), f.GetMetric()[0].GetHistogram().GetSampleCount())
		}
	}
	// Output: parti_heartbeat_duration_seconds 1
}
