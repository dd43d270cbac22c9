package house

import (
	"bytes"
	"go/ast"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"locktop/internal/check"
)

// TestLinesPerPackage prints the lines of Go of each package, for the budget in
// CONTRIBUTING.md. It fails only if it cannot read a file.
func TestLinesPerPackage(t *testing.T) {
	type size struct{ code, tests int }
	var all size
	packages := make(map[string]size)
	eachFile(t, func(name string, _ *ast.File) {
		text := check.Must(os.ReadFile(name))(t)
		n, s := bytes.Count(text, []byte("\n")), packages[path.Dir(name)]
		if strings.HasSuffix(name, "_test.go") {
			s.tests, all.tests = s.tests+n, all.tests+n
		} else {
			s.code, all.code = s.code+n, all.code+n
		}
		packages[path.Dir(name)] = s
	})
	for _, name := range slices.Sorted(maps.Keys(packages)) {
		t.Logf("%6d %6d  %s", packages[name].code, packages[name].tests, name)
	}
	t.Logf("%6d %6d  lines without tests, and of tests", all.code, all.tests)
}
