package record_test

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/partigo/parti/assignment/record"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// longRefs returns references of workers with IDs of the greatest length.
func longRefs(n int) []types.AssignmentPayloadRef {
	out := refs(n)
	for i := range out {
		out[i].WorkerID = strings.Repeat("w", types.MaxWorkerIDLength-5) + fmt.Sprintf("%05d", i)
		out[i].GraceUntil = 1_760_000_060_000
	}
	return out
}

func TestCommitStaysUnder8KiB(t *testing.T) {
	const limit = 8 << 10
	for _, n := range []int{1, 20, 32, 33, 100, 500, 1_000} {
		c, _ := commit(t, longRefs(n), parked())
		c.TermHolder.Worker = c.TermHolder.Worker + strings.Repeat("x", types.MaxWorkerIDLength-len(c.TermHolder.Worker))
		c.LeaderRevision, c.SourceRevision, c.PreviousRevision = 1<<63, 1<<63, 1<<63
		raw, err := record.EncodeCommit(&c)
		require.NoError(t, err)
		require.Less(t, len(raw), limit, "%d workers", n)
		t.Logf("%d workers: %d bytes, %d shards", n, len(raw), len(c.Shards))
		if n < 1_000 {
			continue
		}
		for len(c.Shards) < 48 { // the worst cut there can be
			s := c.Shards[len(c.Shards)-1]
			s.First = s.First[:len(s.First)-1] + string(s.First[len(s.First)-1]+1)
			c.Shards = append(c.Shards, s)
		}
		raw, err = json.Marshal(c)
		require.NoError(t, err)
		require.Less(t, len(raw), limit)
	}
}

func TestCommitWithoutIndexInlineIsSmall(t *testing.T) {
	c, _ := commit(t, refs(1_000), nil)
	raw, err := record.EncodeCommit(&c)
	require.NoError(t, err)
	require.Less(t, len(raw), 6<<10)
}

func TestDecodeCommitRefuses(t *testing.T) {
	inline, _ := commit(t, refs(3), nil)
	sharded, _ := commit(t, refs(40), nil)
	for name, bad := range map[string]func(c, s *types.AssignmentCommit){
		"no schema":             func(c, _ *types.AssignmentCommit) { c.Schema = 0 },
		"no version":            func(c, _ *types.AssignmentCommit) { c.Version = 0 },
		"negative version":      func(c, _ *types.AssignmentCommit) { c.Version = -1 },
		"version too high":      func(c, _ *types.AssignmentCommit) { c.Version = types.MaxVersion },
		"version far too high":  func(c, _ *types.AssignmentCommit) { c.Version = math.MaxInt64 },
		"no term holder":        func(c, _ *types.AssignmentCommit) { c.TermHolder.Worker = "" },
		"no nonce":              func(c, _ *types.AssignmentCommit) { c.Nonce = "" },
		"digest":                func(c, _ *types.AssignmentCommit) { c.BatchDigest = strings.Repeat("g", 32) },
		"other digest":          func(c, _ *types.AssignmentCommit) { c.BatchDigest = strings.Repeat("0", 32) },
		"parked":                func(c, _ *types.AssignmentCommit) { c.Parked = "x" },
		"partitions":            func(c, _ *types.AssignmentCommit) { c.PartitionCount = -1 },
		"worker count":          func(c, _ *types.AssignmentCommit) { c.WorkerCount = 4 },
		"reference missing":     func(c, _ *types.AssignmentCommit) { c.Refs = c.Refs[1:] },
		"worker ID":             func(c, _ *types.AssignmentCommit) { c.Refs[0].WorkerID = "a.b" },
		"payload hash":          func(c, _ *types.AssignmentCommit) { c.Refs[0].PayloadHash = "x" },
		"set digest":            func(c, _ *types.AssignmentCommit) { c.Refs[0].SetDigest = "x" },
		"grace":                 func(c, _ *types.AssignmentCommit) { c.Refs[0].GraceUntil = -1 },
		"order":                 func(c, _ *types.AssignmentCommit) { c.Refs[0], c.Refs[1] = c.Refs[1], c.Refs[0] },
		"incarnation altered":   func(c, _ *types.AssignmentCommit) { c.Refs[0].Incarnation = "x" },
		"inline and shards":     func(c, s *types.AssignmentCommit) { c.Shards = s.Shards[:1] },
		"shard order":           func(_, s *types.AssignmentCommit) { s.Shards[0], s.Shards[1] = s.Shards[1], s.Shards[0] },
		"shard hash":            func(_, s *types.AssignmentCommit) { s.Shards[0].Hash = "" },
		"shard first":           func(_, s *types.AssignmentCommit) { s.Shards[0].First = "" },
		"too many for shards":   func(_, s *types.AssignmentCommit) { s.WorkerCount = 65 },
		"too few for shards":    func(_, s *types.AssignmentCommit) { s.WorkerCount = 1 },
		"shards dropped":        func(_, s *types.AssignmentCommit) { s.Shards = nil },
		"negative worker count": func(c, _ *types.AssignmentCommit) { c.WorkerCount, c.Refs = -1, nil },
	} {
		t.Run(name, func(t *testing.T) {
			c, s := clone(t, inline), clone(t, sharded)
			bad(&c, &s)
			refused := 0
			for _, x := range []types.AssignmentCommit{c, s} {
				raw, err := json.Marshal(x)
				require.NoError(t, err)
				if _, err = record.DecodeCommit(raw); err != nil {
					refused++
					require.ErrorIs(t, err, types.ErrMalformed)
					_, err = record.EncodeCommit(&x)
					require.ErrorIs(t, err, types.ErrMalformed, "what no reader takes is not written")
				}
			}
			require.Equal(t, 1, refused)
		})
	}
	for _, text := range []string{"", "null", "[]", "{", "{}", `{"schema":"x"}`, "\xff", `{"schema":1,"version":1.5}`} {
		_, err := record.DecodeCommit([]byte(text))
		require.ErrorIs(t, err, types.ErrMalformed, text)
	}
}

