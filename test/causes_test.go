package test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	causeConstant = regexp.MustCompile(`(?m)^\s+cause\w+\s+= "(\w+)"`)
	causeRow      = regexp.MustCompile("(?m)^\\| (\\w+) \\| `([^`]+)` \\|")
)

// The table of causes in OPERATIONS.md has every cause, and the reason with which its Status.Degraded begins is one that the code gives.
func TestDocumentedCauses(t *testing.T) {
	var want, got []string
	for _, m := range causeConstant.FindAllStringSubmatch(read(t, "degraded.go"), -1) {
		want = append(want, m[1])
	}
	require.NotEmpty(t, want)
	var code strings.Builder
	for _, file := range []string{"candidacy.go", "degraded.go", "lifecycle.go", "role.go", "start.go"} {
		code.WriteString(read(t, file))
	}
	_, rest, found := strings.Cut(read(t, "docs/OPERATIONS.md"), "\n### Degraded\n")
	require.True(t, found)
	table, _, _ := strings.Cut(rest, "\n###")
	for _, m := range causeRow.FindAllStringSubmatch(table, -1) {
		got = append(got, m[1])
		require.Contains(t, code.String(), `"`+m[2], m[1])
	}
	slices.Sort(want)
	slices.Sort(got)
	require.Equal(t, want, got)
}
