// Package golden compares the output of tests with files.
package golden

import (
	"flag"
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
