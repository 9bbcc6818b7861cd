package integration

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti"
	"github.com/partigo/parti/assignment/record"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/kv"
	"github.com/partigo/parti/test/checker"
	"github.com/partigo/parti/test/grouptest"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// Values that no release writes, put into the buckets by somebody else. None of them may make a group spin, restart its handlers over and
// over, or stand still while everybody says that all is well.

// ghostly are the rules that what is written here breaks by itself.
var ghostly = []checker.Rule{
	checker.Unguarded, checker.CommitForm, checker.CommitOrder, checker.CommitPrevious, checker.CommitNonce, checker.CommitLog, checker.TermRenewal,
	checker.LeaderForm, checker.LeaderSeized, checker.LeaderVersion, checker.HeartbeatForm, checker.HeartbeatAhead, checker.HeartbeatBack,
}

// reissuing are those that are broken where the leader must believe that a commit was lost, and the checker knows better.
var reissuing = append([]checker.Rule{checker.EpochKept, checker.FromForeign}, ghostly...)

// poison is a client beside the group that writes into its buckets and counts what goes through them.
type poison struct {
	t              *testing.T
	conn           *nats.Conn
	control, beats jetstream.KeyValue
}

func newPoison(g *grouptest.Group) *poison {
	c := g.Env.Connect("poison")
	control, err := c.JS().KeyValue(g.T.Context(), kv.ControlBucket(grouptest.Namespace))
	require.NoError(g.T, err)
	beats, err := c.JS().KeyValue(g.T.Context(), kv.HeartbeatBucket(grouptest.Namespace))
	require.NoError(g.T, err)
	return &poison{g.T, c.Conn(), control, beats}
}

func (p *poison) put(b jetstream.KeyValue, key, value string) {
	p.t.Helper()
	_, err := b.Put(p.t.Context(), key, []byte(value))
	require.NoError(p.t, err)
}

func (p *poison) get(key string) []byte {
	p.t.Helper()
	e, err := p.control.Get(p.t.Context(), key)
	require.NoError(p.t, err)
	return e.Value()
}

// received returns how many messages the server has got from everybody.
func received(g *grouptest.Group) int64 {
	v, err := g.Env.Server.Raw().Varz(nil)
	require.NoError(g.T, err)
	return v.InMsgs
}

func ghost(applied int64) string {
	return fmt.Sprintf(`{"worker_id":"ghost","incarnation":"g","schema_version":1,"capabilities":3,"state":"left","applied_version":%d,"claimed_over":"nothing","nonce":"n"}`, applied)
}

// A heartbeat that claims a version that there cannot be is no heartbeat. One that claims a possible version that no commit has looks like a lost
// commit, once; one that goes on claiming more brings about fewer and fewer commits.
func TestHeartbeatWithAnAbsurdVersion(t *testing.T) {
	grouptest.Bubble(t, func(g *grouptest.Group) {
		t := g.T
		g.Start(3)
		g.WaitAllRunning(10 * time.Second)
		g.Sleep(20 * time.Second)
		before, _ := g.Checker.LastCommit()
		p := newPoison(g)
		for _, v := range []int64{math.MaxInt64, 1 << 62, types.MaxVersion, -1, math.MinInt64} {
			p.put(p.beats, "heartbeat.ghost", ghost(v))
			g.Sleep(15 * time.Second)
		}
		now, _ := g.Checker.LastCommit()
		require.Equal(t, before.Version, now.Version, "nothing happens")

		commits := 0
		for n := range int64(120) {
			p.put(p.beats, "heartbeat.ghost", ghost(now.Version+(n+1)<<20))
			g.Sleep(time.Second)
			if c, _ := g.Checker.LastCommit(); c.Version != now.Version {
				now, commits = c, commits+1
			}
		}
		t.Logf("%d commits in two minutes", commits)
		require.Positive(t, commits)
		require.LessOrEqual(t, commits, 12)
		require.NoError(t, p.beats.Delete(t.Context(), "heartbeat.ghost"))
		g.WaitAllRunning(2 * time.Minute)
	}, grouptest.Ignoring(reissuing...))
}

