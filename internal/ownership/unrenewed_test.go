package ownership

import (
	"testing"
	"time"

	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// A holder whose key stays as it is, because it was written without a TTL, or because the server's clock was set back: its lease has run out when
// the key was not renewed for one HeartbeatTTL. That counts if it is shown by an observation that cannot be older.
func TestReleaseOfAKeyThatIsNotRenewed(t *testing.T) {
	const beat = testTTL / 5
	for _, c := range []struct {
		name   string
		renews func(at time.Duration) bool // the holder does, then
		beats  func(at time.Duration) bool // this worker does, then
		after  time.Duration               // until it starts; negative: not within two minutes
	}{
		{"never again", nil, func(time.Duration) bool { return true }, testTTL},
		{"lives", func(time.Duration) bool { return true }, func(time.Duration) bool { return true }, -1},
		{"dies in the end", func(at time.Duration) bool { return at < 30*time.Second }, func(time.Duration) bool { return true }, 30*time.Second - beat + testTTL},
		{"lives, and misses one beat less than its lease lasts", func(at time.Duration) bool { return at%(4*beat) == 0 }, func(time.Duration) bool { return true }, -1},
		{"what is seen may be old", nil, func(time.Duration) bool { return false }, -1},
		{"what is seen may be old for a while", nil, func(at time.Duration) bool { return at > 40*time.Second }, 40 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			withRig(t, func(r *rig) {
				h := other("o1", 9)
				h.ClaimedOver = types.ClaimedExpiry // which says of earlier holders that they have ended, not of this one
				r.set(h)
				r.apply(10, entry("a", 10, from("other", "o1", 10)))
				r.beat()
				require.Empty(t, r.take())
				took := time.Duration(0)
				for began := time.Now(); len(r.take()) == 0 && took < 2*time.Minute; took = time.Since(began) {
					time.Sleep(beat)
					r.renew(testTTL)
					at := time.Since(began)
					if c.renews != nil && c.renews(at) {
						r.hears(h)
					}
					if c.beats(at) {
						r.beat()
					}
				}
				if c.after < 0 {
					require.GreaterOrEqual(t, took, 2*time.Minute)
					return
				}
				require.GreaterOrEqual(t, took, c.after)
				require.LessOrEqual(t, took, c.after+3*recheck+beat)
			}, func(c *Config) { c.HandoffTimeout = -1 })
		})
	}
}
