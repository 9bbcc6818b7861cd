package parti

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// full is a Status of which every field says something.
func full(t *testing.T) Status {
	t.Helper()
	at := time.Date(2026, 1, 2, 3, 4, 5, 6_000_000, time.UTC)
	s := Status{
		State: StateDegraded, WorkerID: "pod-3", Incarnation: "i", Role: RoleWorker, Leader: "pod-1", Leading: true, LeaseLeft: 12_345 * time.Millisecond,
		AppliedVersion: 7, Behind: true, Assigned: 6, Running: 1, Waiting: 2, Draining: 3, Lost: 7, Drained: true, Parked: 4,
		WorkersBehind: []string{"a"}, WorkersDamped: []string{"b"}, WorkersStandingBy: []string{"c"}, StrategyFailures: 5,
		Overdue: []string{"p"}, Degraded: "no connection to NATS", DegradedSince: at, LastError: errors.New("it broke"), LastErrorAt: at,
	}
	for v, i := reflect.ValueOf(s), 0; i < v.NumField(); i++ {
		require.False(t, v.Field(i).IsZero(), "%s is not set in this test", v.Type().Field(i).Name)
	}
	return s
}

func TestStatusAsJSON(t *testing.T) {
	s := full(t)
	data, err := json.Marshal(s)
	require.NoError(t, err)
	require.JSONEq(t, `{
		"state": "degraded", "ready": false, "worker_id": "pod-3", "incarnation": "i", "role": "worker", "leader": "pod-1", "leading": true,
		"lease_left": "12.345s", "applied_version": 7, "behind": true, "assigned": 6, "running": 1, "waiting": 2, "draining": 3, "lost": 7, "drained": true, "parked": 4,
		"workers_behind": ["a"], "workers_damped": ["b"], "workers_standing_by": ["c"], "strategy_failures": 5, "overdue": ["p"],
		"degraded": "no connection to NATS", "degraded_since": "2026-01-02T03:04:05.006Z",
		"last_error": "it broke", "last_error_at": "2026-01-02T03:04:05.006Z"
	}`, string(data))
	var back Status
	require.NoError(t, json.Unmarshal(data, &back))
	require.EqualError(t, back.LastError, "it broke")
	back.LastError = s.LastError
	require.Equal(t, s, back)

	data, err = json.Marshal(&Status{State: StateStable, Role: RoleFollower})
	require.NoError(t, err)
	require.JSONEq(t, `{
		"state": "stable", "ready": true, "worker_id": "", "role": "follower", "leading": false, "lease_left": "0s", "applied_version": 0,
		"behind": false, "assigned": 0, "running": 0, "waiting": 0, "draining": 0, "lost": 0, "drained": false, "parked": 0
	}`, string(data))
	require.NoError(t, json.Unmarshal(data, &back))
	require.Equal(t, Status{State: StateStable, Role: RoleFollower}, back, "nothing of what was there before is left")

	require.ErrorIs(t, json.Unmarshal([]byte(`{"lease_left": "soon"}`), &back), ErrMalformed)
	require.ErrorIs(t, json.Unmarshal([]byte(`{"state": "tired"}`), &back), ErrMalformed)
}

