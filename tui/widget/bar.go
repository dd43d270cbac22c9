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

// Thumb returns the lines, from first up to but not including end, that stand
// for the part in sight of a list, when n lines from top on of total are. Where
// all is in sight there are none.
func Thumb(top, n, total int) (first, end int) {
	if n <= 0 || total <= n {
		return 0, 0
	}
	size := max(1, n*n/total)
	first = min(top*n/total, n-size)
	if top+n >= total {
		first = n - size
	}
	return first, first + size
}
