package lock

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"locktop/internal/check"
)

// maxExported is the largest number of identifiers that the package exports.
const maxExported = 110

// What the package exports is a decision: testdata/api.txt lists it.
func TestTheExportedIdentifiersAreListed(t *testing.T) {
	t.Parallel()
	got := exported(t)
	check.AtMost(t, len(got), maxExported, "exported identifiers")
	want := strings.Fields(string(check.Must(os.ReadFile("testdata/api.txt"))(t)))
	for _, name := range got {
		check.True(t, slices.Contains(want, name), "testdata/api.txt lacks %s", name)
	}
	check.Equal(t, len(want), len(got), "lines of testdata/api.txt")
}

// exported returns the exported types, functions, methods, fields, constants and variables.
func exported(t *testing.T) (names []string) {
	files := token.NewFileSet()
	var parsed []*ast.File
	for _, path := range check.Must(filepath.Glob("*.go"))(t) {
		if !strings.HasSuffix(path, "_test.go") {
			parsed = append(parsed, check.Must(parser.ParseFile(files, path, nil, parser.ParseComments))(t))
		}
	}
	p := check.Must(doc.NewFromFiles(files, parsed, "locktop/lock", doc.AllDecls|doc.AllMethods))(t)
	values, funcs := append(p.Consts, p.Vars...), p.Funcs
	for _, typ := range p.Types {
		values, funcs = slices.Concat(values, typ.Consts, typ.Vars), append(funcs, typ.Funcs...)
		if !ast.IsExported(typ.Name) {
			continue
		}
		names = append(append(names, typ.Name), members(typ)...)
		for _, m := range typ.Methods {
			names = append(names, typ.Name+"."+m.Name)
		}
	}
	for _, f := range funcs {
		names = append(names, f.Name)
	}
	for _, v := range values {
		names = append(names, v.Names...)
	}
	names = slices.DeleteFunc(names, func(name string) bool { return !ast.IsExported(name[strings.LastIndexByte(name, '.')+1:]) })
	slices.Sort(names)
	return names
}

// members returns the fields of a struct, or the methods of an interface.
func members(t *doc.Type) (names []string) {
	ast.Inspect(t.Decl, func(n ast.Node) bool {
		list, is := n.(*ast.Field)
		if !is {
			return true
		}
		for _, name := range list.Names {
			names = append(names, t.Name+"."+name.Name)
		}
		if name, embedded := list.Type.(*ast.Ident); embedded && list.Names == nil {
			names = append(names, t.Name+"."+name.Name)
		}
		return false
	})
	return names
}
