// Package golden checks the output of tests: against files, and that a page is well-formed.
package golden

import (
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files anew")

// Check compares a text with a file in the folder testdata of the calling test. With the
// flag -update it writes the file first.
func Check(t testing.TB, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got == string(want) {
		return
	}
	now, before := append(strings.Split(got, "\n"), "(end)"), append(strings.Split(string(want), "\n"), "(end)")
	for i := range min(len(now), len(before)) {
		if now[i] != before[i] {
			t.Fatalf("%s, line %d (if that is right, run the test with -update):\n got %s\nwant %s", path, i+1, now[i], before[i])
		}
	}
}

// WellFormed fails the test if an element of an HTML page is not closed, also an empty one
// like <br/>, or if an attribute is not quoted.
func WellFormed(t testing.TB, page string) {
	t.Helper()
	for d := xml.NewDecoder(strings.NewReader(page)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("the page is not well-formed: %v", err)
		}
	}
}
