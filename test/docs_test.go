package test

import (
	"fmt"
	"go/build"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/partigo/parti"
	"github.com/partigo/parti/types"
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

// The two commands are the first thing that is tried. CI runs the same one, and the race detector besides.
func TestReadmeCommands(t *testing.T) {
	readme, ci := read(t, "README.md"), read(t, ".ci/run")
	require.Regexp(t, `(?m)^go run \./examples/quickstart +#`, readme)
	require.Regexp(t, `(?m)^go test \./\.\.\. +#`, readme, "it needs Go and nothing else: -race would need a C compiler")
	require.True(t, regexp.MustCompile(`(?m)^\s*check \w+ go test \./\.\.\.$`).MatchString(ci), ".ci/run does not run go test ./...")
	require.Regexp(t, `(?m)^\s*check \w+ raced$`, ci)
	require.Regexp(t, `(?m)^\s*.*go test -race `, ci)
}

// The README's program compiles, and what it does is an example that is run.
func TestReadmeSample(t *testing.T) {
	_, rest, found := strings.Cut(read(t, "README.md"), "```go\n")
	require.True(t, found)
	sample, _, _ := strings.Cut(rest, "```")
	path := filepath.Join(t.TempDir(), "main.go")
	require.NoError(t, os.WriteFile(path, []byte(sample), 0o600))
	cmd := exec.Command("go", "vet", path)
	cmd.Dir = ".." // the imports are those of the module
	said, err := cmd.CombinedOutput()
	require.NoError(t, err, "the program of the README: %s", said)
	_, work, found := strings.Cut(sample, "\n// work ")
	require.True(t, found)
	require.Contains(t, read(t, "example_test.go"), "\n// work "+work, "work of the README is not in example_test.go, word for word")
}

var (
	testName   = regexp.MustCompile("`((?:Test|Fuzz|Benchmark|Example)[A-Z][A-Za-z0-9_]*)`")
	testFunc   = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark|Example)\w*)\(`)
	link       = regexp.MustCompile(`\]\(([^)#:]+)(?:#[^)]*)?\)`)
	settingRow = regexp.MustCompile("(?m)^\\| `(\\w+)` \\| (.*?) \\|")
)

// home is where a test lives.
type home struct {
	module string // its folder; "." is this one
	built  bool   // by go test without -race, here
	race   bool   // and with it
}

// tests returns where the tests of all modules live. Several can have one name.
func tests(t *testing.T) map[string][]home {
	t.Helper()
	modules := walk(t, "go.mod")
	plain, race := build.Default, build.Default
	race.BuildTags = append([]string{"race"}, race.BuildTags...)
	homes := map[string][]home{}
	for path := range walk(t, "_test.go") {
		h := home{module: filepath.ToSlash(filepath.Dir(path))}
		for h.module != "." && !modules[h.module+"/go.mod"] {
			h.module = filepath.ToSlash(filepath.Dir(h.module))
		}
		var err error
		h.built, err = plain.MatchFile(filepath.Join("..", filepath.Dir(path)), filepath.Base(path))
		require.NoError(t, err)
		h.race, err = race.MatchFile(filepath.Join("..", filepath.Dir(path)), filepath.Base(path))
		require.NoError(t, err)
		for _, m := range testFunc.FindAllStringSubmatch(read(t, path), -1) {
			homes[m[1]] = append(homes[m[1]], h)
		}
	}
	return homes
}

// notRun says why a claim does not lead to the test that it names; "" if it does. The line is the claim; racing means that the document
// tells its reader to run tests with -race.
func notRun(homes []home, line string, racing bool) string {
	if len(homes) == 0 {
		return "does not exist"
	}
	reason := ""
	for _, h := range homes {
		switch {
		case h.module != "." && !strings.Contains(line, "`cd "+h.module+"`"):
			reason = "is in the module " + h.module + ", and the line does not say `cd " + h.module + "`"
		case !h.built && !h.race:
			reason = "is not built here, with -race or without"
		case racing && !h.race, !racing && !h.built:
			reason = "is left out by a build tag of the command that the document gives"
		default:
			return ""
		}
	}
	return reason
}

// A claim that names a test which does not exist, or which the command of the document does not run, is no claim.
func TestNamedTestsExist(t *testing.T) {
	homes := tests(t)
	require.Contains(t, homes, "TestNamedTestsExist")
	for path, text := range documents(t) {
		racing := strings.Contains(text, "`go test -race -run")
		for line := range strings.Lines(text) {
			for _, m := range testName.FindAllStringSubmatch(line, -1) {
				if fault := notRun(homes[m[1]], line, racing); fault != "" {
					t.Errorf("%s: %s %s", path, m[1], fault)
				}
			}
		}
	}
}

// The rule above does find what it is for.
func TestNotRun(t *testing.T) {
	here, elsewhere := home{module: ".", built: true, race: true}, home{module: "metrics", built: true, race: true}
	slow, never := home{module: ".", built: true}, home{module: "."}
	require.Empty(t, notRun([]home{here}, "", true))
	require.Empty(t, notRun([]home{elsewhere, here}, "", false))
	require.Empty(t, notRun([]home{elsewhere}, "`cd metrics`", false))
	require.Empty(t, notRun([]home{slow}, "", false))
	require.Contains(t, notRun([]home{slow}, "", true), "build tag")
	require.Contains(t, notRun([]home{never}, "", false), "not built")
	require.Contains(t, notRun([]home{elsewhere}, "", false), "module metrics")
	require.Contains(t, notRun(nil, "", false), "exist")
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
	if v == types.NeverSpill {
		return "types.NeverSpill"
	}
	switch v := v.(type) {
	case parti.OwnershipMode:
		return map[parti.OwnershipMode]string{parti.Exclusive: "Exclusive", parti.Available: "Available"}[v]
	case time.Duration, string, int, bool, fmt.Stringer:
		return fmt.Sprint(v)
	}
	return ""
}
