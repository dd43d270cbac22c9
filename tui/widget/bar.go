package widget

import (
	"math"
	"strings"
)

// Bar draws fraction (0 to 1) of w cells, in eighths of a cell, and returns it
// without the blanks that follow.
func (g Glyphs) Bar(fraction float64, w int) string {
	n := eighths(fraction, w)
	bar := strings.Repeat(g.Across[8], n/8)
	if n%8 == 0 || g.Across[n%8] == " " {
		return bar
	}
	return bar + g.Across[n%8]
}

// eighths is fraction of w cells in eighths of a cell. Something more than
// nothing is at least one eighth.
func eighths(fraction float64, w int) int {
	if !(fraction > 0) || w <= 0 { // also not a number
		return 0
	}
	return max(1, int(math.Round(min(fraction, 1)*float64(8*w))))
}