// limit stands for the highest version that is possible at the moment.
const limit = 0

func highest(v int64) int64 {
	if v == limit {
		return types.VersionLimit() - 1
	}
	return v
}

// A commit with a version that there cannot be is unreadable: it does not halt the group, and the leader replaces it. One with a version that is
// absurd and possible is followed, and the group goes on from there.
func TestCommitWithAnAbsurdVersion(t *testing.T) {
	natstest.Long(t)
	for _, v := range []int64{math.MaxInt64, 1 << 62, types.MaxVersion, types.MaxVersion - 1, types.MaxVersion/2 - 1, types.MaxVersion/2 - 1<<20, limit} {
		t.Run(fmt.Sprint(v), func(t *testing.T) {
			grouptest.Bubble(t, func(g *grouptest.Group) {
				t := g.T
				g.Start(3)
				g.WaitAllRunning(10 * time.Second)
				p := newPoison(g)
				good := p.get(record.CommitKey)
				c, err := record.DecodeCommit(good)
				require.NoError(t, err)
				p.put(p.control, record.CommitKey, strings.Replace(string(good), fmt.Sprintf(`"version":%d`, c.Version), fmt.Sprintf(`"version":%d`, highest(v)), 1))
				g.WaitFor(40*time.Second, "it is replaced and followed", func() bool {
					now, err := record.DecodeCommit(p.get(record.CommitKey))
					return err == nil && now.Version > c.Version && everybodyReady(g)
				})
				g.WaitAllRunning(time.Minute)
				g.Start(1)
				g.WaitRunningOn(time.Minute, g.Live()...)
			}, grouptest.Ignoring(ghostly...))
		})
	}
}

func everybodyReady(g *grouptest.Group) bool {
	for _, w := range g.Live() {
		if !w.Manager.Status().Ready() {
			return false
		}
	}
	return true
}

// A number in the leader's key that no commit has makes nobody spin, be it possible or not.
func TestLeaderAnnouncesACommitThatIsNone(t *testing.T) {
	natstest.Long(t)
	for _, version := range []int64{math.MaxInt64, 1 << 62, types.MaxVersion - 1, types.MaxVersion/2 - 1, types.MaxVersion/2 - 1<<20, limit} {
		t.Run(fmt.Sprint(version), func(t *testing.T) {
			grouptest.Bubble(t, func(g *grouptest.Group) {
				t := g.T
				g.Start(4)
				g.WaitAllRunning(10 * time.Second)
				g.Sleep(30 * time.Second)
				began := received(g)
				g.Sleep(time.Minute)
				idle := received(g) - began
				p := newPoison(g)
				var key map[string]any
				require.NoError(t, json.Unmarshal(p.get("election.leader"), &key))
				key["commit_version"] = json.Number(fmt.Sprint(highest(version)))
				raw, err := json.Marshal(key)
				require.NoError(t, err)
				p.put(p.control, "election.leader", string(raw))
				g.Sleep(30 * time.Second)
				g.Leader()
				require.True(t, everybodyReady(g), g.Describe())
				began = received(g)
				g.Sleep(time.Minute)
				spent := received(g) - began
				t.Logf("messages in an idle minute: %d, with the wrong number: %d", idle, spent)
				require.Less(t, spent, idle+4*2*60, "less than a read a second and worker")
				g.Start(1)
				g.WaitAllRunning(30 * time.Second)
			}, grouptest.Ignoring(ghostly...))
		})
	}
}