func TestValuesAsJSON(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for want, v := range map[string]any{
		`{"from":"stable","to":"degraded","at":"2026-01-02T03:04:05Z","reason":"r"}`: StateChange{From: StateStable, To: StateDegraded, At: at, Reason: "r"},
		`{"level":"warn","since":"2026-01-02T03:04:05Z","reason":"r"}`:               Alert{Level: AlertWarn, Since: at, Reason: "r"},
		`{"term":3,"reason":"parti: stopped"}`:                                       Leadership{Term: 3, Reason: errors.New("parti: stopped")},
		`{"term":4}`:                                                                 Leadership{Term: 4},
		`{"term":3,"generation":9,"reason":"join","moved":2,"took":"1.5s","error":"late"}`: &Rebalance{Term: 3, Generation: 9, Reason: "join",
			Moved: 2, Took: 1500 * time.Millisecond, Err: errors.New("late")},
		`{"term":3,"generation":9,"reason":"join","moved":0,"took":"0s"}`:             Rebalance{Term: 3, Generation: 9, Reason: "join"},
		`{"key":"control.x","state":"done","by":"pod-1","at":"2026-01-02T03:04:05Z"}`: ControlAnswer{Key: "control.x", State: ControlDone, By: "pod-1", At: at},
		`{"id":"p","epoch":5,"state":"waiting","since":"2026-01-02T03:04:05Z","waiting_for":[{"worker":"w","incarnation":"i"}]}`: types.PartitionStatus{
			ID: "p", Epoch: 5, State: types.OwnershipWaiting, Since: at, WaitingFor: []types.Holder{{Worker: "w", Incarnation: "i"}}},
		`{"version":2,"leader_revision":1,"lifecycle":"l","partitions":[{"partition":{"keys":["a"]},"epoch":2}]}`: Assignment{Version: 2, LeaderRevision: 1,
			Lifecycle: "l", Partitions: []types.AssignedPartition{{Partition: types.NewPartition("a"), Epoch: 2}}},
		`{"partition":{"keys":["a"]},"epoch":2,"holder":{"worker":"w","incarnation":"i"}}`: Ownership{Partition: types.NewPartition("a"), Epoch: 2,
			Holder: types.Holder{Worker: "w", Incarnation: "i"}},
	} {
		data, err := json.Marshal(v)
		require.NoError(t, err)
		require.Equal(t, want, string(data))
	}
}

// The states are names, the cause is its text, and what does not apply is left out.
func TestOwnershipChangeAsJSON(t *testing.T) {
	at, me := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), types.Holder{Worker: "w", Incarnation: "i"}
	o := Ownership{Partition: types.NewPartition("a"), Epoch: 2, Holder: me}
	const owner = `"partition":{"keys":["a"]},"epoch":2,"holder":{"worker":"w","incarnation":"i"}`
	for want, c := range map[string]OwnershipChange{
		`"from":"released","to":"assigned","at":"2026-01-02T03:04:05Z"`: {From: types.OwnershipReleased, At: at},
		`"from":"waiting","to":"running","at":"2026-01-02T03:04:05Z","forced":true,"waiting_for":[{"worker":"x","incarnation":"y"}]`: {
			From: types.OwnershipWaiting, To: types.OwnershipRunning, At: at, Forced: true, WaitingFor: []types.Holder{{Worker: "x", Incarnation: "y"}}},
		`"from":"running","to":"lost","at":"2026-01-02T03:04:05Z","cause":"parti: lease expired"`: {
			From: types.OwnershipRunning, To: types.OwnershipLost, At: at, Cause: ErrLeaseExpired},
	} {
		c.Ownership = o
		data, err := json.Marshal(c)
		require.NoError(t, err)
		require.JSONEq(t, "{"+owner+","+want+"}", string(data))
	}
}

// What a hook sent to another host can be read there.
func TestAlertLevelIsReadBack(t *testing.T) {
	for level := AlertOver; level <= AlertCritical; level++ {
		want := Alert{Level: level, Since: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Reason: "r"}
		data, err := json.Marshal(want)
		require.NoError(t, err)
		var got Alert
		require.NoError(t, json.Unmarshal(data, &got))
		require.Equal(t, want, got)
	}
	got := AlertWarn
	for _, bad := range []string{`""`, `"Warn"`, `"critical "`, `"panic"`, `1`} {
		require.Error(t, json.Unmarshal([]byte(bad), &got), bad)
	}
	require.ErrorIs(t, got.UnmarshalText([]byte("panic")), ErrMalformed)
	require.Equal(t, AlertWarn, got, "what cannot be read changes nothing")
}

// A structured logger writes names, not numbers.
func TestStatesInLogs(t *testing.T) {
	for name, h := range map[string]func(*bytes.Buffer) slog.Handler{
		"json": func(b *bytes.Buffer) slog.Handler { return slog.NewJSONHandler(b, nil) },
		"text": func(b *bytes.Buffer) slog.Handler { return slog.NewTextHandler(b, nil) },
	} {
		var b bytes.Buffer
		slog.New(h(&b)).Info("state", "from", StateJoining, "to", StateWaiting, "level", AlertCritical, "status", Status{LastError: errors.New("it broke")})
		for _, s := range []string{"joining", "waiting", "critical"} {
			require.Contains(t, b.String(), s, name)
		}
		require.True(t, name == "text" || strings.Contains(b.String(), `"last_error":"it broke"`), b.String())
	}
}
