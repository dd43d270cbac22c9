package certify

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// The page about the tests has all of them, in the words of the code.
func TestTheDocumentationHasAllTests(t *testing.T) {
	page, err := os.ReadFile("../docs/certify.md")
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	want.WriteString("| test | what happens, and what is a failure |\n| --- | --- |\n")
	for _, test := range Tests() {
		fmt.Fprintf(&want, "| `%s`: %s | %s |\n", test.Name, test.Title, test.About)
	}
	if !strings.Contains(string(page), "\n\n"+want.String()+"\n") {
		t.Errorf("the table of docs/certify.md must be:\n%s", want.String())
	}
}
