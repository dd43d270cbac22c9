package widget

import (
	"math"
	"strings"
)

// Bar draws a bar for fraction (0 to 1) of w cells, in eighths of a cell, without trailing
// blanks.
func (g Glyphs) Bar(fraction float64, w int) string {
	n := eighths(fraction, w)
	bar := strings.Repeat(g.Across[8], n/8)
	if n%8 == 0 || g.Across[n%8] == " " {
		return bar
	}
	return bar + g.Across[n%8]
}

// eighths returns fraction of w cells in eighths of a cell. It returns at least 1 for a
// positive fraction.
func eighths(fraction float64, w int) int {
	if !(fraction > 0) || w <= 0 { // includes NaN
		return 0
	}
	return max(1, int(math.Round(min(fraction, 1)*float64(8*w))))
}

// Thumb returns the lines of a scroll bar's thumb, from first up to but not including end, if n
// of total lines are visible from top on. It returns 0, 0 if all lines are visible.
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
