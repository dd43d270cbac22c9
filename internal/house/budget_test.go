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

// room is a group of packages with a budget: the greatest number of lines of its files, without
// those of tests.
type room struct {
	packages []string
	lines    int
}

// rooms are the packages that the program links.
var rooms = map[string]room{
	"lock":      {[]string{"lock", "lock/internal/transport", "lock/classic"}, 8_702},
	"keyspace":  {[]string{"keyspace", "keyspace/holds", "keyspace/contention", "keyspace/incident", "keyspace/order", "keyspace/internal/cache", "keyspace/internal/sorted"}, 9_853},
	"inspect":   {[]string{"keyspace/inspect", "keyspace/release"}, 8_612},
	"formats":   {[]string{"keyspace/formats"}, 5_078},
	"recording": {[]string{"keyspace/recording", "keyspace/metrics", "keyspace/metrics/web"}, 3_620},
	"loadgen":   {[]string{"loadgen", "loadgen/agents", "loadgen/external", "loadgen/fit", "loadgen/oracle", "loadgen/report", "loadgen/scenarios", "loadgen/witness"}, 14_367},
	"tui":       {[]string{"tui", "tui/svg", "tui/widget"}, 12_616},
	"cli":       {[]string{"cli", "cli/connect", "cli/demo", "cli/render"}, 13_391},
	"internal":  {[]string{".", "internal/htmlpage", "internal/humanize", "internal/netfault", "internal/server", "internal/shell", "internal/sigstop"}, 2_222},
}

// testOnly are the packages that only tests import: they count as tests.
var testOnly = []string{"internal/check", "internal/golden", "internal/house", "internal/servertest", "internal/testtier"}

// tools are packages of which no part is in the program: they make pages and pictures.
var tools = []string{"cli/manpages", "docs", "screenshots"}

// The greatest numbers of lines of all rooms together, and of the tests of this module.
const (
	programLines = 78_461
	testLines    = 55_794
)

// A change that needs more lines raises the budget in a commit of its own, with the reason.
func TestTheLinesKeepToTheBudget(t *testing.T) {
	code, tests := linesByPackage(t)
	program := 0
	for _, name := range slices.Sorted(maps.Keys(rooms)) {
		r, sum := rooms[name], 0
		for _, pkg := range r.packages {
			t.Logf("%6d %6d  %s", code[pkg], tests[pkg], pkg)
			sum += code[pkg]
			delete(code, pkg)
		}
		program += sum
		t.Logf("%6d of %d in room %s", sum, r.lines, name)
		check.True(t, sum <= r.lines, "room %s (%s) has %d lines, %d more than its budget", name, strings.Join(r.packages, ", "), sum, sum-r.lines)
	}
	all := 0
	for _, n := range tests {
		all += n
	}
	for _, pkg := range testOnly {
		all += code[pkg]
		delete(code, pkg)
	}
	for _, pkg := range tools {
		delete(code, pkg)
	}
	check.AtMost(t, len(code), 0, "packages without a room in internal/house/budget_test.go: %v", slices.Collect(maps.Keys(code)))
	t.Logf("%d of %d lines in the program, %d of %d in its tests", program, programLines, all, testLines)
	check.True(t, program <= programLines, "the program has %d lines, and its budget is %d", program, programLines)
	check.True(t, all <= testLines, "the tests have %d lines, and their budget is %d", all, testLines)
}

// linesByPackage returns the numbers of lines by package: of files without tests, and of tests.
func linesByPackage(t *testing.T) (code, tests map[string]int) {
	t.Helper()
	code, tests = make(map[string]int), make(map[string]int)
	eachFile(t, func(name string, _ *ast.File) {
		n := bytes.Count(check.Must(os.ReadFile(name))(t), []byte("\n"))
		check.True(t, n <= 500 || strings.HasSuffix(name, "_test.go"), "%s has %d lines, more than 500", name, n)
		if strings.HasSuffix(name, "_test.go") {
			tests[path.Dir(name)] += n
		} else {
			code[path.Dir(name)] += n
		}
	})
	return code, tests
}

// The rooms are the packages that the program links: none of them is only for tests.
func TestTheProgramLinksTheRoomsAndNothingElse(t *testing.T) {
	imports := make(map[string][]string)
	for _, f := range sources(t) {
		if !f.test {
			imports[f.pkg] = append(imports[f.pkg], f.imports...)
		}
	}
	linked, next := map[string]bool{".": true}, []string{"."}
	for len(next) > 0 {
		pkg := next[0]
		next = next[1:]
		for _, imp := range imports[pkg] {
			if ours, ok := strings.CutPrefix(imp, "locktop/"); ok && !linked[ours] {
				linked[ours], next = true, append(next, ours)
			}
		}
	}
	for name, r := range rooms {
		for _, pkg := range r.packages {
			check.True(t, linked[pkg], "the program does not link %s of room %s", pkg, name)
			delete(linked, pkg)
		}
	}
	check.AtMost(t, len(linked), 0, "the program links packages that are not in a room: %v", slices.Collect(maps.Keys(linked)))
}
