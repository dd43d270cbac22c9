package main

import (
	"testing"

	"locktop/internal/check"
)

func TestACoverKillsWhatAllKill(t *testing.T) {
	killed := [][]string{{"a", "b"}, {"b"}, {"b", "c"}, {"c", "d"}, {}, {"d", "c"}, {"e"}}
	check.DeepEqual(t, cover(killed), []string{"b", "c", "e"}, "the cover")
}
