package house

import (
	"flag"
	"fmt"
	"go/ast"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"locktop/internal/check"
)

var update = flag.Bool("update", false, "write what lab/docs/reliability.md says of the tests anew")

const reliabilityPage = "lab/docs/reliability.md"

// row is a table row of the page: the number of a scenario or promise, its
// text, and the tests, which this test generates.
var row = regexp.MustCompile(`^\| (P?\d+) \| (.+) \| (.*?) ?\|$`)

// Each scenario and promise on the page is covered by a test whose comment
// contains its number, and the page names exactly these tests.
func TestThePageOfReliabilityNamesTheTestsThatExist(t *testing.T) {
	page := check.Must(os.ReadFile(reliabilityPage))(t)
	covered := testsByNumber(t)
	lines := strings.Split(string(page), "\n")
	for i, line := range lines {
		cells := row.FindStringSubmatch(line)
		if cells == nil {
			continue
		}
		number := cells[1]
		tests := covered[number]
		delete(covered, number)
		if len(tests) == 0 && !strings.HasPrefix(cells[3], "not: ") {
			t.Errorf("%s (%s) has no test; name one in a test's comment (Scenario 7., Promise P7.), or say why not, beginning with \"not: \"", number, cells[2])
		}
		if strings.HasPrefix(number, "P") && !slices.ContainsFunc(tests, func(cell string) bool { return !strings.HasSuffix(cell, longTier) }) {
			t.Errorf("%s has no test in the first tier", number)
		}
		if len(tests) > 0 {
			lines[i] = fmt.Sprintf("| %s | %s | %s |", number, cells[2], strings.Join(tests, "<br>"))
		}
		promised, figure, _ := strings.Cut(cells[2], " | ")
		check.True(t, !strings.HasPrefix(number, "P") || promised != "" && figure != "", "%s has no figure", number)
	}
	for number, tests := range covered {
		t.Errorf("%v cover %s, which is not on the page", tests, number)
	}
	want := strings.Join(lines, "\n")
	switch {
	case want == string(page):
	case *update:
		check.NoError(t, os.WriteFile(reliabilityPage, []byte(want), 0o644))
	default:
		t.Errorf("%s is stale; write it anew: go test ./internal/house -run Reliability -update", reliabilityPage)
	}
}

var (
	mention = regexp.MustCompile(`[Ss]cenarios? (\d+(?:(?:,| and|–| to)\s+\d+|–\d+)*)`)
	number  = regexp.MustCompile(`\d+`)
	promise = regexp.MustCompile(`\bP\d+\b`)
	proof   = regexp.MustCompile(`^(Test|Fuzz)`)
)

// testsByNumber returns the names of the tests whose comments contain the
// number of a scenario or promise, by number.
func testsByNumber(t *testing.T) map[string][]string {
	t.Helper()
	covered := make(map[string][]string)
	eachFile(t, func(name string, file *ast.File) {
		for _, decl := range file.Decls {
			test, ok := decl.(*ast.FuncDecl)
			if !ok || !strings.HasSuffix(name, "_test.go") || !proof.MatchString(test.Name.Name) {
				continue
			}
			numbers := promise.FindAllString(test.Doc.Text(), -1)
			for _, n := range scenarios(test.Doc.Text()) {
				numbers = append(numbers, strconv.Itoa(n))
			}
			cell := "`" + path.Dir(name) + "." + test.Name.Name + "`"
			if isLong(test) {
				cell += longTier
			}
			for _, n := range numbers {
				covered[n] = append(covered[n], cell)
			}
		}
	})
	for _, tests := range covered {
		slices.Sort(tests)
	}
	return covered
}

// longTier follows the name of a test that the first tier skips.
const longTier = " (long)"

// isLong reports whether a test calls testtier.Long for all that it tests.
func isLong(test *ast.FuncDecl) bool {
	return slices.ContainsFunc(test.Body.List, func(s ast.Stmt) bool {
		line, ok := s.(*ast.ExprStmt)
		if !ok {
			return false
		}
		call, ok := line.X.(*ast.CallExpr)
		if !ok {
			return false
		}
		called, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return false
		}
		pkg, ok := called.X.(*ast.Ident)
		return ok && pkg.Name == "testtier" && called.Sel.Name == "Long"
	})
}

// scenarios returns the numbers in a comment. "27–29" are three numbers.
func scenarios(comment string) []int {
	var all []int
	for _, found := range mention.FindAllStringSubmatch(comment, -1) {
		list := found[1]
		last, end := 0, 0
		for _, at := range number.FindAllStringIndex(list, -1) {
			n, err := strconv.Atoi(list[at[0]:at[1]])
			if err != nil {
				continue
			}
			if last > 0 && strings.Contains(list[end:at[0]], "–") {
				for between := last + 1; between < n; between++ {
					all = append(all, between)
				}
			}
			all = append(all, n)
			last, end = n, at[1]
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}
