package metrics

import (
	"sync"
	"time"

	"github.com/partigo/parti/types"
	"github.com/prometheus/client_golang/prometheus"
)

// Manager collects what one parti.Manager measures, see parti.WithMetrics. Its methods may be called from any goroutine; they do not block.
//
// The metrics of every process begin with parti_, those of a leader's work with parti_leader_.
type Manager struct {
	// methods that are added to the interface later are not measured until this package knows them
	types.NopMetrics
	set set

	mu   sync.Mutex // guards lead, and orders what the leader's work reports with the end of the term
	lead bool       // this process leads

	state, stateChanges          vec
	heartbeats, heartbeatFailed  vec
	leading, terms               vec
	applied, assigned, commits   vec
	rejected, running            vec
	handlerFailures, overdue     vec
	forced, expired, dropped     vec
	calculator, rebalances       vec
	rebalanceTime, moved         vec
	workers, parked              vec
	strategyFailed, sourceFailed vec
	behind, evicted, damped      vec
	standby                      vec
	labelWorkers, labelParked    vec
	published, publishFailed     vec
	payloads, collected          vec
	collectFailed                vec
}

var (
	_ types.Metrics        = (*Manager)(nil)
	_ prometheus.Collector = (*Manager)(nil)
)

// NewManager returns a collector for a Manager of that group.
func NewManager(group string) *Manager {
	m := &Manager{set: set{labels: prometheus.Labels{"group": group}}}
	s := &m.set
	m.state = s.gauge("parti_state", "1 for the state that the Manager is in.", "state")
	m.stateChanges = s.counter("parti_state_changes_total", "Changes of the Manager's state, by the new one.", "state")
	m.heartbeats = s.seconds("parti_heartbeat_duration_seconds", "Time that attempts to write the heartbeat took.")
	m.heartbeatFailed = s.counter("parti_heartbeat_failures_total", "Heartbeats of which it is not known that they were stored.")
	m.leading = s.gauge("parti_leading", "1 while this process leads its group. The sum over the group is 1, and 0 during an election.")
	m.terms = s.counter("parti_leader_terms_total", "Terms of this process as the leader.")
	m.applied = s.gauge("parti_applied_version", "Version of the commit that was applied last.")
	m.assigned = s.gauge("parti_assigned_partitions", "Partitions that the commit applied last gives to this worker.")
	m.commits = s.counter("parti_commits_applied_total", "Commits that were applied.")
	m.rejected = s.counter("parti_commits_rejected_total", "Attempts at commits that could not be verified, by the check that failed.", "stage")
	m.running = s.gauge("parti_running_partitions", "Partitions that this worker runs.")
	m.handlerFailures = s.counter("parti_handler_failures_total", "Handlers that returned before their partition was taken away.", "reason")
	m.overdue = s.counter("parti_handlers_overdue_total", "Handlers that did not return within DrainTimeout.")
	m.forced = s.counter("parti_handoffs_forced_total", "Partitions started although an earlier owner is not known to have released them.")
	m.expired = s.counter("parti_lease_expirations_total", "Times that this worker fenced itself because its lease had run out.")
	m.dropped = s.counter("parti_changes_dropped_total", "State changes and hooks dropped because somebody was too slow for them.")

	m.calculator = s.gauge("parti_leader_state", "1 for what the leader's calculator is doing.", "state")
	m.rebalances = s.counter("parti_leader_rebalances_total", "Assignments computed, by reason and result.", "reason", "result")
	m.rebalanceTime = s.seconds("parti_leader_rebalance_duration_seconds", "Time that assignments took, from the decision to the commit.")
	m.moved = s.counter("parti_leader_partitions_moved_total", "Partitions that went from one worker to another.", "reason")
	m.workers = s.gauge("parti_leader_live_workers", "Live workers, as the leader sees them.")
	m.parked = s.gauge("parti_leader_parked_partitions", "Partitions of the source that nobody owns.")
	m.strategyFailed = s.counter("parti_leader_strategy_failures_total", "Calls of the strategy whose answer could not be used.")
	m.sourceFailed = s.counter("parti_leader_source_failures_total", "Calls of the source that failed.")
	m.behind = s.gauge("parti_leader_workers_behind", "Workers that heartbeat and do not follow the commit.")
	m.evicted = s.counter("parti_leader_workers_evicted_total", "Stuck workers whose key was deleted.")
	m.damped = s.gauge("parti_leader_workers_held_back", "Workers that are given nothing for now because they come and go or were evicted.")
	m.standby = s.gauge("parti_leader_workers_standing_by", "Workers beyond the limit of the group's size.")
	m.labelWorkers = s.gauge("parti_leader_label_workers", "Live workers that carry a label.", "label")
	m.labelParked = s.gauge("parti_leader_label_parked_partitions", "Partitions with a label that nobody owns.", "label")
	m.published = s.seconds("parti_leader_commit_duration_seconds", "Time that attempts to publish a commit took.")
	m.publishFailed = s.counter("parti_leader_commit_failures_total", "Commits of which it is not known that they were stored.")
	m.payloads = s.counter("parti_leader_payloads_total", "Values that commits refer to, by whether they had to be written.", "outcome")
	m.collected = s.counter("parti_leader_garbage_collected_total", "Values deleted because no commit needs them any more.")
	m.collectFailed = s.counter("parti_leader_garbage_collection_failures_total", "Values that could not be deleted, and are tried again.")
	m.state.set(1, types.StateInit.String())
	m.leading.set(0)
	return m
}

