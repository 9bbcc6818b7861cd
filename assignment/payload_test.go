package assignment

import (
	"context"
	"testing"
	"time"

	"github.com/partigo/parti/assignment/record"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/kv"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

func TestFetchAndVerifyCommitPayloadReachesEveryStage(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		g := newPubGroup(t, env)
		p, _, _ := g.leadOn(env.Connect("a"))
		state := spread(p.NextVersion(), 1, 2, partitions(6))
		ref := g.publish(p, state).Refs[0]
		c := env.Connect("tool")
		bucket, err := c.JS().KeyValue(t.Context(), kv.ControlBucket("ns"))
		require.NoError(t, err)

		got, err := FetchAndVerifyCommitPayload(t.Context(), bucket, ref)
		require.NoError(t, err)
		require.Equal(t, state.Slices[0].Entries, got.Entries)

		fails := func(ref types.AssignmentPayloadRef, want error) error {
			t.Helper()
			_, err := FetchAndVerifyCommitPayload(t.Context(), bucket, ref)
			require.ErrorIs(t, err, want)
			return err
		}
		missing := ref
		missing.PayloadHash = record.Hash([]byte("nothing"))
		require.ErrorIs(t, fails(missing, ErrCommitPayloadFetch), kv.ErrNotFound)

		other := ref
		other.SetDigest = record.SetDigest(nil)
		fails(other, ErrCommitPayloadDigestMismatch)

		raw := []byte(`{"schema":1,"entries":[{}]}`)
		root, _, err := record.Pack(raw)
		require.NoError(t, err)
		g.overwrite(root.Key, root.Value)
		odd := ref
		odd.PayloadHash = record.Hash(raw)
		fails(odd, ErrCommitPayloadDecode)

		g.overwrite(record.PayloadKey(ref.PayloadHash), root.Value)
		fails(ref, ErrCommitPayloadHashMismatch)
		g.overwrite(record.PayloadKey(ref.PayloadHash), []byte{0x1f, 0x8b, 0})
		fails(ref, ErrCommitPayloadDecompress)
		g.delete(record.PayloadKey(ref.PayloadHash))
		require.ErrorIs(t, fails(ref, ErrCommitPayloadFetch), kv.ErrNotFound)

		c.Gate().Hold(natstest.Both)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = FetchAndVerifyCommitPayload(ctx, bucket, ref)
		require.ErrorIs(t, err, ErrCommitPayloadFetch)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		c.Gate().Heal()
	})
}
