package test

import (
	"go/ast"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// cgnatsNames are the exported names of that package.
const cgnatsNames = `Coordinator NewCoordinator Run CoordinatorConfig CoordinatorConfigOpt KVReplicas KVBucketCoordinator KVBucketOffsets KVKeyCoordinator
	CoordinatorSessionTimeout InitialRebalanceDelay SubjectPrefix MaxConcurrentRequests MaxConsumersPerGroup WithCoordinatorHooks
	WithCoordinatorSessionTimeout WithInitialRebalanceDelay WithKVCoordinatorBucket WithKVKeyCoordinator WithKVOffsetsBucket WithLogger
	WithMaxConcurrentRequestsPerGroup WithMaxConsumersPerGroup WithSubjectPrefix CoordinatorHooks Elected LostLeader SteppingDown RebalanceStarted
	Message Stream Subject Data Partition Sequence Headers Timestamp PartitionResolver Reader NewReader Ack Close Fetch ReaderConfig BufferSize
	SessionTimeout RebalanceTimeout HeartbeatInterval RequestTimeout FetchWaitTime FetchBatchTimeout Assigner Logger Hooks ReaderHooks
	PartitionsAssigned PartitionsRevoked ReaderOption WithAssigner WithBufferSize WithFetchBatchTimeout WithFetchWaitTime WithHeartbeatInterval
	WithPartitionResolver WithReaderHooks WithReaderLogger WithReaderSubjectPrefix WithRebalanceTimeout WithRequestTimeout WithSessionTimeout`

var (
	quoted    = regexp.MustCompile("`([^`]+)`")
	word      = regexp.MustCompile(`\w+`)
	qualified = regexp.MustCompile(`\b(parti|consumer|types|strategy|source)\.([A-Z]\w*)`)
)

// docs/COMPATIBILITY.md leaves out no name of cgnats, and what it says to be here is here.
func TestCompatibilityNames(t *testing.T) {
	text := read(t, "docs/COMPATIBILITY.md")
	_, half, found := strings.Cut(text, "\n## cgnats\n")
	require.True(t, found)
	said := map[string]bool{}
	for line := range strings.Lines(half) {
		cells := strings.Split(line, "|")
		if len(cells) < 3 {
			continue
		}
		for _, q := range quoted.FindAllStringSubmatch(cells[1], -1) {
			for _, name := range word.FindAllString(q[1], -1) {
				said[name] = true
			}
		}
	}
	for _, name := range strings.Fields(cgnatsNames) {
		if !said[name] {
			t.Errorf("docs/COMPATIBILITY.md does not say where cgnats' %s is", name)
		}
	}
	have := exported(t)
	for _, q := range quoted.FindAllStringSubmatch(text, -1) {
		for _, m := range qualified.FindAllStringSubmatch(q[1], -1) {
			if !have[m[0]] {
				t.Errorf("docs/COMPATIBILITY.md names %s, which does not exist", m[0])
			}
		}
	}
}

// The half about assignment leaves out no name of that package, and what it says to be the same, or to be here, is here.
func TestCompatibilityAssignment(t *testing.T) {
	half, _, found := strings.Cut(read(t, "docs/COMPATIBILITY.md"), "\n## cgnats\n")
	require.True(t, found)
	have := identifiers(t)
	said := map[string]map[string]bool{"": {}} // by heading
	heading := ""
	for line := range strings.Lines(half) {
		if strings.HasPrefix(line, "##") {
			heading = strings.Trim(line, "# \n")
			said[heading] = map[string]bool{}
		}
		cells := strings.Split(line, "|")
		names, here := line, ""
		if len(cells) >= 4 {
			names, here = cells[1], cells[2]
		}
		for _, name := range quotedWords(names) {
			said[heading][name] = true
			if strings.HasPrefix(here, " same") && !strings.HasPrefix(here, " same val") && ast.IsExported(name) && !have[name] {
				t.Errorf("docs/COMPATIBILITY.md says that %s is the same, and it does not exist", name)
			}
		}
		for _, name := range quotedWords(here) {
			if ast.IsExported(name) && !have[name] {
				t.Errorf("docs/COMPATIBILITY.md names %s, which does not exist", name)
			}
		}
	}
	listed := ""
	for line := range strings.Lines(read(t, "test/testdata/assignment_names.txt")) {
		if title, ok := strings.CutPrefix(strings.TrimSpace(line), "# "); ok {
			listed = title
			require.Contains(t, said, listed)
			continue
		}
		for _, name := range strings.Fields(line) {
			if !said[listed][name] && !said["What differs throughout"][name] {
				t.Errorf("docs/COMPATIBILITY.md does not say under %q where %s is", listed, name)
			}
		}
	}
	require.Equal(t, "CommitGC", listed)
}

// quotedWords returns the words of what stands between backquotes.
func quotedWords(text string) (words []string) {
	for _, q := range quoted.FindAllStringSubmatch(text, -1) {
		words = append(words, word.FindAllString(q[1], -1)...)
	}
	return words
}

// identifiers returns every name that any package declares: functions, methods, types, fields, values.
func identifiers(t *testing.T) map[string]bool {
	names := map[string]bool{}
	for _, f := range parse(t) {
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				names[n.Name.Name] = true
			case *ast.TypeSpec:
				names[n.Name.Name] = true
			case *ast.ValueSpec:
				for _, id := range n.Names {
					names[id.Name] = true
				}
			case *ast.Field: // of structs, and the methods of interfaces
				for _, id := range n.Names {
					names[id.Name] = true
				}
			}
			return true
		})
	}
	return names
}

// exported returns what packages export at the top level, as a user writes it.
func exported(t *testing.T) map[string]bool {
	names := map[string]bool{}
	for _, f := range parse(t) {
		pkg := f.pkg
		if pkg == "." {
			pkg = "parti"
		}
		add := func(id *ast.Ident) { names[pkg+"."+id.Name] = true }
		for _, decl := range f.ast.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil {
					add(d.Name)
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					switch s := spec.(type) {
					case *ast.TypeSpec:
						add(s.Name)
					case *ast.ValueSpec:
						for _, id := range s.Names {
							add(id)
						}
					}
				}
			}
		}
	}
	return names
}
