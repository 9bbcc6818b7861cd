// Package golden compares what a test has encoded with a file in testdata of its package, so that a change of a stored format is a visible diff.
// It is for tests only, and it is where their flag -update comes from, which writes the files anew.
package golden

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden files: only for a change of format that is meant")

// Equal fails the test unless testdata/name has exactly got. It returns what the file has, without the newline at its end, which the
// encoded value does not have: the test goes on to decode it.
func Equal(t testing.TB, name string, got []byte) []byte {
	t.Helper()
	return EqualForm(t, name, got, func(raw []byte) string { return string(raw) })
}

// EqualForm is Equal for what cannot be the same everywhere, such as the output of a compressor: only the forms of both are compared.
func EqualForm(t testing.TB, name string, got []byte, form func(raw []byte) string) []byte {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(path, append(bytes.Clone(got), '\n'), 0o644))
	}
	stored, err := os.ReadFile(path)
	require.NoError(t, err, "to write it: %s", command(t))
	stored = bytes.TrimSuffix(stored, []byte("\n"))
	if was, is := form(stored), form(got); was != is {
		fromLines, toLines := lines(was), lines(is)
		if fromLines == toLines {
			fromLines, toLines = was, is // they differ in white space
		}
		require.Equal(t, fromLines, toLines, "%s: the format has changed, and old and new releases run side by side. If it is meant: %s", path, command(t))
	}
	return stored
}

// lines returns JSON with a line for each value, so that a diff shows which one has changed; anything else as it is.
func lines(text string) string {
	var b bytes.Buffer
	if json.Indent(&b, []byte(text), "", "  ") != nil {
		return text
	}
	return b.String()
}

// command returns how to write the files of this test anew, from any directory.
func command(t testing.TB) string {
	dir, err := os.Getwd()
	require.NoError(t, err)
	test, _, _ := strings.Cut(t.Name(), "/")
	return fmt.Sprintf("go test -C %s -run '^%s$' . -update", dir, test)
}