func clone(t *testing.T, c types.AssignmentCommit) types.AssignmentCommit {
	t.Helper()
	raw, err := json.Marshal(c)
	require.NoError(t, err)
	var out types.AssignmentCommit
	require.NoError(t, json.Unmarshal(raw, &out))
	return out
}

func TestUnknownFieldsAreIgnored(t *testing.T) {
	insert := func(raw []byte) []byte { // into every object
		return []byte(strings.ReplaceAll(string(raw), "{", `{"later":{"x":[1,{"y":null}]},`))
	}
	c, _ := commit(t, refs(3), parked())
	raw, err := record.EncodeCommit(&c)
	require.NoError(t, err)
	got, err := record.DecodeCommit(insert(raw))
	require.NoError(t, err)
	c.PublishedAt = c.PublishedAt.UTC()
	require.Equal(t, c, got)

	raw, err = record.EncodePayload(entries())
	require.NoError(t, err)
	raw = []byte(strings.ReplaceAll(string(raw), `{"keys"`, `{"later":[],"keys"`))
	p, err := record.DecodePayload([]byte(strings.Replace(string(raw), `{"schema"`, `{"later":{"x":[1]},"schema"`, 1)))
	require.NoError(t, err)
	require.Equal(t, entries(), p.Entries)
	require.Equal(t, record.SetDigest(entries()), record.SetDigest(p.Entries), "they lie outside the digest")

	index, err := record.BuildIndex(refs(40))
	require.NoError(t, err)
	plain, err := record.DecodeShard(index.Blobs[0])
	require.NoError(t, err)
	more, err := record.DecodeShard(insert(index.Blobs[0]))
	require.NoError(t, err)
	require.Equal(t, plain, more)

	raw, err = record.EncodeParked(parked())
	require.NoError(t, err)
	more2, err := record.DecodeParked(insert(raw))
	require.NoError(t, err)
	require.Equal(t, parked(), more2.Entries)
}

func TestHigherSchemaIsRefusedByName(t *testing.T) {
	decoders := map[string]func([]byte) error{
		"commit":      func(b []byte) error { _, err := record.DecodeCommit(b); return err },
		"payload":     func(b []byte) error { _, err := record.DecodePayload(b); return err },
		"parked list": func(b []byte) error { _, err := record.DecodeParked(b); return err },
		"shard":       func(b []byte) error { _, err := record.DecodeShard(b); return err },
	}
	for what, decode := range decoders {
		for _, text := range []string{
			`{"schema":2}`,
			`{"schema":2,"version":"two","entries":{},"refs":{}}`,
			`{"version":"two","entries":7,"refs":"","schema":2}`,
		} {
			err := decode([]byte(text))
			require.ErrorIs(t, err, types.ErrUnsupportedSchema, "%s %s", what, text)
			require.ErrorContains(t, err, what)
			require.ErrorContains(t, err, "schema 2")
			require.NotErrorIs(t, err, types.ErrMalformed)
		}
		for _, text := range []string{`{"schema":0}`, `{"schema":-1}`, `{"entries":[],"refs":[]}`, `{"schema":1e99}`} {
			require.ErrorIs(t, decode([]byte(text)), types.ErrMalformed, "%s %s", what, text)
		}
	}
}

func TestLogKeys(t *testing.T) {
	v, ok := record.ParseLogKey(record.LogKey(1_760_000_000_003))
	require.True(t, ok)
	require.Equal(t, int64(1_760_000_000_003), v)
	for _, key := range []string{record.CommitKey, record.LogPrefix, record.LogPrefix + "x", record.LogPrefix + "-1", record.LogPrefix + "07", "x" + record.LogKey(1)} {
		_, ok := record.ParseLogKey(key)
		require.False(t, ok, key)
	}
}
