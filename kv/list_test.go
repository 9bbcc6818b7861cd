package kv_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/kv"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// fill writes n keys <prefix>.<i>, in batches.
func fill(t testing.TB, s *kv.Store, prefix string, n int) {
	t.Helper()
	for done := 0; done < n; {
		size := min(n-done, kv.MaxBatch)
		writes := make([]kv.Write, size)
		for i := range writes {
			writes[i] = kv.Write{Key: fmt.Sprintf("%s.%d", prefix, done+i), Value: []byte(strconv.Itoa(done + i)), Any: true}
		}
		_, _, err := definite(func() ([]uint64, error) { return s.Batch(t.Context(), writes) })
		require.NoError(t, err)
		done += size
	}
}

func TestListEmpty(t *testing.T) {
	env := single(t)
	s := ensure(t, env.Connect("a"), memory()).Control
	for _, filters := range [][]string{nil, {"a.*"}, {"a.*", "b.*"}, {"a.b"}} {
		l, err := s.List(t.Context(), filters...)
		require.NoError(t, err)
		require.NotNil(t, l)
		require.Empty(t, l)
	}
	fill(t, s, "a", 3)
	l, err := s.List(t.Context(), "b.*")
	require.NoError(t, err)
	require.Empty(t, l)
}

func TestListIsComplete(t *testing.T) {
	natstest.Long(t)
	env := single(t)
	c := env.Connect("a")
	s := ensure(t, c, memory()).Control
	const n = 10_000
	fill(t, s, "a", n)
	fill(t, s, "b", 3)
	start := time.Now()
	l, err := s.List(within(t, time.Minute), "a.*")
	require.NoError(t, err)
	t.Logf("%d keys: %v", n, time.Since(start))
	require.Equal(t, n, len(l))
	for i := range n {
		e := l[fmt.Sprintf("a.%d", i)]
		require.Equal(t, strconv.Itoa(i), string(e.Value))
		require.Equal(t, uint64(i+1), e.Revision)
	}
	for want, filters := range map[int][]string{n + 3: nil, 1: {"a.77"}, 4: {"a.77", "b.*"}, 3: {"b.>"}} {
		l, err = s.List(within(t, time.Minute), filters...)
		require.NoError(t, err)
		require.Equal(t, want, len(l))
	}
	_, err = s.List(within(t, time.Minute), "a.*", "a.1")
	require.ErrorIs(t, err, types.ErrPartialListing, "overlapping filters")

	keys, err := s.ListKeys(within(t, time.Minute), "b.*")
	require.NoError(t, err)
	require.Len(t, keys, 3)
	require.Nil(t, keys["b.1"].Value)
	require.Equal(t, uint64(n+2), keys["b.1"].Revision)
	noConsumers(t, env, c, s)
}

// noConsumers waits until the consumers of all listings have ended. A listing waits for a second at most until its own is deleted; one that was made
// too late to be known ends by itself, within half a minute.
func noConsumers(t testing.TB, env *natstest.Env, c *natstest.Client, s *kv.Store) {
	t.Helper()
	env.WaitFor(2*time.Minute, "the end of the consumers left over", func() bool { return consumers(t, c, s) == 0 })
}

func consumers(t testing.TB, c *natstest.Client, s *kv.Store) int {
	t.Helper()
	stream, err := c.JS().Stream(t.Context(), s.Stream())
	require.NoError(t, err)
	return stream.CachedInfo().State.Consumers
}

