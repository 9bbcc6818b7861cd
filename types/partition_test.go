package types_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestPartitionID(t *testing.T) {
	for _, c := range []struct {
		keys []string
		id   string
	}{
		{[]string{"17"}, "17"},
		{[]string{"eu", "orders", "17"}, "eu.orders.17"},
		{[]string{"a-b_c/d"}, "a-b_c/d"},
		{[]string{"a.b"}, "a=2Eb"},
		{[]string{"a=2Eb"}, "a=3D2Eb"},
		{[]string{"zürich"}, "z=C3=BCrich"},
		{[]string{"a b", "*"}, "a=20b.=2A"},
		{[]string{""}, "="},
		{[]string{"", ""}, "=.="},
		{nil, ""},
	} {
		p := types.NewPartition(c.keys...)
		require.Equal(t, c.id, p.ID())
		require.Equal(t, c.id, p.String())
	}
	require.Equal(t, "eu.zürich", types.NewPartition("eu", "zürich").Subject(), "the subject is not escaped")
}

// anyKeys draws key lists in which the characters that matter are frequent, so that look-alikes come up.
func anyKeys() *rapid.Generator[[]string] {
	key := rapid.OneOf(
		rapid.StringOfN(rapid.RuneFrom([]rune("ab.=2EC\x00/ü*> ")), 0, 4, -1),
		rapid.String(),
		rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 3), func(b []byte) string { return string(b) }),
	)
	return rapid.SliceOfN(key, 0, 4)
}

func TestDifferentKeysHaveDifferentIDs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seen := map[string]string{}
		for _, keys := range rapid.SliceOfN(anyKeys(), 2, 200).Draw(t, "lists") {
			id, list := types.NewPartition(keys...).ID(), fmt.Sprintf("%q", keys)
			if other, ok := seen[id]; ok {
				require.Equal(t, other, list, "both have ID %q", id)
			}
			seen[id] = list
		}
	})
}

// What NATS accepts as a key of a KV bucket.
var validKey = regexp.MustCompile(`^[-/_=.a-zA-Z0-9]+$`)

func requireUsable(t require.TestingT, p types.Partition) {
	id := p.ID()
	require.Regexp(t, validKey, id)
	require.False(t, strings.HasPrefix(id, ".") || strings.HasSuffix(id, ".") || strings.Contains(id, ".."))
	require.LessOrEqual(t, len(id), types.MaxPartitionIDLength)
	tokens := strings.Split(p.Subject(), ".")
	require.Equal(t, p.Keys, tokens, "each key is one token of the subject")
	for _, token := range tokens {
		require.NotEmpty(t, token)
		require.False(t, strings.ContainsFunc(token, func(r rune) bool { return unicode.IsSpace(r) || r == '*' || r == '>' || r == 0 }))
	}
}

func TestValidPartitionIsAKeyAndASubject(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		if p := types.NewPartition(anyKeys().Draw(t, "keys")...); p.Validate() == nil {
			requireUsable(t, p)
		}
	})
}

func FuzzPartition(f *testing.F) {
	f.Add("eu", "17", int64(0), "x")
	f.Add("a.b", "=2E", int64(-1), "")
	f.Add("\xff", "\u00a0", int64(1), " ")
	f.Fuzz(func(t *testing.T, a, b string, weight int64, label string) {
		p := types.Partition{Keys: []string{a, b}, Weight: weight, Label: label}
		if err := p.Validate(); err != nil {
			require.ErrorIs(t, err, types.ErrInvalidPartition)
			require.ErrorIs(t, types.ValidatePartitions([]types.Partition{p}), types.ErrInvalidPartition)
		} else {
			requireUsable(t, p)
			require.Positive(t, p.Cost())
		}
		if joined := types.NewPartition(a + "." + b); joined.ID() == p.ID() {
			t.Fatalf("%q and %q have one ID", p.Keys, joined.Keys)
		}
		if a != b {
			require.NotEqual(t, p.ID(), types.NewPartition(b, a).ID())
		}
	})
}

