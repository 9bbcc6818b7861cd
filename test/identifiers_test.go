package test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// file is a parsed file that is no test.
type file struct {
	pkg  string // path within the module
	name string
	ast  *ast.File
}

// parse returns the module's files, those of tests and of programs left out.
func parse(t *testing.T) []file {
	t.Helper()
	var files []file
	fset := token.NewFileSet()
	for _, p := range goList(t, "./...") {
		path, _ := rel(p.ImportPath)
		if top, _, _ := strings.Cut(path, "/"); p.Name == "main" || top == "test" {
			continue
		}
		for _, name := range p.GoFiles {
			f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.ParseComments)
			require.NoError(t, err)
			files = append(files, file{path, name, f})
		}
	}
	return files
}

// Whatever a user can name says what it is.
func TestExportedIsDocumented(t *testing.T) {
	for _, f := range parse(t) {
		if strings.HasPrefix(f.pkg, "internal/") {
			continue
		}
		for _, decl := range f.ast.Decls {
			for _, name := range undocumented(decl) {
				t.Errorf("%s/%s: %s has no doc comment", f.pkg, f.name, name)
			}
		}
	}
}

// undocumented returns the exported names that a declaration introduces without a comment. The members of a group share its comment.
func undocumented(decl ast.Decl) (names []string) {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		if d.Name.IsExported() && d.Doc == nil && receiverExported(d) && !wellKnown(d) {
			names = append(names, d.Name.Name)
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.TypeSpec:
				if s.Name.IsExported() && d.Doc == nil && s.Doc == nil {
					names = append(names, s.Name.Name)
				}
			case *ast.ValueSpec:
				for _, n := range s.Names {
					if n.IsExported() && d.Doc == nil && s.Doc == nil && s.Comment == nil {
						names = append(names, n.Name)
					}
				}
			}
		}
	}
	return names
}

// wellKnown reports whether a method is one of those whose name says all.
func wellKnown(d *ast.FuncDecl) bool {
	return d.Recv != nil && slices.Contains([]string{"Error", "String", "Unwrap", "Is"}, d.Name.Name)
}

func receiverExported(d *ast.FuncDecl) bool {
	if d.Recv == nil {
		return true
	}
	typ := d.Recv.List[0].Type
	for {
		switch x := typ.(type) {
		case *ast.StarExpr:
			typ = x.X
		case *ast.IndexExpr:
			typ = x.X
		case *ast.Ident:
			return x.IsExported()
		default:
			return true
		}
	}
}

// An error that nothing returns or looks for is a promise that nobody keeps.
func TestEveryErrorIsUsed(t *testing.T) {
	files := parse(t)
	declared, used := map[string]bool{}, map[string]bool{}
	for _, f := range files {
		switch {
		case f.pkg == "types" && f.name == "errors.go":
			for name := range errorVars(f.ast) {
				declared[name] = true
			}
		case f.pkg == "." && f.name == "errors.go": // gives them a second name
		default:
			ast.Inspect(f.ast, func(n ast.Node) bool {
				if id, ok := n.(*ast.Ident); ok {
					used[id.Name] = true
				}
				return true
			})
		}
	}
	require.NotEmpty(t, declared)
	for name := range declared {
		if !used[name] {
			t.Errorf("types.%s is used nowhere", name)
		}
	}
}

func errorVars(f *ast.File) map[string]bool {
	names := map[string]bool{}
	for _, decl := range f.Decls {
		if d, ok := decl.(*ast.GenDecl); ok && d.Tok == token.VAR {
			for _, spec := range d.Specs {
				for _, n := range spec.(*ast.ValueSpec).Names {
					names[n.Name] = true
				}
			}
		}
	}
	return names
}

// checksSettings are the functions in which a mention of a setting is no use of it.
var checksSettings = []string{"DefaultConfig", "setDefaults", "Validate", "validate"}

// A setting that nothing reads is a lie. Looked at are the structs called Config, or something that ends so, of every package.
func TestEverySettingIsUsed(t *testing.T) {
	type setting struct{ pkg, field string }
	declared, read := map[setting]string{}, map[setting]bool{}
	for _, f := range parse(t) {
		for _, decl := range f.ast.Decls {
			switch d := decl.(type) {
			case *ast.GenDecl:
				for typ, fields := range configFields(d) {
					for _, field := range fields {
						declared[setting{f.pkg, field}] = typ
					}
				}
			case *ast.FuncDecl:
				if slices.Contains(checksSettings, d.Name.Name) || returnsOption(d) {
					continue
				}
				ast.Inspect(d, func(n ast.Node) bool {
					if s, ok := n.(*ast.SelectorExpr); ok {
						read[setting{f.pkg, s.Sel.Name}] = true
					}
					return true
				})
			}
		}
	}
	require.Contains(t, declared, setting{".", "HeartbeatTTL"})
	for s, typ := range declared {
		if !read[s] {
			t.Errorf("%s: %s.%s is read nowhere", s.pkg, typ, s.field)
		}
	}
}

func configFields(d *ast.GenDecl) map[string][]string {
	fields := map[string][]string{}
	for _, spec := range d.Specs {
		typ, ok := spec.(*ast.TypeSpec)
		if !ok || !strings.HasSuffix(typ.Name.Name, "Config") {
			continue
		}
		if s, ok := typ.Type.(*ast.StructType); ok {
			for _, f := range s.Fields.List {
				for _, n := range f.Names {
					fields[typ.Name.Name] = append(fields[typ.Name.Name], n.Name)
				}
			}
		}
	}
	return fields
}

// returnsOption reports whether a function is one of the With functions, which only set.
func returnsOption(d *ast.FuncDecl) bool {
	return d.Recv == nil && strings.HasPrefix(d.Name.Name, "With")
}