func TestListHasMarkersAndLargeValues(t *testing.T) {
	bubble(t, func(t *testing.T, env *natstest.Env, c *natstest.Client, b kv.Buckets) {
		ctx, s := t.Context(), b.Control
		_, err := s.Put(ctx, "a.expired", []byte("x"), 0, time.Second)
		require.NoError(t, err)
		rev, err := s.Put(ctx, "a.deleted", []byte("x"), 0, 0)
		require.NoError(t, err)
		_, err = s.Delete(ctx, "a.deleted", rev)
		require.NoError(t, err)
		time.Sleep(2 * time.Second)
		for i := range 12 { // more than is asked for at once
			_, err = s.Put(ctx, fmt.Sprintf("a.big%d", i), make([]byte, 900<<10), 0, 0)
			require.NoError(t, err)
		}
		l, err := s.List(ctx, "a.*")
		require.NoError(t, err)
		require.Equal(t, 14, len(l))
		require.Equal(t, kv.Expire, l["a.expired"].Op)
		require.Equal(t, kv.Delete, l["a.deleted"].Op)
		require.Len(t, l["a.big7"].Value, 900<<10)
		require.Equal(t, kv.Put, l["a.big7"].Op)
		l, err = s.ListKeys(ctx, "a.*")
		require.NoError(t, err)
		require.Equal(t, kv.Expire, l["a.expired"].Op)
		require.Equal(t, kv.Delete, l["a.deleted"].Op)
		require.Equal(t, kv.Put, l["a.big7"].Op)
	})
}

// Keys change, expire and vanish while they are listed: every key that is there all the time must be there.
func TestListUnderChange(t *testing.T) {
	natstest.Long(t)
	env := single(t)
	c := env.Connect("a")
	b := ensure(t, c, memory())
	s := b.Heartbeat
	const n = 300
	fill(t, s, "heartbeat", n)
	var (
		stop  atomic.Bool
		wg    sync.WaitGroup
		floor [n]atomic.Uint64 // revision of each key that is known to be stored
	)
	for w := range 4 {
		ws := ensure(t, env.Connect("w"), memory()).Heartbeat
		wg.Go(func() {
			for i := w; !stop.Load(); i = (i + 4) % n {
				revs, err := ws.Batch(t.Context(), []kv.Write{
					{Key: fmt.Sprintf("heartbeat.%d", i), Value: []byte("x"), Any: true},
					{Key: fmt.Sprintf("gone.%d", i), Any: true},
				})
				if err != nil {
					t.Error(err)
					return
				}
				floor[i].Store(revs[0])
			}
		})
	}
	var vanished atomic.Int64
	wg.Go(func() { // takes keys away that listings have counted already
		for !stop.Load() {
			stream, err := c.JS().Stream(t.Context(), s.Stream())
			if err == nil {
				err = stream.Purge(t.Context(), jetstream.WithPurgeSubject("$KV."+s.Bucket()+".gone.*"))
			}
			if err != nil {
				t.Error(err)
				return
			}
			vanished.Add(1)
		}
	})
	for range 60 {
		var atLeast [n]uint64
		for i := range atLeast {
			atLeast[i] = floor[i].Load()
		}
		l, err := s.List(within(t, time.Minute), "heartbeat.*", "gone.*")
		require.NoError(t, err)
		for i := range n {
			e, ok := l[fmt.Sprintf("heartbeat.%d", i)]
			if !ok || e.Revision < atLeast[i] {
				t.Fatalf("key %d: listed %t at revision %d, known to be stored at %d", i, ok, e.Revision, atLeast[i])
			}
		}
	}
	stop.Store(true)
	wg.Wait()
	t.Logf("%d purges", vanished.Load())
	noConsumers(t, env, c, s)
}

// Keys that expire between being counted and being delivered are never delivered; the listing must neither wait for them nor
// fail.
func TestListWhileKeysExpire(t *testing.T) {
	bubble(t, func(t *testing.T, env *natstest.Env, c *natstest.Client, b kv.Buckets) {
		s := b.Control
		for i := range 50 {
			_, err := s.Put(t.Context(), fmt.Sprintf("a.%d", i), nil, 0, time.Second)
			require.NoError(t, err)
		}
		fill(t, s, "b", 20)
		// Every message takes 0.4 s, so that the keys expire in the midst of the listing.
		c.Gate().Delay(400 * time.Millisecond)
		for range 4 {
			l, err := s.List(t.Context(), "a.*", "b.*")
			require.NoError(t, err)
			require.Equal(t, 70, len(l))
		}
		l, err := s.List(t.Context(), "a.*")
		require.NoError(t, err)
		for _, e := range l {
			require.Equal(t, kv.Expire, e.Op)
		}
	})
}

