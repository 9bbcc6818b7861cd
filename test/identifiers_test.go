package test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
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

// An error that nothing returns is a promise that nobody keeps. A use is one from which it can reach a user: any but a comparison.
func TestEveryErrorIsUsed(t *testing.T) {
	files := parse(t)
	declared, used, second := map[string]bool{}, map[string]bool{}, map[string]string{}
	for _, f := range files {
		for name, original := range errorVars(f.ast) {
			if name = packageName(f.pkg) + "." + name; original == "" {
				declared[name] = true
			} else {
				second[name] = original
			}
		}
	}
	require.Contains(t, declared, "types.ErrInvalidConfig")
	require.Contains(t, declared, "consumer.errGoexit")
	for _, f := range files {
		for _, name := range errorUses(f.ast, packageName(f.pkg)) {
			for ; name != ""; name = second[name] {
				used[name] = true
			}
		}
	}
	for name := range declared {
		if !used[name] {
			t.Errorf("%s is returned nowhere", name)
		}
	}
}

// The rule above does find what it is for.
func TestErrorUses(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "x.go", `package x
var ErrNever, ErrSecond = errors.New("a"), types.ErrOther
var ErrReturned = fmt.Errorf("b")
func f(err error) error {
	if errors.Is(err, ErrNever) || err == ErrNever || ErrNever != err { return nil }
	switch err { case ErrNever: return nil }
	if err != nil { return fmt.Errorf("%w", ErrReturned) }
	return types.ErrForeign
}`, 0)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"ErrNever": "", "ErrSecond": "types.ErrOther", "ErrReturned": ""}, errorVars(f))
	require.ElementsMatch(t, []string{"x.ErrReturned", "types.ErrForeign"}, errorUses(f, "x"))
}

func packageName(path string) string {
	if path == "." {
		return "parti"
	}
	return path[strings.LastIndex(path, "/")+1:]
}

var errorName = regexp.MustCompile(`^[eE]rr[A-Z]`)

// errorVars returns the errors that a file declares at the top level; with each what it is a second name of, "" if it is its own.
func errorVars(f *ast.File) map[string]string {
	names := map[string]string{}
	for _, decl := range f.Decls {
		d, ok := decl.(*ast.GenDecl)
		if !ok || d.Tok != token.VAR {
			continue
		}
		for _, spec := range d.Specs {
			s := spec.(*ast.ValueSpec)
			for i, n := range s.Names {
				if i >= len(s.Values) || !errorName.MatchString(n.Name) {
					continue
				}
				names[n.Name] = ""
				if of, ok := s.Values[i].(*ast.SelectorExpr); ok {
					names[n.Name] = of.X.(*ast.Ident).Name + "." + of.Sel.Name
				}
			}
		}
	}
	return names
}

// errorUses returns the errors that the functions of a file mention other than to compare them, with the name of their package.
func errorUses(f *ast.File, pkg string) (uses []string) {
	compared := map[ast.Node]bool{}
	for _, decl := range f.Decls {
		d, ok := decl.(*ast.FuncDecl)
		if !ok {
			continue
		}
		ast.Inspect(d, func(n ast.Node) bool {
			if compared[n] {
				return false
			}
			switch n := n.(type) {
			case *ast.BinaryExpr:
				if n.Op == token.EQL || n.Op == token.NEQ {
					compared[n.X], compared[n.Y] = true, true
				}
			case *ast.CaseClause:
				for _, e := range n.List {
					if _, call := e.(*ast.CallExpr); !call {
						compared[e] = true
					}
				}
			case *ast.CallExpr:
				if s, ok := n.Fun.(*ast.SelectorExpr); ok && s.Sel.Name == "Is" && len(n.Args) == 2 {
					compared[n.Args[1]] = true
				}
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && errorName.MatchString(n.Sel.Name) {
					uses = append(uses, x.Name+"."+n.Sel.Name)
					return false
				}
			case *ast.Ident:
				if errorName.MatchString(n.Name) {
					uses = append(uses, pkg+"."+n.Name)
				}
			}
			return true
		})
	}
	return uses
}

// checksSettings are the functions in which a mention of a setting is no use of it.
var checksSettings = []string{"DefaultConfig", "defaultConfig", "setDefaults", "withDefaults", "Validate", "validate", "checkResolver"}

// settingsTypes are structs of settings that are not called so.
var settingsTypes = []string{"config", "LagAware", "Retry"}

// A setting that nothing reads is a lie. Looked at are the structs called Config, or something that ends so, of every package, and settingsTypes.
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
	for _, s := range []setting{{".", "HeartbeatTTL"}, {"consumer", "fetchWait"}, {"consumer", "Threshold"}, {"consumer", "Attempts"}} {
		require.Contains(t, declared, s)
	}
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
		if !ok || !strings.HasSuffix(typ.Name.Name, "Config") && !slices.Contains(settingsTypes, typ.Name.Name) {
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
