package test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/partigo/parti"
	"github.com/stretchr/testify/require"
)

// documents returns the text of every Markdown file, by its path from the root.
func documents(t *testing.T) map[string]string {
	t.Helper()
	docs := map[string]string{}
	for path := range walk(t, ".md") {
		docs[path] = read(t, path)
	}
	require.Contains(t, docs, "README.md")
	return docs
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", path))
	require.NoError(t, err)
	return string(b)
}

// walk returns the paths from the root of all files with the suffix, hidden directories and what npm installs left out.
func walk(t *testing.T, suffix string) map[string]bool {
	t.Helper()
	paths := map[string]bool{}
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (strings.HasPrefix(d.Name(), ".") && d.Name() != ".." || d.Name() == "node_modules"):
			return filepath.SkipDir
		case !d.IsDir() && strings.HasSuffix(d.Name(), suffix):
			rel, err := filepath.Rel("..", path)
			paths[filepath.ToSlash(rel)] = true
			return err
		}
		return nil
	})
	require.NoError(t, err)
	return paths
}

// The two commands are the first thing that is tried.
func TestReadmeCommands(t *testing.T) {
	readme, ci := read(t, "README.md"), read(t, ".ci/run")
	const command = "go test -race ./..."
	require.Contains(t, readme, "\n"+command)
	require.Contains(t, ci, " "+command+"\n")
	require.Contains(t, readme, "\ngo run ./examples/quickstart")
}

// The README's sample is code that is compiled and run.
func TestReadmeSample(t *testing.T) {
	_, rest, found := strings.Cut(read(t, "README.md"), "```go\n")
	require.True(t, found)
	sample, _, _ := strings.Cut(rest, "```")
	require.Contains(t, read(t, "example_test.go"), "\n"+sample, "the sample of the README is not in example_test.go, word for word")
}

var (
	testName   = regexp.MustCompile("`((?:Test|Fuzz|Benchmark|Example)[A-Z][A-Za-z0-9_]*)`")
	testFunc   = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark|Example)\w*)\(`)
	link       = regexp.MustCompile(`\]\(([^)#:]+)(?:#[^)]*)?\)`)
	settingRow = regexp.MustCompile("(?m)^\\| `(\\w+)` \\| (.*?) \\|")
)

// A claim that names a test which does not exist is no claim.
func TestNamedTestsExist(t *testing.T) {
	have := map[string]bool{}
	for path := range walk(t, "_test.go") {
		for _, m := range testFunc.FindAllStringSubmatch(read(t, path), -1) {
			have[m[1]] = true
		}
	}
	for path, text := range documents(t) {
		for _, m := range testName.FindAllStringSubmatch(text, -1) {
			if !have[m[1]] {
				t.Errorf("%s names %s, which does not exist", path, m[1])
			}
		}
	}
}

func TestLinksLeadSomewhere(t *testing.T) {
	for path, text := range documents(t) {
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			if _, err := os.Stat(filepath.Join("..", filepath.Dir(path), m[1])); err != nil {
				t.Errorf("%s links to %s: %v", path, m[1], err)
			}
		}
	}
}

// The table of settings in OPERATIONS.md has every setting, with its default.
func TestDocumentedDefaults(t *testing.T) {
	documented := map[string]string{}
	_, table, found := strings.Cut(read(t, "docs/OPERATIONS.md"), "\n## Settings\n")
	require.True(t, found)
	for _, m := range settingRow.FindAllStringSubmatch(table, -1) {
		documented[m[1]] = strings.Trim(m[2], "`")
	}
	defaults := reflect.ValueOf(parti.DefaultConfig())
	for i := range defaults.NumField() {
		field := defaults.Type().Field(i)
		said, ok := documented[field.Name]
		if !ok {
			t.Errorf("docs/OPERATIONS.md does not say what %s is", field.Name)
			continue
		}
		if want := inWords(defaults.Field(i).Interface()); want != "" {
			require.Equal(t, want, said, field.Name)
		}
	}
}

// inWords returns a default as the table has it; "" for what has no plain words.
func inWords(v any) string {
	switch v := v.(type) {
	case parti.OwnershipMode:
		return map[parti.OwnershipMode]string{parti.Exclusive: "Exclusive", parti.Available: "Available"}[v]
	case time.Duration, string, int, bool, fmt.Stringer:
		return fmt.Sprint(v)
	}
	return ""
}
