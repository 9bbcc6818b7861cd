package source

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// replica is a client whose reads of lists may be answered by a replica that lags behind, and whose answers to writes may get lost.
type replica struct {
	jetstream.JetStream

	mu    sync.Mutex
	old   *jetstream.RawStreamMsg // what it still has
	stale int                     // so many reads get that
	lost  func()                  // the next write lands, this happens, and its answer does not arrive
}

// newReplica returns one that does not lag yet. When it does, it has what is stored now.
func newReplica(t testing.TB, c *natstest.Client) *replica {
	t.Helper()
	stream, err := c.JS().Stream(t.Context(), "KV_config")
	require.NoError(t, err)
	old, err := stream.GetLastMsgForSubject(t.Context(), "$KV.config.partitions")
	require.NoError(t, err)
	return &replica{JetStream: c.JS(), old: old}
}

func (r *replica) lag(reads int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stale = reads
}

func (r *replica) PublishMsg(ctx context.Context, m *nats.Msg, opts ...jetstream.PublishOpt) (*jetstream.PubAck, error) {
	ack, err := r.JetStream.PublishMsg(ctx, m, opts...)
	r.mu.Lock()
	lost := r.lost
	r.lost = nil
	r.mu.Unlock()
	if err == nil && lost != nil {
		lost()
		return nil, context.DeadlineExceeded
	}
	return ack, err
}

func (r *replica) Stream(ctx context.Context, name string) (jetstream.Stream, error) {
	s, err := r.JetStream.Stream(ctx, name)
	return replicaStream{s, r}, err
}

type replicaStream struct {
	jetstream.Stream
	r *replica
}

func (s replicaStream) GetLastMsgForSubject(ctx context.Context, subject string) (*jetstream.RawStreamMsg, error) {
	s.r.mu.Lock()
	stale := s.r.stale > 0 && strings.HasSuffix(subject, ".partitions")
	if stale {
		s.r.stale--
	}
	s.r.mu.Unlock()
	if stale {
		return s.r.old, nil
	}
	return s.Stream.GetLastMsgForSubject(ctx, subject)
}

// A read is not older than what made somebody read.
func TestReadsAreNotBehindWhatWasHeard(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, s, other *KVSource){
		"announced": func(t *testing.T, s, other *KVSource) {
			ch, err := s.Watch(t.Context())
			require.NoError(t, err)
			settle(ch, time.Second)
			require.NoError(t, other.Set(t.Context(), part(2)))
			next(t, ch, time.Second)
		},
		"written": func(t *testing.T, s, _ *KVSource) {
			require.NoError(t, s.Set(t.Context(), part(2)))
		},
		"read": func(t *testing.T, s, other *KVSource) {
			require.NoError(t, other.Set(t.Context(), part(2)))
			requireList(t, s, part(2))
		},
	} {
		t.Run(name, func(t *testing.T) {
			natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
				c, other := newKV(t, env)
				require.NoError(t, other.Set(t.Context(), part(1)))
				r := newReplica(t, c)
				s := NewKV(r, "config", "partitions")
				requireList(t, s, part(1))
				change(t, s, other)
				r.lag(currentTries - 1)
				requireList(t, s, part(2))
				require.Zero(t, r.stale)
			})
		})
	}
}

// A lower revision that stays is the bucket's, and the source goes on from there.
func TestReadsOfARecreatedBucket(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		c, s := newKV(t, env)
		hurried := NewKV(c.JS(), "config", "partitions")
		for i := range 5 {
			require.NoError(t, s.Set(t.Context(), part(i)))
		}
		requireList(t, hurried, part(4))
		recreate(t, c)
		require.NoError(t, NewKV(env.Connect("b").JS(), "config", "partitions").Set(t.Context(), part(9)))

		began := time.Now()
		requireList(t, s, part(9))
		require.GreaterOrEqual(t, time.Since(began), 1270*time.Millisecond)
		require.Less(t, time.Since(began), 2*time.Second)
		began = time.Now()
		requireList(t, s, part(9))
		require.Less(t, time.Since(began), time.Second, "once is enough")

		// A deadline that is too short for that is too short once.
		_, err := hurried.ListPartitions(within(t, 100*time.Millisecond))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		got, err := hurried.ListPartitions(within(t, 100*time.Millisecond))
		require.NoError(t, err)
		require.True(t, got[0].Equal(part(9)))
	})
}

func recreate(t testing.TB, c *natstest.Client) {
	t.Helper()
	require.NoError(t, c.JS().DeleteKeyValue(t.Context(), "config"))
	_, err := c.JS().CreateKeyValue(t.Context(), bucketConfig())
	require.NoError(t, err)
}

func weight(w int64) types.Partition { return types.Partition{Keys: []string{"n"}, Weight: w} }

func increment(ps []types.Partition) ([]types.Partition, error) {
	ps[0].Weight++
	return ps, nil
}

// The answer of a write is lost, and whether it landed is looked up where even less is known than it was written over.
func TestKVUnknownOutcomeOnALaggingReplica(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		c, other := newKV(t, env)
		require.NoError(t, other.Set(t.Context(), weight(1)))
		r := newReplica(t, c)
		require.NoError(t, other.Set(t.Context(), weight(10)))
		r.lost = func() { r.lag(3 * currentTries) }
		require.NoError(t, NewKV(r, "config", "partitions").Modify(t.Context(), increment))
		require.Zero(t, r.stale)
		requireList(t, other, weight(11))
	})
}

// Likewise, and the bucket is deleted and made anew meanwhile: the change is made to the list there, or nobody can say whether it landed.
func TestKVUnknownOutcomeInARecreatedBucket(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		c, other := newKV(t, env)
		require.NoError(t, other.Set(t.Context(), weight(1)))
		require.NoError(t, other.Set(t.Context(), weight(2)))
		r := newReplica(t, c)
		r.lost = func() {
			recreate(t, c)
			time.Sleep(time.Second)
			require.NoError(t, NewKV(c.JS(), "config", "partitions").Set(t.Context(), weight(20)))
		}
		s := NewKV(r, "config", "partitions")
		require.NoError(t, s.Modify(within(t, time.Minute), increment))
		requireList(t, s, weight(21))

		r.lost = func() { recreate(t, c) }
		began := time.Now()
		require.ErrorIs(t, s.Modify(within(t, time.Minute), increment), types.ErrOutcomeUnknown)
		require.Less(t, time.Since(began), 10*time.Second)
	})
}
