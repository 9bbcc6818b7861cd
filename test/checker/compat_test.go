package checker_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti/assignment/record"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/kv"
	"github.com/partigo/parti/test/checker"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// What the library's own encoders make, with every field in use, is what the checker expects.
func TestReadsWhatTheLibraryWrites(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		ctx := t.Context()
		js := env.Connect("library").JS()
		buckets, err := kv.EnsureBuckets(ctx, js, kv.BucketConfig{Namespace: "ns", HeartbeatTTL: 15 * time.Second, Replicas: 1,
			Storage: jetstream.MemoryStorage, Logger: nil})
		require.NoError(t, err)
		c := checker.Attach(t, env.Connect("checker").Conn(), "ns")

		const version = 946_684_800_000
		var refs []types.AssignmentPayloadRef
		var ids []string
		for w := range 40 {
			h := types.Holder{Worker: fmt.Sprintf("w%02d", w), Incarnation: fmt.Sprintf("inc-%d", w)}
			var entries []types.AssignmentEntry
			for i := range w {
				p := types.Partition{Keys: []string{"eü", fmt.Sprintf("o<%d&>", i), h.Worker}, Weight: int64(i), Label: "x"}
				entries = append(entries, types.AssignmentEntry{Partition: p, Epoch: version})
				ids = append(ids, p.ID())
			}
			beat(t, js, buckets.Heartbeat, types.Heartbeat{WorkerID: h.Worker, Incarnation: h.Incarnation, SchemaVersion: 1,
				Capabilities: types.CapAckV1, Labels: []string{"x"}, State: types.WorkerActive, ClaimedOver: types.ClaimedNothing, Nonce: h.Worker})
			raw, err := record.EncodePayload(entries)
			require.NoError(t, err)
			put(ctx, t, buckets.Control, raw)
			refs = append(refs, types.AssignmentPayloadRef{WorkerID: h.Worker, Incarnation: h.Incarnation, PayloadHash: record.Hash(raw),
				SetDigest: record.SetDigest(entries), GraceUntil: int64(w % 2)})
		}
		parked, err := record.EncodeParked([]types.ParkedEntry{{AssignmentEntry: types.AssignmentEntry{Partition: types.NewPartition("nobody")},
			Reason: `no worker has "gpu"`}})
		require.NoError(t, err)
		put(ctx, t, buckets.Control, parked)
		index, err := record.BuildIndex(refs)
		require.NoError(t, err)
		require.NotEmpty(t, index.Shards)
		for _, raw := range index.Blobs {
			put(ctx, t, buckets.Control, raw)
		}
		c.ExpectSource(append(ids, "nobody"), 0)

		leader := map[string]any{"worker": "w00", "incarnation": "inc-0", "acquired_at": time.Now(), "commit_version": 0, "nonce": "1"}
		term, err := buckets.Control.Create(ctx, "election.leader", encoded(t, leader), 10*time.Second)
		require.NoError(t, err)
		leader["term"], leader["commit_version"], leader["nonce"] = term, version, "2"
		raw, err := record.EncodeCommit(&types.AssignmentCommit{Schema: 1, Version: version, LeaderRevision: term, TermHolder: refs[0].Holder(),
			BatchDigest: record.BatchDigest(refs, record.Hash(parked)), WorkerCount: len(refs), PartitionCount: len(ids) + 1,
			Shards: index.Shards, Parked: record.Hash(parked), Lifecycle: types.LifecycleColdStart, SourceRevision: 7, SourceRevisionKnown: true,
			PublishedAt: time.Now(), Nonce: "c"})
		require.NoError(t, err)
		_, err = buckets.Control.Batch(ctx, []kv.Write{
			{Key: "election.leader", Value: encoded(t, leader), Expect: term, TTL: 10 * time.Second},
			{Key: record.CommitKey, Value: raw},
			{Key: record.LogKey(version), Value: raw},
		})
		require.NoError(t, err)
		beat(t, js, buckets.Heartbeat, types.Heartbeat{WorkerID: "w07", Incarnation: "inc-7", SchemaVersion: 1, Capabilities: types.CapAckV1,
			State: types.WorkerActive, ClaimedOver: types.ClaimedNothing, Nonce: "n", AppliedVersion: version, LeaderRevision: term,
			AppliedDigest: refs[7].SetDigest, AppliedAt: time.Now(), Unreturned: []types.Run{{Partition: "old", Epoch: 1}}})
		c.Detach()
		require.Empty(t, c.Unjudged())
		require.Len(t, c.Owners(), len(ids))
	})
}

func encoded(t *testing.T, v any) []byte {
	t.Helper()
	raw, err := json.Marshal(v)
	require.NoError(t, err)
	return raw
}

func put(ctx context.Context, t *testing.T, s *kv.Store, raw []byte) {
	t.Helper()
	root, chunks, err := record.Pack(raw)
	require.NoError(t, err)
	require.Empty(t, chunks)
	_, err = s.Create(ctx, root.Key, root.Value, 0)
	if !kv.IsConflict(err) {
		require.NoError(t, err)
	}
}

func beat(t *testing.T, js jetstream.JetStream, s *kv.Store, h types.Heartbeat) {
	t.Helper()
	raw, err := h.Encode()
	require.NoError(t, err)
	last, err := s.Get(t.Context(), "heartbeat."+h.WorkerID)
	if err != nil {
		require.ErrorIs(t, err, kv.ErrNotFound)
	}
	_, err = js.PublishMsg(t.Context(), &nats.Msg{Subject: "$KV.ns-heartbeat.heartbeat." + h.WorkerID, Data: raw},
		jetstream.WithExpectLastSequencePerSubject(last.Revision))
	require.NoError(t, err)
}