// A commit of a newer schema that comes from nowhere is seen by everybody, and nobody who cannot read it contends for the lead. It is over when
// there is another commit.
func TestCommitOfANewerSchema(t *testing.T) {
	said := &warnings{}
	grouptest.Bubble(t, func(g *grouptest.Group) {
		t := g.T
		g.Start(3)
		g.WaitAllRunning(10 * time.Second)
		g.Sleep(10 * time.Second)
		p := newPoison(g)
		good := p.get(record.CommitKey)
		lines := len(said.lines())
		p.put(p.control, record.CommitKey, `{"schema":2,"version":99}`)
		g.WaitFor(15*time.Second, "everybody is degraded", func() bool {
			for _, w := range g.Live() {
				if s := w.Manager.Status(); !degraded(w) || !strings.Contains(s.Degraded, "the newest commit cannot be read") || !s.Behind || s.Ready() {
					return false
				}
			}
			return true
		})
		g.Sleep(15 * time.Second)
		before, err := p.control.Get(t.Context(), "election.leader")
		if err == nil {
			t.Logf("leader key: %s", before.Value())
		}
		require.ErrorIs(t, err, jetstream.ErrKeyNotFound, "nobody contends")
		g.Sleep(5 * time.Minute)
		_, err = p.control.Get(t.Context(), "election.leader")
		require.ErrorIs(t, err, jetstream.ErrKeyNotFound, "nobody contends")
		require.Less(t, len(said.lines())-lines, 60, "changes are logged, not attempts:\n%s", strings.Join(said.lines()[lines:], "\n"))
		for _, w := range g.Live() {
			require.Contains(t, w.Manager.Status().Degraded, "nobody leads the group")
		}
		require.Zero(t, g.Oracle.Idle(), "what runs goes on")

		p.put(p.control, record.CommitKey, string(good))
		g.WaitFor(30*time.Second, "all is well", func() bool { return everybodyReady(g) })
		g.Leader()
	}, grouptest.Ignoring(ghostly...), grouptest.Manager(parti.WithLogger(said.logger())))
}

// A commit that is right but for one worker's slice, which a newer release wrote, stops everybody from leading after one try each, and everybody
// goes on with what it has. It is over when there is another commit.
func TestPayloadOfANewerSchemaEndsContending(t *testing.T) {
	grouptest.Bubble(t, func(g *grouptest.Group) {
		t := g.T
		g.Start(3)
		g.WaitAllRunning(10 * time.Second)
		g.Sleep(10 * time.Second)
		p := newPoison(g)
		c, err := record.DecodeCommit(p.get(record.CommitKey))
		require.NoError(t, err)
		good := c
		good.Version += 2
		raw := []byte(`{"schema":2,"entries":[]}`)
		root, _, err := record.Pack(raw)
		require.NoError(t, err)
		p.put(p.control, root.Key, string(root.Value))
		c.Version, c.Nonce = c.Version+1, "z"
		c.Refs = append(c.Refs, types.AssignmentPayloadRef{WorkerID: "zz", Incarnation: "z", PayloadHash: record.Hash(raw), SetDigest: record.SetDigest(nil)})
		c.WorkerCount, c.BatchDigest = len(c.Refs), record.BatchDigest(c.Refs, c.Parked)
		bad, err := record.EncodeCommit(&c)
		require.NoError(t, err)
		p.put(p.control, record.CommitKey, string(bad))
		g.WaitFor(time.Second, "it is followed", func() bool { return everybodyReady(g) && g.Worker(0).Manager.Status().AppliedVersion == c.Version })
		g.Leader().Kill() // only who begins to lead reads the slices of others
		g.Sleep(time.Minute)
		terms := 0
		for range 120 {
			g.Sleep(time.Second)
			for _, w := range g.Live() {
				if w.Manager.IsLeader() {
					terms++
				}
			}
		}
		require.Zero(t, terms)
		for _, w := range g.Live() {
			require.Contains(t, w.Manager.Status().Degraded, "nobody leads the group")
			require.ErrorIs(t, w.Manager.Status().LastError, types.ErrUnsupportedSchema)
		}
		again, err := record.EncodeCommit(&good)
		require.NoError(t, err)
		p.put(p.control, record.CommitKey, string(again))
		g.WaitRunningOn(30*time.Second, g.Live()...)
		g.WaitFor(10*time.Second, "all is well", func() bool { return everybodyReady(g) })
	}, grouptest.Ignoring(append([]checker.Rule{checker.BlobForm, checker.UnknownOwner, checker.TermVersion, checker.TermEnded}, reissuing...)...))
}

