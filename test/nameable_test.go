package test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What a public package asks for, a user can name: no parameter, result or field is of a type that only this module can import.
func TestExportedIsNameable(t *testing.T) {
	for _, f := range parse(t) {
		if strings.HasPrefix(f.pkg, "internal/") {
			continue
		}
		for _, name := range unnameable(f.ast) {
			t.Errorf("%s/%s: %s is exported, and its type is internal", f.pkg, f.name, name)
		}
	}
}

// The rule above finds what it is for.
func TestUnnameable(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "x.go", `package p
import ("time"; "`+module+`/internal/lane"; "`+module+`/kv")
type A struct { L *lane.Lane; hidden lane.Lane; K *kv.Store; T time.Time }
func F(map[string][]lane.Lane) {}
func G(*kv.Store) {}
func g(lane.Lane) { var _ lane.Lane }
func (A) M() (lane.Lane, error) { return lane.Lane{}, nil }
`, 0)
	require.NoError(t, err)
	require.Equal(t, []string{"lane.Lane in A", "lane.Lane in F", "lane.Lane in M"}, unnameable(f))
}

// unnameable returns the uses of internal types in what a file exports, sorted.
func unnameable(f *ast.File) []string {
	internal := map[string]bool{} // names of imported packages
	for _, imp := range f.Imports {
		if p, err := strconv.Unquote(imp.Path.Value); err == nil && strings.Contains(p, "/internal/") {
			internal[path.Base(p)] = true
		}
	}
	var found []string
	look := func(name string, typ ast.Node) {
		ast.Inspect(typ, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				if x, ok := s.X.(*ast.Ident); ok && internal[x.Name] {
					found = append(found, x.Name+"."+s.Sel.Name+" in "+name)
				}
			}
			return true
		})
	}
	for _, decl := range f.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if d.Name.IsExported() && receiverExported(d) {
				look(d.Name.Name, d.Type)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if s, ok := spec.(*ast.TypeSpec); ok && s.Name.IsExported() {
					for _, typ := range visible(s.Type) {
						look(s.Name.Name, typ)
					}
				}
			}
		}
	}
	slices.Sort(found)
	return found
}

// visible returns the parts of a type that other packages see: of a struct the exported fields and what is embedded.
func visible(typ ast.Expr) []ast.Node {
	s, ok := typ.(*ast.StructType)
	if !ok {
		return []ast.Node{typ}
	}
	var parts []ast.Node
	for _, field := range s.Fields.List {
		if len(field.Names) == 0 || slices.ContainsFunc(field.Names, (*ast.Ident).IsExported) {
			parts = append(parts, field.Type)
		}
	}
	return parts
}
