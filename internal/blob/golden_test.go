package blob_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/partigo/parti/internal/blob"
	"github.com/partigo/parti/internal/golden"
	"github.com/stretchr/testify/require"
)

var sizes = regexp.MustCompile(`"size":\d+`)

// The manifest is what names the chunks of a large value. Its hashes depend on the compressor of this Go release, so only the form is compared: the
// same fields in the same order, and as many chunks.
func TestGoldenManifest(t *testing.T) {
	raw := noise(blob.ChunkSize + 1)
	root, chunks, err := blob.Pack(raw)
	require.NoError(t, err)
	require.NotEmpty(t, chunks)
	stored := golden.EqualForm(t, "manifest.json", root, func(manifest []byte) string {
		names, err := blob.Chunks(manifest)
		require.NoError(t, err)
		require.Len(t, names, 2)
		text := string(manifest)
		for i, name := range names {
			text = strings.ReplaceAll(text, name, string(rune('A'+i)))
		}
		return sizes.ReplaceAllString(text, `"size":N`)
	})
	require.Contains(t, string(stored), blob.Hash(raw), "the hash is the value's, whatever compressed it")
}
