//go:build unix

package clienttest

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"locktop/internal/check"
)

// The page about the tests has all of them, in the words of the code.
func TestTheDocumentationHasAllTests(t *testing.T) {
	page := check.Must(os.ReadFile("../docs/certify.md"))(t)
	var want strings.Builder
	want.WriteString("| test | what happens, and what is a failure |\n| --- | --- |\n")
	for _, test := range Tests() {
		fmt.Fprintf(&want, "| `%s`: %s | %s |\n", test.Name, test.Title, test.About)
	}
	check.Contains(t, string(page), "\n\n"+want.String()+"\n", "the table of docs/certify.md")
}

// It names the tests that find the flaw of each historic form.
func TestTheDocumentationHasTheFlawOfEachHistoricForm(t *testing.T) {
	page := check.Must(os.ReadFile("../docs/certify.md"))(t)
	for form, tests := range flaws {
		row, found := rowBefore(string(page), "| `"+form+"` |\n")
		for _, test := range tests {
			check.True(t, found && strings.Contains(row, "`"+test+"`"), "the page lacks that %s finds the flaw of %s", test, form)
		}
	}
}

// rowBefore returns the line that has this end, without it.
func rowBefore(page, end string) (row string, found bool) {
	before, _, found := strings.Cut(page, end)
	return before[strings.LastIndex(before, "\n")+1:], found
}
