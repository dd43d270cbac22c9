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
		check.True(t, strings.Count(s.Caption, ". ")+strings.Count(s.Caption, ".\"") == 1 && strings.HasSuffix(s.Caption, "."),
			"%s: the caption must be two sentences: %q", s.Name, s.Caption)
		check.True(t, s.Watch != "" && len(s.Expect) != 0 && s.Duration != 0, "%s says not where to look, what to expect or when it ends", s.Name)
	}
}
