package consumer

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// overlapping is filterSet.overlap for two filters, by their definition.
func overlapping(a, b []string) bool {
	switch {
	case len(a) == 0 || len(b) == 0:
		return len(a) == len(b)
	case a[0] == ">" || b[0] == ">":
		return true
	}
	return (a[0] == b[0] || a[0] == "*" || b[0] == "*") && overlapping(a[1:], b[1:])
}

func TestOverlap(t *testing.T) {
	tokens := []string{"a", "b", "*"}
	random := func() string {
		var f []string
		for range 1 + rand.N(4) {
			f = append(f, tokens[rand.N(len(tokens))])
		}
		if rand.N(4) == 0 {
			f = append(f, ">")
		}
		return strings.Join(f, ".")
	}
	for range 2000 {
		var set filterSet
		want, filter := "", random()
		for range rand.N(4) {
			f := random()
			set.add(f, 0)
			if overlapping(strings.Split(f, "."), strings.Split(filter, ".")) {
				want += f + " "
			}
		}
		found := set.overlap(filter)
		require.Equal(t, want != "", found != nil, "%s and %s", filter, want)
		if found != nil {
			require.Contains(t, want, found.filter+" ")
		}
	}
}

// Partitions that would read the same messages are refused, and not taken for others that share tokens only.
func TestOverlappingSubjectsAreRefused(t *testing.T) {
	bubble(t, func(w *world) {
		for text, resolver := range map[string]Resolver{
			`partitions 0 and 2 the subjects "a.*" and "a.2" of stream "S", which overlap`: func(p int) (string, string) {
				return "S", []string{"a.*", "b.1", "a.2"}[p]
			},
			`partitions 1 and 2 the subjects "*.1" and "c.>"`: func(p int) (string, string) { return "S", []string{"a.0", "*.1", "c.>"}[p] },
			`partitions 1 and 2 the same subject "a.1"`:       func(p int) (string, string) { return "S", []string{"a.0", "a.1", "a.1"}[p] },
		} {
			_, err := NewReader(w.js, "group", 3, WithResolver(resolver))
			require.ErrorIs(t, err, ErrInvalidConfig)
			require.ErrorContains(t, err, text)
		}
		for _, resolver := range []Resolver{
			func(p int) (string, string) { return "S", fmt.Sprintf("*.%d.*", p) },
			func(p int) (string, string) { return "S", fmt.Sprintf("a.%d.>", p) },
			func(p int) (string, string) { return fmt.Sprint("S", p), "a.>" },
		} {
			r, err := NewReader(w.js, "group", 2000, WithResolver(resolver))
			require.NoError(t, err)
			require.NoError(t, r.Close(w.ctx(1e9)))
		}
	})
}
