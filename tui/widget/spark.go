package widget

import "strings"

// Chart draws values as columns in h lines of w cells. top is the value of a full column. The
// last value is at the right edge. Values that do not fit are dropped from the start.
func (g Glyphs) Chart(values []float64, top float64, w, h int) []string {
	if w <= 0 || h <= 0 {
		return nil
	}
	if g.Fine {
		return fineChart(values, top, w, h)
	}
	values = values[max(0, len(values)-w):]
	heights := make([]int, len(values))
	for i, v := range values {
		if top > 0 {
			heights[i] = eighths(v/top, h)
		}
	}
	margin := strings.Repeat(" ", w-len(values))
	lines := make([]string, h)
	for row := range lines {
		var b strings.Builder
		b.WriteString(margin)
		below := 8 * (h - 1 - row)
		for _, n := range heights {
			b.WriteString(g.Upward[min(max(n-below, 0), 8)])
		}
		lines[row] = b.String()
	}
	return lines
}

// fineChart draws two values per cell in Braille dots, four dots per line.
func fineChart(values []float64, top float64, w, h int) []string {
	values = values[max(0, len(values)-2*w):]
	dots := make([]int, 2*w) // from the left edge
	for i, v := range values {
		if top > 0 {
			dots[2*w-len(values)+i] = (eighths(v/top, h) + 1) / 2
		}
	}
	column := func(n, below int, bits [5]rune) rune { return bits[min(max(n-below, 0), 4)] }
	lines := make([]string, h)
	for row := range lines {
		below := 4 * (h - 1 - row)
		var b strings.Builder
		for x := range w {
			cell := column(dots[2*x], below, [5]rune{0, 0x40, 0x44, 0x46, 0x47}) | column(dots[2*x+1], below, [5]rune{0, 0x80, 0xa0, 0xb0, 0xb8})
			if cell == 0 {
				b.WriteByte(' ')
				continue
			}
			b.WriteRune(0x2800 | cell)
		}
		lines[row] = b.String()
	}
	return lines
}

// Spark draws values in one line of w cells, as Chart does.
func (g Glyphs) Spark(values []float64, top float64, w int) string {
	return strings.Join(g.Chart(values, top, w, 1), "")
}

// RoundUp returns the next number for an axis label: 1, 2, 3, 4, 5, 6 or 8 times a power of
// ten, and 1 for all v below 1.
func RoundUp(v float64) float64 {
	for decade := 1.0; decade < 1e15; decade *= 10 {
		for _, step := range [...]float64{1, 2, 3, 4, 5, 6, 8} {
			if v <= step*decade {
				return step * decade
			}
		}
	}
	return v
}
