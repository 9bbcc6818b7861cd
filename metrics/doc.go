// Package metrics turns what a group's processes measure into Prometheus metrics:
//
//	m := metrics.NewManager("orders")
//	prometheus.MustRegister(m)
//	mgr, err := parti.NewManager(js, src, strategy.Sticky(), parti.WithNamespace("orders"), parti.WithMetrics(m), …)
//
// and for a reader:
//
//	c := metrics.NewConsumer("orders")
//	prometheus.MustRegister(c)
//	r, err := consumer.NewReader(js, "orders", 64, consumer.WithMetrics(c), consumer.WithManagerOptions(parti.WithMetrics(m)), …)
//
// A collector is made for one Manager or one Reader. Every metric has the constant label group, so that a process may have one of each
// for several groups in one registry.
//
// What only the leader knows is shown while this process leads, and no longer; what belongs to a partition disappears when this
// process no longer owns the partition. So sums and maxima over the processes of a group are right.
//
// The package is a module of its own: who does not use it does not depend on Prometheus' client.
package metrics
