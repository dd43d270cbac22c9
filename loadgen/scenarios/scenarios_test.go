package scenarios

import (
	"strings"
	"testing"

	"locktop/internal/check"
)

func TestEveryScenarioIsValidAndHasACaption(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range All() {
		check.ErrorIs(t, s.Validate(), nil, "%s", s.Name)
		check.False(t, seen[s.Name], "%s is there twice", s.Name)
		seen[s.Name] = true
		if n := strings.Count(s.Caption, ". ") + strings.Count(s.Caption, ".\""); n != 1 || !strings.HasSuffix(s.Caption, ".") {
			t.Errorf("%s: the caption must be two sentences: %q", s.Name, s.Caption)
		}
		if s.Watch == "" || len(s.Expect) == 0 || s.Duration == 0 {
			t.Errorf("%s says not where to look, what to expect or when it ends", s.Name)
		}
	}
}
