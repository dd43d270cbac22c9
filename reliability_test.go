package main

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
)

var update = flag.Bool("update", false, "write what docs/reliability.md says of the tests anew")

const reliabilityPage = "docs/reliability.md"

// row is a line of the page's table: a number, what must be survived, and the
// tests, which are written here.
var row = regexp.MustCompile(`^\| (\d+) \| (.+?) \| (.*?) ?\|$`)

// Every scenario that the page lists is covered by a test whose comment carries
// its number, and the page names just these tests.
func TestThePageOfReliabilityNamesTheTestsThatExist(t *testing.T) {
	page, err := os.ReadFile(reliabilityPage)
	if err != nil {
		t.Fatal(err)
	}
	covered := testsByScenario(t)
	lines := strings.Split(string(page), "\n")
	for i, line := range lines {
		cells := row.FindStringSubmatch(line)
		if cells == nil {
			continue
		}
		number, err := strconv.Atoi(cells[1])
		if err != nil {
			t.Fatal(err)
		}
		tests := covered[number]
		delete(covered, number)
		if len(tests) == 0 && !strings.HasPrefix(cells[3], "not: ") {
			t.Errorf("scenario %d (%s) has no test; name one in a test's comment (Scenario %d.), or say why not, beginning with \"not: \"", number, cells[2], number)
		}
		if len(tests) > 0 {
			lines[i] = fmt.Sprintf("| %d | %s | %s |", number, cells[2], strings.Join(tests, "<br>"))
		}
	}
	for number, tests := range covered {
		t.Errorf("%v cover scenario %d, which is not on the page", tests, number)
	}
	want := strings.Join(lines, "\n")
	switch {
	case want == string(page):
	case *update:
		if err := os.WriteFile(reliabilityPage, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s is stale; write it anew: go test . -run Reliability -update", reliabilityPage)
	}
}

var (
	mention = regexp.MustCompile(`[Ss]cenarios? (\d+(?:(?:,| and|–| to)\s+\d+|–\d+)*)`)
	number  = regexp.MustCompile(`\d+`)
)

// testsByScenario returns the names of the tests whose comments carry a number.
func testsByScenario(t *testing.T) map[int][]string {
	t.Helper()
	covered := make(map[int][]string)
	eachFile(t, func(name string, file *ast.File) {
		for _, decl := range file.Decls {
			test, ok := decl.(*ast.FuncDecl)
			if !ok || !strings.HasSuffix(name, "_test.go") || !strings.HasPrefix(test.Name.Name, "Test") {
				continue
			}
			for _, n := range scenarios(test.Doc.Text()) {
				covered[n] = append(covered[n], "`"+path.Dir(name)+"."+test.Name.Name+"`")
			}
		}
	})
	for _, tests := range covered {
		slices.Sort(tests)
	}
	return covered
}

// scenarios returns the numbers that a comment mentions. "27–29" are three.
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

func TestScenarioNumbersAreReadFromComments(t *testing.T) {
	got := scenarios("Foo does. Scenarios 27–29 and 31, 40, and with a\nscenario 7 beside them. Not 12.")
	if want := []int{7, 27, 28, 29, 31, 40}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
