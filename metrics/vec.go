package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// buckets suit what takes from a millisecond, a write to NATS, to half a minute, the longest that anything here may take.
var buckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}

// set is the metrics of one collector.
type set struct {
	labels prometheus.Labels
	all    []prometheus.Collector
}

func (s *set) describe(ch chan<- *prometheus.Desc) {
	for _, c := range s.all {
		c.Describe(ch)
	}
}

func (s *set) collect(ch chan<- prometheus.Metric) {
	for _, c := range s.all {
		c.Collect(ch)
	}
}

// vec is one metric, whichever kind it is. Metrics without labels are vectors too, so that they can be absent.
type vec struct {
	g *prometheus.GaugeVec
	c *prometheus.CounterVec
	h *prometheus.HistogramVec
}

func (s *set) gauge(name, help string, labels ...string) vec {
	v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: s.labels}, labels)
	s.all = append(s.all, v)
	return vec{g: v}
}

// counter makes a counter. One without labels is there from the start, with 0.
func (s *set) counter(name, help string, labels ...string) vec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help, ConstLabels: s.labels}, labels)
	s.all = append(s.all, v)
	if len(labels) == 0 {
		v.WithLabelValues()
	}
	return vec{c: v}
}

func (s *set) seconds(name, help string, labels ...string) vec {
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, ConstLabels: s.labels, Buckets: buckets}, labels)
	s.all = append(s.all, v)
	return vec{h: v}
}

func (v vec) set(x float64, labels ...string) { v.g.WithLabelValues(labels...).Set(x) }

// only makes one value of the only label 1, and drops the others.
func (v vec) only(label string) {
	v.g.Reset()
	v.set(1, label)
}

func (v vec) drop(labels ...string) { v.g.DeleteLabelValues(labels...) }

func (v vec) clear() { v.g.Reset() }

func (v vec) add(x float64, labels ...string) { v.c.WithLabelValues(labels...).Add(x) }

func (v vec) addIf(err error, labels ...string) {
	if err != nil {
		v.add(1, labels...)
	}
}

func (v vec) observe(took time.Duration, labels ...string) {
	v.h.WithLabelValues(labels...).Observe(took.Seconds())
}

// result is the value of a label for an outcome.
func result(err error) string {
	if err != nil {
		return "failed"
	}
	return "ok"
}
