package loadgen_test

import (
	"strings"
	"testing"

	"locktop/internal/check"
	"locktop/loadgen/scenarios"
)

func TestEveryScenarioIsValidAndHasACaption(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range scenarios.All() {
		check.ErrorIs(t, s.Validate(), nil, "%s", s.Name)
		again, found := scenarios.Find(s.Name)
		check.True(t, found && again.Caption == s.Caption, "%s is found as %+v", s.Name, again)
		check.False(t, seen[s.Name], "%s is there twice", s.Name)
		seen[s.Name] = true
		check.True(t, strings.Count(s.Caption, ". ")+strings.Count(s.Caption, ".\"") == 1 && strings.HasSuffix(s.Caption, "."),
			"%s: the caption must be two sentences: %q", s.Name, s.Caption)
		check.True(t, s.Watch != "" && len(s.Expect) != 0 && s.Duration != 0, "%s says not where to look, what to expect or when it ends", s.Name)
	}
}

// What a row asks of a client process is valid for each; our own kinds run the rows that they can.
func TestEveryRowOfTheSuiteIsForAClientProcess(t *testing.T) {
	valid := 0
	for _, s := range scenarios.Suite() {
		check.ErrorIs(t, s.WithClient("x").Validate(), nil, "%s", s.Name)
		check.True(t, s.Caption != "" && s.Duration > 0, "%s has no caption or no end", s.Name)
		if s.Validate() == nil {
			valid++
		}
	}
	check.AtLeast(t, valid, 18, "rows for the kind that they name")
}
