package ownership

import (
	"testing"
	"time"

	"github.com/partigo/parti/kv"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// An earlier holder that is a plain worker: it has no incarnation and cannot acknowledge. What releases it is the end of its key, its
// last words, a successor that could claim only over its end, or a HeartbeatTTL in which it does not write.
func TestReleaseOfAPlainWorker(t *testing.T) {
	stamp := func(r *rig) kv.Entry {
		rev := r.put("other", kv.Entry{Value: []byte(time.Now().UTC().Format(time.RFC3339Nano))})
		return kv.Entry{Key: "heartbeat.other", Value: []byte(time.Now().UTC().Format(time.RFC3339Nano)), Revision: rev}
	}
	say := func(value string) func(*rig) {
		return func(r *rig) {
			rev := r.put("other", kv.Entry{Value: []byte(value)})
			r.rt.Heard("other", kv.Entry{Key: "heartbeat.other", Value: []byte(value), Revision: rev})
		}
	}
	for _, c := range []struct {
		name  string
		what  func(*rig)
		beats bool          // it does
		old   bool          // this worker does not, so what it sees may be old
		after time.Duration // until it starts; negative: not within a minute
	}{
		{"lives", func(*rig) {}, true, false, -1},
		{"claims to have applied", say(`{"worker_id":"other","schema_version":1,"applied_version":99}`), true, false, -1},
		{"is silent, and its key does not expire", func(*rig) {}, false, false, testTTL},
		{"is silent, as far as what may be old shows", func(*rig) {}, false, true, -1},
		{"says goodbye", say(`{"worker_id":"other","schema_version":1,"state":"left"}`), false, false, 0},
		{"expires", func(r *rig) {
			rev := r.put("other", kv.Entry{Op: kv.Expire})
			r.rt.Heard("other", kv.Entry{Op: kv.Expire, Revision: rev})
		}, false, false, 0},
		{"was upgraded", func(r *rig) {
			h := other("o2", 0)
			h.ClaimedOver = types.ClaimedExpiry
			r.hears(h)
		}, false, false, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			withRig(t, func(r *rig) {
				stamp(r)
				r.apply(10, entry("a", 10, from("other", "", 10)))
				r.beat()
				require.Empty(t, r.take())
				began := time.Now()
				c.what(r)
				for len(r.take()) == 0 && time.Since(began) < time.Minute {
					time.Sleep(100 * time.Millisecond)
					r.renew(testTTL)
					if time.Since(began)%(testTTL/5) != 0 {
						continue
					}
					if !c.old {
						r.beat()
					}
					if c.beats {
						r.rt.Heard("other", stamp(r))
					}
				}
				took := time.Since(began)
				if c.after < 0 {
					require.GreaterOrEqual(t, took, time.Minute)
					return
				}
				require.GreaterOrEqual(t, took, c.after-recheck)          // it was seen silent before
				require.LessOrEqual(t, took, c.after+2*recheck+testTTL/5) // until the own heartbeat shows it
			}, func(c *Config) { c.HandoffTimeout = -1 })
		})
	}
}