func TestListCutInTheMidst(t *testing.T) {
	natstest.Long(t)
	env := single(t)
	c := env.Connect("a")
	s := ensure(t, c, memory()).Control
	fill(t, s, "a", 3000)
	partial := 0
	for i := range 20 {
		cut := make(chan struct{})
		go func() {
			time.AfterFunc(time.Duration(i)*200*time.Microsecond, func() { c.Gate().Drop(); close(cut) })
		}()
		l, err := s.List(within(t, 300*time.Millisecond), "a.*")
		<-cut
		if err != nil {
			partial++
			require.ErrorIs(t, err, types.ErrPartialListing)
			require.Nil(t, l)
		} else {
			require.Equal(t, 3000, len(l))
		}
		// The listing may have ended before nats.go notices the cut: it says that it is connected then, and a flush fails.
		env.WaitFor(30*time.Second, "connection", func() bool {
			return c.Conn().Status() == nats.CONNECTED && c.Conn().FlushTimeout(5*time.Second) == nil
		})
	}
	t.Logf("%d of 20 listings were cut", partial)
	require.NotZero(t, partial)
	noConsumers(t, env, c, s)
}

func TestListHonoursItsContext(t *testing.T) {
	bubble(t, func(t *testing.T, env *natstest.Env, c *natstest.Client, b kv.Buckets) {
		fill(t, b.Control, "a", 10)
		c.Gate().Hold(natstest.FromServer)
		start := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(300*time.Millisecond, cancel)
		_, err := b.Control.List(ctx, "a.*")
		require.ErrorIs(t, err, types.ErrPartialListing)
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, 300*time.Millisecond, time.Since(start))
		c.Gate().Heal()
	})
}

func TestListingsLeaveNoConsumers(t *testing.T) {
	env := single(t)
	c := env.Connect("a")
	s := ensure(t, c, memory()).Control
	fill(t, s, "a", 10)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			for range 20 {
				if _, err := s.List(t.Context(), "a.*"); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	noConsumers(t, env, c, s)
}

func BenchmarkList(b *testing.B) {
	for _, n := range []int{1, 50, 1000, 10_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			env := natstest.Single(b)
			s := ensure(b, env.Connect("a"), memory()).Control
			fill(b, s, "a", n)
			for b.Loop() {
				l, err := s.List(b.Context(), "a.*")
				if err != nil || len(l) != n {
					b.Fatal(len(l), err)
				}
			}
		})
	}
}

// A stream whose few keys are rewritten all the time has its few messages far apart.
func BenchmarkListSparse(b *testing.B) {
	env := natstest.Single(b)
	s := ensure(b, env.Connect("a"), memory()).Control
	fill(b, s, "a", 25)
	for range 300 {
		fill(b, s, "b", kv.MaxBatch)
	}
	fill(b, s, "a", 50)
	for b.Loop() {
		if _, err := s.List(b.Context(), "a.*"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPut(b *testing.B) {
	env := natstest.Single(b)
	s := ensure(b, env.Connect("a"), memory()).Control
	var rev uint64
	for b.Loop() {
		var err error
		if rev, err = s.Put(b.Context(), "a.b", []byte("x"), rev, 10*time.Second); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkBatchOf4(b *testing.B) {
	env := natstest.Single(b)
	s := ensure(b, env.Connect("a"), memory()).Control
	for b.Loop() {
		if _, err := s.Batch(b.Context(), []kv.Write{{Key: "a.a", Any: true, TTL: 10 * time.Second}, {Key: "a.b", Any: true}, {Key: "a.c", Any: true}, {Key: "a.d", Any: true}}); err != nil {
			b.Fatal(err)
		}
	}
}
