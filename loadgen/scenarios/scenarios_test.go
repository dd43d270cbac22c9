package scenarios

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestEveryScenarioIsValidAndHasACaption(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range All() {
		if err := s.Validate(); err != nil {
			t.Errorf("%s: %v", s.Name, err)
		}
		if seen[s.Name] {
			t.Errorf("%s is there twice", s.Name)
		}
		seen[s.Name] = true
		if n := strings.Count(s.Caption, ". ") + strings.Count(s.Caption, ".\""); n != 1 || !strings.HasSuffix(s.Caption, ".") {
			t.Errorf("%s: the caption must be two sentences: %q", s.Name, s.Caption)
		}
		if s.Watch == "" || len(s.Expect) == 0 || s.Duration == 0 {
			t.Errorf("%s says not where to look, what to expect or when it ends", s.Name)
		}
	}
}

func TestEveryFileIsListed(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		name := strings.ReplaceAll(strings.TrimSuffix(file, ".go"), "_", "-")
		if name == "scenarios" || strings.HasSuffix(file, "_test.go") {
			continue
		}
		if _, found := Find(name); !found {
			t.Errorf("%s is not in All, or holds a scenario of another name", file)
		}
		if text, err := os.ReadFile(file); err != nil || !strings.Contains(string(text), "Name:") {
			t.Errorf("%s: %v", file, err)
		}
	}
	for _, s := range All() {
		if !slices.Contains(files, strings.ReplaceAll(s.Name, "-", "_")+".go") {
			t.Errorf("%s has no file of its own", s.Name)
		}
	}
}