// Describe implements prometheus.Collector.
func (m *Manager) Describe(ch chan<- *prometheus.Desc) { m.set.describe(ch) }

// Collect implements prometheus.Collector.
func (m *Manager) Collect(ch chan<- prometheus.Metric) { m.set.collect(ch) }

// StateChanged implements [types.Metrics].
func (m *Manager) StateChanged(_, to types.State) {
	m.state.only(to.String())
	m.stateChanges.add(1, to.String())
}

// HeartbeatSent implements [types.Metrics].
func (m *Manager) HeartbeatSent(took time.Duration, err error) {
	m.heartbeats.observe(took)
	m.heartbeatFailed.addIf(err)
}

// LeaderChanged implements [types.Metrics].
func (m *Manager) LeaderChanged(leading bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lead = leading
	if leading {
		m.leading.set(1)
		m.terms.add(1)
		return
	}
	m.leading.set(0)
	for _, v := range []vec{m.calculator, m.workers, m.parked, m.behind, m.damped, m.standby, m.labelWorkers, m.labelParked} {
		v.clear()
	}
}

// CommitApplied implements [types.Metrics].
func (m *Manager) CommitApplied(version int64, partitions int) {
	m.applied.set(float64(version))
	m.assigned.set(float64(partitions))
	m.commits.add(1)
}

// CommitRejected implements [types.Metrics].
func (m *Manager) CommitRejected(_ int64, stage string) { m.rejected.add(1, stage) }

// PartitionsRunning implements [types.Metrics].
func (m *Manager) PartitionsRunning(n int) { m.running.set(float64(n)) }

// HandlerFailed implements [types.Metrics].
func (m *Manager) HandlerFailed(_ string, panicked bool) {
	if panicked {
		m.handlerFailures.add(1, "panic")
		return
	}
	m.handlerFailures.add(1, "returned")
}

// HandlerOverdue implements [types.Metrics].
func (m *Manager) HandlerOverdue(string) { m.overdue.add(1) }

// HandoffForced implements [types.Metrics].
func (m *Manager) HandoffForced(string) { m.forced.add(1) }

// LeaseExpired implements [types.Metrics].
func (m *Manager) LeaseExpired() { m.expired.add(1) }

// ChangesDropped implements [types.Metrics].
func (m *Manager) ChangesDropped(n int) { m.dropped.add(float64(n)) }