// A worker that cannot read its slice says so, once, and is not ready; the other follower is. The leader hears from the others of a commit that
// it did not make, finds that it is damaged, and replaces it.
func TestSliceThatIsMissing(t *testing.T) {
	said := &warnings{}
	grouptest.Bubble(t, func(g *grouptest.Group) {
		t := g.T
		g.Start(3)
		g.WaitAllRunning(10 * time.Second)
		g.Sleep(10 * time.Second)
		p := newPoison(g)
		c, err := record.DecodeCommit(p.get(record.CommitKey))
		require.NoError(t, err)
		w := g.Follower()
		n := slices.IndexFunc(c.Refs, func(r types.AssignmentPayloadRef) bool { return r.WorkerID == w.ID() })
		c.Refs[n].PayloadHash = record.Hash([]byte("nowhere"))
		c.Version, c.Nonce, c.BatchDigest = c.Version+1, "z", record.BatchDigest(c.Refs, c.Parked)
		bad, err := record.EncodeCommit(&c)
		require.NoError(t, err)
		lines := len(said.lines())
		p.put(p.control, record.CommitKey, string(bad))
		g.WaitFor(10*time.Second, "it shows", func() bool {
			return strings.Contains(w.Manager.Status().Degraded, "the newest commit cannot be read")
		})
		g.Sleep(time.Second)
		for _, x := range g.Live() {
			s := x.Manager.Status()
			if !s.Leading { // it cannot build on the damaged commit either, and may have tried often enough to say so
				require.Equal(t, x != w, s.Ready(), "%+v", s)
			}
			require.Equal(t, x == w, s.Behind, "%+v", s)
		}
		attempts := 0
		for _, l := range said.lines()[lines:] {
			if strings.HasPrefix(l, "commit not applied") {
				attempts++
			}
		}
		require.Equal(t, 1, attempts, "said once")
		require.Zero(t, g.Oracle.Idle(), "what runs goes on")
		took := g.WaitFor(30*time.Second, "replaced, and all is well", func() bool { return everybodyReady(g) })
		t.Logf("mended after another %v", took)
	}, grouptest.Ignoring(append([]checker.Rule{checker.BlobMissing, checker.TermVersion, checker.TermEnded}, reissuing...)...),
		grouptest.Manager(parti.WithLogger(said.logger())))
}

// A leader's value that nobody renews is replaced in time, whatever lease it claims, and it shows that nobody leads.
func TestLeaderValueThatClaimsAnHour(t *testing.T) {
	d := &diary{}
	grouptest.Bubble(t, func(g *grouptest.Group) {
		t := g.T
		g.Start(3, d.hooks())
		g.WaitAllRunning(10 * time.Second)
		g.Sleep(10 * time.Second)
		require.Zero(t, d.entered())
		p := newPoison(g)
		p.put(p.control, "election.leader", `{"worker":"z","incarnation":"z","lease_seconds":3600,"nonce":"z","commit_version":1}`)
		took := g.WaitFor(45*time.Second, "it shows", func() bool {
			for _, w := range g.Live() {
				if !strings.Contains(w.Manager.Status().Degraded, "nobody leads the group") {
					return false
				}
			}
			return true
		})
		t.Logf("degraded after %v", took)
		took += g.WaitFor(45*time.Second, "a leader", func() bool {
			for _, w := range g.Live() {
				if w.Manager.IsLeader() {
					return true
				}
			}
			return false
		})
		t.Logf("a leader after %v", took)
		g.WaitFor(time.Second, "over", func() bool { return everybodyReady(g) })
		g.Start(1)
		g.WaitAllRunning(30 * time.Second)
	}, grouptest.Ignoring(ghostly...))
}

// A leader that crashes or goes is a normal change: nobody is degraded.
func TestChangeOfLeaderDegradesNobody(t *testing.T) {
	d := &diary{}
	grouptest.Bubble(t, func(g *grouptest.Group) {
		g.Start(5, d.hooks())
		g.WaitAllRunning(10 * time.Second)
		for range 3 {
			g.Leader().Kill()
			g.Sleep(30 * time.Second)
		}
		g.Leader().Stop()
		g.Sleep(30 * time.Second)
		d.mu.Lock()
		defer d.mu.Unlock()
		for _, c := range d.changes {
			require.NotContains(g.T, c.Reason, "nobody leads")
		}
	})
}
