package main

import (
	"testing"

	"locktop/internal/check"
)

func TestACoverKillsWhatAllKill(t *testing.T) {
	killed := [][]string{{"a", "b"}, {"b"}, {"b", "c"}, {"c", "d"}, {}, {"d", "c"}, {"e"}}
	check.DeepEqual(t, cover(killed), []string{"b", "c", "e"}, "the cover")
}

// The text that a defect replaces is in the source once.
func TestEveryDefectIsOneOfTheSource(t *testing.T) {
	all, err := listed("../../lock", "defects.txt")
	check.True(t, err == nil && len(all) >= 25, "%d defects, %v", len(all), err)
}
