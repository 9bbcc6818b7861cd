package metrics

import (
	"time"

	"github.com/partigo/parti/types"
)

// gauge sets gauges of a leader, unless this process leads no more: the leader's work winds down after the lead has been lost, and reports
// meanwhile.
func (m *Manager) gauge(set func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.lead {
		set()
	}
}

// CalculatorStateChanged implements [types.Metrics].
func (m *Manager) CalculatorStateChanged(_, to types.CalculatorState, _ string) {
	m.gauge(func() { m.calculator.only(to.String()) })
}

// Rebalanced implements [types.Metrics].
func (m *Manager) Rebalanced(reason string, took time.Duration, moved int, err error) {
	m.rebalances.add(1, reason, result(err))
	m.rebalanceTime.observe(took)
	m.moved.add(float64(moved), reason)
}

// WorkersSeen implements [types.Metrics].
func (m *Manager) WorkersSeen(n int) { m.gauge(func() { m.workers.set(float64(n)) }) }

// PartitionsParked implements [types.Metrics].
func (m *Manager) PartitionsParked(n int) { m.gauge(func() { m.parked.set(float64(n)) }) }

// StrategyFailed implements [types.Metrics].
func (m *Manager) StrategyFailed(error) { m.strategyFailed.add(1) }

// SourceFailed implements [types.Metrics].
func (m *Manager) SourceFailed(error) { m.sourceFailed.add(1) }

// WorkersBehind implements [types.Metrics].
func (m *Manager) WorkersBehind(n int) { m.gauge(func() { m.behind.set(float64(n)) }) }

// WorkerEvicted implements [types.Metrics].
func (m *Manager) WorkerEvicted(string) { m.evicted.add(1) }

// WorkersDamped implements [types.Metrics].
func (m *Manager) WorkersDamped(n int) { m.gauge(func() { m.damped.set(float64(n)) }) }

// WorkersStandingBy implements [types.Metrics].
func (m *Manager) WorkersStandingBy(n int) { m.gauge(func() { m.standby.set(float64(n)) }) }

// LabelPool implements [types.Metrics]. A label that nobody carries and that nothing is parked for is not shown.
func (m *Manager) LabelPool(label string, workers, parked int) {
	m.gauge(func() {
		if workers == 0 && parked == 0 {
			m.labelWorkers.drop(label)
			m.labelParked.drop(label)
			return
		}
		m.labelWorkers.set(float64(workers), label)
		m.labelParked.set(float64(parked), label)
	})
}

// CommitPublished implements [types.Metrics].
func (m *Manager) CommitPublished(_ int64, took time.Duration, err error) {
	m.published.observe(took)
	m.publishFailed.addIf(err)
}

// PayloadsWritten implements [types.Metrics].
func (m *Manager) PayloadsWritten(created, adopted int) {
	m.payloads.add(float64(created), "created")
	m.payloads.add(float64(adopted), "adopted")
}

// GarbageCollected implements [types.Metrics].
func (m *Manager) GarbageCollected(deleted, failed int) {
	m.collected.add(float64(deleted))
	m.collectFailed.add(float64(failed))
}
