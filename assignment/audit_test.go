package assignment

import (
	"testing"
	"time"

	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// A worker that died, and whose key does not expire, is dead and not behind: it is neither counted nor evicted.
func TestDeadWorkerIsNotBehind(t *testing.T) {
	cfg := &Config{HeartbeatTTL: testTTL}
	cfg.setDefaults()
	r := newRoster(cfg, nil)
	began := time.Now()
	member := func(id string, seen time.Time) Member {
		return Member{Heartbeat: types.Heartbeat{WorkerID: id, Incarnation: "i", State: types.WorkerActive, Capabilities: auditable, AppliedVersion: 1}, Seen: seen}
	}
	var a audit
	for at := time.Duration(0); at <= 2*cfg.ExtendedApplyGracePeriod; at += cfg.AuditInterval {
		now := began.Add(at)
		stuck := a.look(cfg, r, View{Members: map[string]Member{"dead": member("dead", began), "stuck": member("stuck", now)}}, 2, now)
		if at >= cfg.ApplyGracePeriod {
			require.Equal(t, []string{"stuck"}, a.behind, "after %v", at)
		}
		if at >= cfg.ExtendedApplyGracePeriod {
			require.Equal(t, []types.Holder{{Worker: "stuck", Incarnation: "i"}}, stuck, "after %v", at)
		}
	}
}