func TestPartitionValidateSaysWhatToWrite(t *testing.T) {
	require.NoError(t, types.Partition{Keys: []string{"eu", "zürich"}, Weight: types.MaxWeight, Label: "a/b.c-d_e"}.Validate())
	for _, c := range []struct {
		text string
		p    types.Partition
	}{
		{"it has no keys: give at least one", types.Partition{}},
		{"is empty", types.NewPartition("a", "")},
		{"not valid UTF-8: encode binary keys", types.NewPartition("\xff")},
		{"split it into several keys", types.NewPartition("a.b")},
		{"contains '.', '*' or '>'", types.NewPartition("*")},
		{"contains '.', '*' or '>'", types.NewPartition("a>")},
		{"white space or a control character", types.NewPartition("a b")},
		{"white space or a control character", types.NewPartition("a\x00")},
		{"white space or a control character", types.NewPartition("a\u2028")},
		{"use shorter keys", types.NewPartition(strings.Repeat("a", types.MaxPartitionIDLength+1))},
		{"its ID is 258 bytes long, the limit is 256", types.NewPartition(strings.Repeat("ü", 43))},
		{"weight -1 is negative", types.Partition{Keys: []string{"a"}, Weight: -1}},
		{"weights are relative, divide them all", types.Partition{Keys: []string{"a"}, Weight: types.MaxWeight + 1}},
		{"only letters, digits", types.Partition{Keys: []string{"a"}, Label: "a b"}},
		{"1 to 64 bytes", types.Partition{Keys: []string{"a"}, Label: strings.Repeat("a", types.MaxLabelLength+1)}},
	} {
		err := c.p.Validate()
		require.ErrorIs(t, err, types.ErrInvalidPartition)
		require.ErrorContains(t, err, c.text)
	}
	err := types.Partition{Keys: []string{"a.b", ""}, Weight: -1, Label: "*"}.Validate()
	for _, text := range []string{"key 0", "key 1", "negative", "label"} {
		require.ErrorContains(t, err, text, "all faults at once")
	}
	require.ErrorIs(t, err, types.ErrInvalidLabel)
	require.ErrorIs(t, types.ValidateLabel(""), types.ErrInvalidLabel)
}

func TestValidatePartitions(t *testing.T) {
	require.NoError(t, types.ValidatePartitions(nil))
	require.NoError(t, types.ValidatePartitions([]types.Partition{types.NewPartition("a", "b"), types.NewPartition("a"), types.NewPartition("b", "a")}))
	err := types.ValidatePartitions([]types.Partition{types.NewPartition("a"), {}, {Keys: []string{"a"}, Weight: 7}})
	require.ErrorIs(t, err, types.ErrDuplicatePartition)
	require.ErrorIs(t, err, types.ErrInvalidPartition)
	require.ErrorContains(t, err, `"a": listed at positions 0 and 2`)
	require.ErrorContains(t, err, "partition 1")
	err = types.ValidatePartitions(make([]types.Partition, 100))
	require.Len(t, strings.Split(err.Error(), "\n"), 11)
	require.ErrorContains(t, err, "further faults are not listed")
}

func TestPartitionEqualAndClone(t *testing.T) {
	p := types.Partition{Keys: []string{"a", "b"}, Label: "x"}
	require.Equal(t, int64(types.DefaultWeight), p.Cost())
	q := p.Clone()
	require.True(t, p.Equal(q))
	q.Weight = types.DefaultWeight
	require.True(t, p.Equal(q), "the default, written out")
	q.Weight = 1
	require.False(t, p.Equal(q))
	q = p.Clone()
	q.Label = ""
	require.False(t, p.Equal(q))
	q = p.Clone()
	q.Keys[0] = "c"
	require.False(t, p.Equal(q))
	require.Equal(t, "a", p.Keys[0], "a clone shares nothing")
}

func BenchmarkPartitionID(b *testing.B) {
	for _, keys := range [][]string{{"orders-17"}, {"eu", "orders", "17"}, {"eu", "zürich"}} {
		p := types.NewPartition(keys...)
		b.Run(p.ID(), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_ = p.ID()
			}
		})
	}
}
