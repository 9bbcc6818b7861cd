package election

import (
	"log/slog"
	"testing"
	"time"
	"unsafe"

	"github.com/partigo/parti/kv"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

func TestLeaseMustBeWholeSeconds(t *testing.T) {
	for _, bad := range []time.Duration{-time.Second, 0, 999 * time.Millisecond, 1500 * time.Millisecond, 10*time.Second + 1} {
		_, err := newTiming(bad, time.Second)
		require.ErrorIs(t, err, types.ErrInvalidConfig, "%v", bad)
		require.ErrorContains(t, err, "whole seconds: use ")
	}
	_, err := newTiming(2*time.Hour, time.Second)
	require.ErrorIs(t, err, types.ErrInvalidConfig)
	for _, bad := range []time.Duration{0, -1} {
		_, err := newTiming(time.Second, bad)
		require.ErrorIs(t, err, types.ErrInvalidConfig)
	}
	_, err = New(Config{Lease: time.Second, RequestTimeout: time.Second})
	require.ErrorIs(t, err, types.ErrInvalidConfig)
	require.ErrorContains(t, err, "Store")
	tm, err := newTiming(time.Second, 5*time.Second)
	require.NoError(t, err)
	require.Equal(t, time.Second/3, tm.request, "an answer is never awaited until there is no time for another attempt")
}

// A term is never trusted when the server may have ended the key, if clocks run at rates within 2 % of real time; and a
// leader has the time for a second attempt.
func TestTrustEndsBeforeTheKeyDoes(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		tm, err := newTiming(time.Duration(rapid.IntRange(1, 3600).Draw(rt, "lease"))*time.Second,
			time.Duration(rapid.Int64Range(1, int64(time.Hour)).Draw(rt, "request")))
		require.NoError(rt, err)
		slow := 1 - rapid.Float64Range(0, 0.02).Draw(rt, "own clock slow by")
		fast := 1 + rapid.Float64Range(0, 0.02).Draw(rt, "server's clock fast by")
		delay := time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(rt, "time to the server"))

		sent := time.Now()
		trusted := tm.trustedUntil(sent).Sub(sent)
		realTrusted := time.Duration(float64(trusted) / slow)
		realKept := delay + time.Duration(float64(tm.lease)/fast)
		require.Less(rt, realTrusted, realKept)
		require.Greater(rt, trusted, tm.renewAt(sent).Sub(sent)+tm.request)

		now := sent.Add(time.Duration(rapid.Int64Range(0, int64(trusted)).Draw(rt, "elapsed")))
		until := tm.callUntil(now, tm.trustedUntil(sent))
		require.False(rt, until.After(tm.trustedUntil(sent)))
		require.LessOrEqual(rt, until.Sub(now), tm.request)

		// Whoever saw the write cannot replace it before the writer's trust is over.
		seen := sent.Add(delay)
		require.Greater(rt, time.Duration(float64(abandonedAt(seen, tm.lease).Sub(seen))/fast)+delay, realTrusted)
		require.True(rt, silentAt(seen, tm.lease).Before(abandonedAt(seen, tm.lease)))
	})
}

// jump returns t as time.Now returns it after the wall clock was set, which leaves the monotonic reading alone.
func jump(t time.Time, seconds int64) time.Time {
	wall := (*uint64)(unsafe.Pointer(&t)) // the layout of time.Time with a monotonic reading: 33 bits of wall seconds above 30 bits
	*wall += uint64(seconds) << 30
	return t
}

func TestWallClockJumpsDoNotMatter(t *testing.T) {
	tm, err := newTiming(lease, requestTimeout)
	require.NoError(t, err)
	sent := time.Now()
	for _, seconds := range []int64{3600, -3600} {
		now := jump(sent.Add(time.Second), seconds)
		require.Equal(t, time.Duration(seconds+1)*time.Second, now.Round(0).Sub(sent.Round(0)), "the wall clock has jumped")
		require.Equal(t, lease-tm.margin()-time.Second, tm.trustedUntil(sent).Sub(now))
		require.True(t, now.Before(tm.trustedUntil(sent)))
		require.False(t, jump(tm.trustedUntil(sent), seconds).Before(tm.trustedUntil(sent)))
		require.Equal(t, requestTimeout, tm.callUntil(now, tm.trustedUntil(sent)).Sub(now))
		require.Equal(t, lease+markerDelay-time.Second, silentAt(sent, lease).Sub(now))
	}
}

