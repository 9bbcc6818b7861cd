// Package test holds what is true of the repository as a whole: which package may import which, what reaches a user's binary, that
// what is exported is documented and used, and that the documents say what is there.
package test

import (
	"bytes"
	"encoding/json"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/partigo/parti"

// pkg is a package of this module as `go list -json` describes it.
type pkg struct {
	ImportPath string
	Name       string
	Dir        string
	Standard   bool
	Imports    []string
	GoFiles    []string
}

// rel is the path within the module; the root is ".".
func rel(importPath string) (string, bool) {
	if importPath == module {
		return ".", true
	}
	return strings.CutPrefix(importPath, module+"/")
}

func goList(t *testing.T, args ...string) []pkg {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-json=ImportPath,Name,Dir,Standard,Imports,GoFiles"}, args...)...)
	cmd.Dir = ".." // the root of the module
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, stderr.String())
	var list []pkg
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		err := dec.Decode(&p)
		if err == io.EOF {
			return list
		}
		require.NoError(t, err)
		list = append(list, p)
	}
}

// mayImport says which parts of the module the code of a top-level directory may import, tests apart. Every one may import its own
// packages, and those of internal but natstest and golden. "*" is any part.
var mayImport = map[string][]string{
	".":          {"types", "kv", "source", "strategy", "election", "heartbeat", "assignment"},
	"types":      {},
	"kv":         {"types"},
	"source":     {"types", "kv"},
	"strategy":   {"types"},
	"election":   {"types", "kv"},
	"heartbeat":  {"types", "kv"},
	"assignment": {"types", "kv", "source", "strategy"},
	"internal":   {"types", "kv"},
	"fence":      {"types"},
	"consumer":   {".", "types", "kv", "source", "strategy", "fence"}, // above the root, as a user's code is
	"metrics":    {".", "types"},
	"cmd":        {"*"},
	"examples":   {"*"},
	"test":       {"*"},
}

func TestImportDirections(t *testing.T) {
	for _, p := range goList(t, "./...") {
		path, _ := rel(p.ImportPath)
		top, _, _ := strings.Cut(path, "/")
		allowed, known := mayImport[top]
		if !known {
			t.Errorf("%s: say in mayImport what this new directory may import", p.ImportPath)
			continue
		}
		for _, imported := range p.Imports {
			if fault := importFault(path, top, allowed, imported); fault != "" {
				t.Errorf("%s imports %s: %s", p.ImportPath, imported, fault)
			}
		}
	}
}

func importFault(path, top string, allowed []string, imported string) string {
	target, own := rel(imported)
	part, _, _ := strings.Cut(target, "/")
	switch {
	case top == "types" && !(own && part == "types") && !standard(imported):
		return "package types imports the standard library only"
	case !own:
		return ""
	case strings.HasPrefix(path, "test/checker"):
		return "the checker trusts nothing of the library's"
	case top == "examples" && part == "internal":
		return "an example shows what a user can write"
	case top != "test" && top != "internal" && (target == "internal/natstest" || target == "internal/golden"):
		return "servers, gates and golden files are for tests"
	case slices.Contains(allowed, "*"), part == top, part == "internal", slices.Contains(allowed, part):
		return ""
	case part == ".":
		return "only consumer, metrics, cmd, examples and test import the root"
	}
	return "siblings do not import each other"
}

// standard reports whether an import path is the standard library's: the first element of any other has a dot.
func standard(importPath string) bool {
	first, _, _ := strings.Cut(importPath, "/")
	return !strings.Contains(first, ".")
}

// What tests need must not get into the binary of somebody who uses the library.
func TestUserBinaryHasNoTestCode(t *testing.T) {
	var public []string
	for _, p := range goList(t, "./...") {
		path, _ := rel(p.ImportPath)
		top, _, _ := strings.Cut(path, "/")
		if p.Name != "main" && top != "internal" && top != "test" && top != "examples" && path != "strategy/strategytest" {
			public = append(public, p.ImportPath)
		}
	}
	require.Contains(t, public, module)
	forbidden := []string{
		"testing", "github.com/nats-io/nats-server", "github.com/stretchr/testify", "go.uber.org/goleak", "pgregory.net/rapid",
		module + "/internal/natstest", module + "/internal/golden", module + "/strategy/strategytest", module + "/test",
	}
	deps := goList(t, append([]string{"-deps"}, public...)...)
	require.NotEmpty(t, deps)
	for _, p := range deps {
		for _, f := range forbidden {
			if p.ImportPath == f || strings.HasPrefix(p.ImportPath, f+"/") {
				t.Errorf("a user's binary links %s", p.ImportPath)
			}
		}
	}
}

// The rules above do find what they are for.
func TestImportFaults(t *testing.T) {
	for _, c := range []struct {
		path, imported string
		fine           bool
	}{
		{"types", "strings", true},
		{"types", "github.com/nats-io/nats.go", false},
		{"types", module + "/kv", false},
		{"strategy", module + "/types", true},
		{"strategy", module + "/source", false},
		{"assignment", module + "/assignment/plan", true},
		{"assignment", module + "/strategy", true},
		{"assignment", module + "/election", false},
		{"election", module, false},
		{"kv", module + "/internal/backoff", true},
		{"kv", module + "/election", false},
		{".", module + "/election", true},
		{".", module + "/internal/natstest", false},
		{"types", module + "/internal/golden", false},
		{"source", module + "/internal/golden", false},
		{"consumer", module, true},
		{"examples/quickstart", module + "/source", true},
		{"examples/quickstart", module + "/internal/lane", false},
		{"test/checker", module + "/types", false},
		{"test/sim", module + "/internal/natstest", true},
	} {
		top, _, _ := strings.Cut(c.path, "/")
		require.Equal(t, c.fine, importFault(c.path, top, mayImport[top], c.imported) == "", "%s imports %s", c.path, c.imported)
	}
}
