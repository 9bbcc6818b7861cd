package blob_test

import (
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/partigo/parti/internal/blob"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden file: only for a change of format that is meant")

var sizes = regexp.MustCompile(`"size":\d+`)

// The manifest is what names the chunks of a large value. Its hashes depend on the compressor of this Go release, so the file is read and not
// written anew; what is written has the same fields in the same order.
func TestGoldenManifest(t *testing.T) {
	const path = "testdata/manifest.json"
	raw := noise(blob.ChunkSize + 1)
	root, chunks, err := blob.Pack(raw)
	require.NoError(t, err)
	if *update {
		require.NoError(t, os.WriteFile(path, append(root, '\n'), 0o644))
	}
	stored, err := os.ReadFile(path)
	require.NoError(t, err)
	names, err := blob.Chunks(stored)
	require.NoError(t, err)
	require.Len(t, names, 2)
	again, err := blob.Chunks(root)
	require.NoError(t, err)
	require.Len(t, again, 2)
	require.NotEmpty(t, chunks)
	form := func(manifest []byte, chunks []string) string {
		text := strings.TrimSuffix(string(manifest), "\n")
		for i, name := range chunks {
			text = strings.ReplaceAll(text, name, string(rune('A'+i)))
		}
		return sizes.ReplaceAllString(text, `"size":N`)
	}
	require.Equal(t, form(stored, names), form(root, again), "the format has changed: old and new releases run side by side")
	require.Contains(t, string(stored), blob.Hash(raw), "the hash is the value's, whatever compressed it")
}