func TestDecodeRefusesWhatNoLeaderWrote(t *testing.T) {
	good := `{"worker":"w","incarnation":"i","lease_seconds":10,"term":3,"commit_version":7,"nonce":"n","added_later":true}`
	info, err := DecodeInfo(kv.Entry{Key: Key, Value: []byte(good), Revision: 5})
	require.NoError(t, err)
	require.Equal(t, Info{Holder: types.Holder{Worker: "w", Incarnation: "i"}, Revision: 3, CommitVersion: 7}, info)
	first, err := DecodeInfo(kv.Entry{Key: Key, Value: []byte(`{"worker":"w","incarnation":"i","lease_seconds":10,"nonce":"n"}`), Revision: 5})
	require.NoError(t, err)
	require.EqualValues(t, 5, first.Revision, "the write that acquires the key cannot name its term")
	for _, bad := range []string{
		"", "{}", "garbage", "null", "[]", `"x"`,
		`{"worker":"w","incarnation":"i"}`,
		`{"worker":"w","incarnation":"i","lease_seconds":-1,"nonce":"n"}`,
		`{"worker":"w","incarnation":"i","lease_seconds":3601,"nonce":"n"}`,
		`{"worker":"w","incarnation":"i","lease_seconds":10,"term":6,"nonce":"n"}`,
		`{"worker":"w","incarnation":"i","lease_seconds":10,"commit_version":-1,"nonce":"n"}`,
		`{"worker":"w","incarnation":"i","lease_seconds":10,"commit_version":4503599627370496,"nonce":"n"}`,
		`{"worker":"w","incarnation":"i","lease_seconds":10,"commit_version":9223372036854775807,"nonce":"n"}`,
	} {
		_, err := DecodeInfo(kv.Entry{Key: Key, Value: []byte(bad), Revision: 5})
		require.ErrorIs(t, err, types.ErrMalformed, bad)
	}
	_, err = DecodeInfo(kv.Entry{Key: Key, Op: kv.Expire, Revision: 5})
	require.ErrorIs(t, err, types.ErrMalformed)
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"worker":"w","incarnation":"i","lease_seconds":10,"nonce":"n"}`), uint64(3))
	f.Add([]byte(`{"worker":"w","incarnation":"i","lease_seconds":3600,"commit_version":9223372036854775807,"nonce":"n"}`), uint64(3))
	f.Add([]byte(`{"worker":"w","incarnation":"i","lease_seconds":3600,"commit_version":4503599627370495,"nonce":"n"}`), uint64(3))
	f.Fuzz(func(t *testing.T, value []byte, revision uint64) {
		var s sighting
		s.observe(kv.Entry{Key: Key, Value: value, Revision: revision}, true, time.Now(), lease)
		require.NotEqual(t, s.garbage, s.led())
		require.Positive(t, s.lease(lease))
		require.LessOrEqual(t, s.lease(lease), mostLeases*lease)
		require.True(t, s.record.CommitVersion == 0 || types.ValidVersion(s.record.CommitVersion))
	})
}

func TestSightingIgnoresOlderUntilSilent(t *testing.T) {
	value := func(worker string) []byte {
		return []byte(`{"worker":"` + worker + `","incarnation":"i","lease_seconds":10,"nonce":"n"}`)
	}
	var s sighting
	now := time.Now()
	_, ok := s.info()
	require.False(t, ok)
	require.True(t, s.observe(kv.Entry{Value: value("a"), Revision: 100}, true, now, lease))
	require.False(t, s.observe(kv.Entry{Value: value("b"), Revision: 90}, true, now.Add(lease), lease), "a stale read")
	require.False(t, s.observe(kv.Entry{Value: value("a"), Revision: 100}, true, now.Add(lease), lease), "no news, and not heard again")
	require.Equal(t, now, s.heard)
	later := now.Add(lease + markerDelay)
	require.True(t, s.observe(kv.Entry{Value: value("b"), Revision: 3}, true, later, lease), "the bucket was recreated")
	info, ok := s.info()
	require.True(t, ok)
	require.Equal(t, Info{Holder: types.Holder{Worker: "b", Incarnation: "i"}, Revision: 3, SeenAt: later}, info)
	require.True(t, s.observe(kv.Entry{Op: kv.Expire, Revision: 4}, true, later, lease))
	_, ok = s.info()
	require.False(t, ok)

	require.True(t, s.observe(kv.Entry{Value: []byte(`{"worker":"w","incarnation":"i","nonce":"n"}`), Revision: 5}, true, later, lease))
	require.Equal(t, lease, s.lease(lease), "a lease that is not told is one's own")

	s.wrote(6, &record{Holder: types.Holder{Worker: "c", Incarnation: "i"}, LeaseSeconds: 10}, later.Add(time.Second))
	require.Equal(t, later, s.heard, "an own write is not heard")
	require.False(t, s.observe(kv.Entry{Value: value("c"), Revision: 6}, true, later.Add(2*time.Second), lease))
	require.Equal(t, later.Add(2*time.Second), s.heard, "its echo is")
}
