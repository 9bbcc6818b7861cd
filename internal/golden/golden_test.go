package golden

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// probe is a test that may fail.
type probe struct {
	testing.TB
	said []string
}

type failed struct{}

func (p *probe) Helper()                   {}
func (p *probe) Name() string              { return "TestOther/case" }
func (p *probe) Errorf(f string, a ...any) { p.said = append(p.said, fmt.Sprintf(f, a...)) }
func (p *probe) FailNow()                  { panic(failed{}) }

// try returns what Equal returns, or with which words it failed.
func try(t *testing.T, name, got string) (stored, said string) {
	p := &probe{TB: t}
	defer func() {
		if r := recover(); r != nil {
			require.Equal(t, failed{}, r)
			said = strings.Join(p.said, "\n")
			require.NotEmpty(t, said)
		}
	}()
	return string(Equal(p, name, []byte(got))), ""
}

func updating(t *testing.T) {
	*update = true
	t.Cleanup(func() { *update = false })
}

// in makes an empty directory the package's, and returns the command that failures name.
func in(t *testing.T) string {
	dir := t.TempDir()
	t.Chdir(dir)
	return "go test -C " + dir + " -run '^TestOther$' . -update"
}

func TestEqual(t *testing.T) {
	want := in(t)
	_, said := try(t, "a.json", `{"a":1}`)
	require.Contains(t, said, "a.json")
	require.Contains(t, said, want)

	require.NoError(t, os.Mkdir("testdata", 0o755))
	require.NoError(t, os.WriteFile("testdata/a.json", []byte(`{"a":1,"b":{"c":2}}`+"\n"), 0o600))
	stored, said := try(t, "a.json", `{"a":1,"b":{"c":2}}`)
	require.Empty(t, said)
	require.Equal(t, `{"a":1,"b":{"c":2}}`, stored)

	_, said = try(t, "a.json", `{"a":1,"b":{"c":3}}`)
	require.Contains(t, said, "testdata/a.json: the format has changed")
	require.Contains(t, said, want)
	require.Regexp(t, `(?m)^\s*-    "c": 2$`, said, "the value that has changed, on a line of its own")
	require.Regexp(t, `(?m)^\s*\+    "c": 3$`, said)

	for _, other := range []string{`{"a": 1,"b":{"c":2}}`, `{"a":1,"b":{"c":2}}` + "\n", "text", ""} {
		_, said = try(t, "a.json", other)
		require.Contains(t, said, "the format has changed", "%q", other)
	}
	on, err := os.ReadFile("testdata/a.json")
	require.NoError(t, err)
	require.Equal(t, `{"a":1,"b":{"c":2}}`+"\n", string(on), "nothing is written without the flag")
}

func TestUpdate(t *testing.T) {
	in(t)
	updating(t)
	backing := []byte("new.old")
	for _, got := range [][]byte{[]byte("old"), backing[:3]} { // also where there is no directory yet, and over what there is
		require.Equal(t, string(got), string(Equal(t, "a.txt", got)))
		on, err := os.ReadFile("testdata/a.txt")
		require.NoError(t, err)
		require.Equal(t, string(got)+"\n", string(on))
	}
	require.Equal(t, "new.old", string(backing), "the caller's memory is its own")
}

func TestEqualForm(t *testing.T) {
	in(t)
	require.NoError(t, os.Mkdir("testdata", 0o755))
	require.NoError(t, os.WriteFile("testdata/a.txt", []byte("size 17\n"), 0o600))
	word := func(raw []byte) string { first, _, _ := strings.Cut(string(raw), " "); return first }
	require.Equal(t, "size 17", string(EqualForm(t, "a.txt", []byte("size 18"), word)), "what the file has")
	p := &probe{TB: t}
	require.PanicsWithValue(t, failed{}, func() { EqualForm(p, "a.txt", []byte("length 17"), word) })
	require.Contains(t, strings.Join(p.said, ""), "the format has changed")
}
