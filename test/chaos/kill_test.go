package chaos

import (
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// claim is the first heartbeat of an incarnation.
type claim struct {
	over  types.ClaimedOver // as it says
	after time.Duration     // how long nobody had renewed the key, on the server's clock
}

// claims are those of one worker ID, as the server stored them.
type claims struct {
	mu     sync.Mutex // guards what follows
	all    []claim
	holder string    // the incarnation that wrote the key last
	at     time.Time // of that write
}

// followClaims begins to listen. It is to be called before a worker starts.
func followClaims(t *testing.T, w *witness, id string) *claims {
	t.Helper()
	c := &claims{}
	conn := w.env.Connect("claims").Conn()
	_, err := conn.Subscribe("_PARTI.chaos.live.heartbeat."+id, c.hear)
	require.NoError(t, err)
	require.NoError(t, conn.Flush())
	return c
}

func (c *claims) hear(m *nats.Msg) {
	var h types.Heartbeat
	at, err := time.Parse(time.RFC3339Nano, m.Header.Get("Nats-Time-Stamp"))
	if err != nil || json.Unmarshal(m.Data, &h) != nil {
		return // nobody wrote it: the server's marker
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if h.Incarnation != c.holder {
		c.all = append(c.all, claim{h.ClaimedOver, at.Sub(c.at)})
	}
	c.holder, c.at = h.Incarnation, at
}

// foreign returns the claims of new processes.
func (c *claims) foreign() []claim {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(c.all), func(x claim) bool { return x.over == types.ClaimedOwn })
}

// writtenBy returns a condition that holds when every partition was written last by one of these workers, and each of them has some.
func writtenBy(workers ...string) func(map[string]write) bool {
	return func(last map[string]write) bool {
		if len(last) < partitions {
			return false
		}
		seen := map[string]bool{}
		for _, w := range workers {
			seen[w] = false
		}
		for _, l := range last {
			if _, ok := seen[l.worker]; !ok {
				return false
			}
			seen[l.worker] = true
		}
		for _, has := range seen {
			if !has {
				return false
			}
		}
		return true
	}
}

// Rows 20 and 34 with real processes: kill -9 is repaired when the TTL has passed; a process that is started at once with the same given
// ID waits for that too, and takes over as a new incarnation.
func TestKill(t *testing.T) {
	w := newWitness(t)
	claims := followClaims(t, w, "pod-3")
	for _, id := range []string{"pod-0", "pod-1", "pod-2"} {
		start(t, w, id)
	}
	victim := start(t, w, "pod-3")
	w.waitFor(patience, "all four write", writtenBy("pod-0", "pod-1", "pod-2", "pod-3"))

	victim.kill()
	began, before, claimed := time.Now(), w.highestEpoch(), len(claims.foreign())
	again := start(t, w, "pod-3")
	t.Logf("the same ID joins again %v after kill -9 (TTL %v)", time.Since(began).Round(time.Millisecond), ttl)
	w.env.WaitFor(patience, "its claim is heard", func() bool { return len(claims.foreign()) > claimed })
	claim := claims.foreign()[claimed]
	require.Equal(t, types.ClaimedExpiry, claim.over, "it waits for the expiry, the server's or its own")
	const drift = 20 * time.Millisecond // between two clocks in one TTL
	require.GreaterOrEqual(t, claim.after, ttl-drift, "which is no sooner than the end of the victim's lease")
	w.waitFor(patience, "it writes again, under a new epoch", func(last map[string]write) bool {
		return slices.ContainsFunc(slices.Collect(maps.Values(last)), func(l write) bool { return l.worker == "pod-3" && l.epoch > before })
	})
	w.waitFor(patience, "all four write again", writtenBy("pod-0", "pod-1", "pod-2", "pod-3"))

	again.kill()
	took := w.waitFor(patience, "the others have taken over", writtenBy("pod-0", "pod-1", "pod-2"))
	t.Logf("its partitions are written by others %v after kill -9", took.Round(time.Millisecond))
}
