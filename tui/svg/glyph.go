package svg

import (
	"fmt"
	"strings"
)

// A cell has cellWidth×cellHeight units, so that an eighth of a block is a whole number of
// units. At fontSize, letters of most monospace fonts (0.6 em wide) fill a cell.
const (
	cellWidth  = 8
	cellHeight = 16
	fontSize   = 13.33
)

// rect is a filled part of a cell, in units from its upper left corner.
type rect struct{ x, y, w, h float64 }

// glyph is a character as geometry. In most fonts, blocks and lines leave gaps between cells.
type glyph struct {
	rects  []rect
	shade  float64 // opacity of the rects; 0 is solid
	fill   string  // SVG path data to fill
	stroke string  // SVG path data to stroke
}

// shape returns the geometry of a character. It returns false for characters other than block
// elements, box lines (except double ones) and Braille.
func shape(text string) (glyph, bool) {
	runes := []rune(text)
	if len(runes) != 1 {
		return glyph{}, false
	}
	switch r := runes[0]; {
	case r >= '▀' && r <= '▟':
		return block(r), true
	case r >= '⠀' && r <= '⣿':
		return braille(r), true
	default:
		return box(r)
	}
}

// block returns U+2580 to U+259F.
func block(r rune) glyph {
	eighth := float64(cellHeight) / 8
	switch {
	case r == '▀':
		return glyph{rects: []rect{{0, 0, cellWidth, cellHeight / 2}}}
	case r <= '█': // ▁▂▃▄▅▆▇█ grow from below
		h := float64(r-'▀') * eighth
		return glyph{rects: []rect{{0, cellHeight - h, cellWidth, h}}}
	case r <= '▏': // ▉▊▋▌▍▎▏ shrink to the left
		return glyph{rects: []rect{{0, 0, float64('▐' - r), cellHeight}}}
	case r == '▐':
		return glyph{rects: []rect{{cellWidth / 2, 0, cellWidth / 2, cellHeight}}}
	case r <= '▓': // ░▒▓
		return glyph{rects: []rect{{0, 0, cellWidth, cellHeight}}, shade: float64(r-'▐') / 4}
	case r == '▔':
		return glyph{rects: []rect{{0, 0, cellWidth, eighth}}}
	case r == '▕':
		return glyph{rects: []rect{{cellWidth - 1, 0, 1, cellHeight}}}
	default:
		return quadrants(r)
	}
}

// quadrants returns ▖▗▘▙▚▛▜▝▞▟.
func quadrants(r rune) glyph {
	const w, h = cellWidth / 2, cellHeight / 2
	corners := [4]rect{{0, 0, w, h}, {w, 0, w, h}, {0, h, w, h}, {w, h, w, h}}
	filled := [...]string{"2", "3", "0", "023", "03", "012", "013", "1", "12", "123"}[r-'▖']
	var g glyph
	for _, corner := range filled {
		g.rects = append(g.rects, corners[corner-'0'])
	}
	return g
}

// braille returns U+2800 to U+28FF: one bit per dot, with the last row of dots in the two
// highest bits.
func braille(r rune) glyph {
	places := [8][2]int{{0, 0}, {0, 1}, {0, 2}, {1, 0}, {1, 1}, {1, 2}, {0, 3}, {1, 3}}
	var path strings.Builder
	for bit, place := range places {
		if (r-'⠀')>>bit&1 == 1 {
			x, y := 2+4*place[0], 2+4*place[1]
			fmt.Fprintf(&path, "M%g %da1.2 1.2 0 1 0 2.4 0a1.2 1.2 0 1 0-2.4 0", float64(x)-1.2, y)
		}
	}
	return glyph{fill: path.String()}
}

// Upper left corner of lines through the middle of a cell. The lines fill whole pixels and are
// therefore sharp.
const (
	middleX = cellWidth / 2
	middleY = cellHeight / 2
)

// box returns the light, heavy, dashed and round lines of U+2500 to U+257F.
func box(r rune) (glyph, bool) {
	switch r {
	case '┄', '┈':
		return glyph{rects: []rect{{0, middleY, 2, 1}, {4, middleY, 2, 1}}}, true
	case '┆', '┊':
		return glyph{rects: []rect{{middleX, 0, 1, 2}, {middleX, 4, 1, 2}, {middleX, 8, 1, 2}, {middleX, 12, 1, 2}}}, true
	case '╭':
		return glyph{stroke: "M4.5 16V12.5Q4.5 8.5 8 8.5"}, true
	case '╮':
		return glyph{stroke: "M0 8.5Q4.5 8.5 4.5 12.5V16"}, true
	case '╯':
		return glyph{stroke: "M4.5 0V4.5Q4.5 8.5 0 8.5"}, true
	case '╰':
		return glyph{stroke: "M4.5 0V4.5Q4.5 8.5 8 8.5"}, true
	case '╱':
		return glyph{stroke: "M8 0L0 16"}, true
	case '╲':
		return glyph{stroke: "M0 0L8 16"}, true
	case '╳':
		return glyph{stroke: "M8 0L0 16M0 0L8 16"}, true
	}
	rects := arms(r)
	return glyph{rects: rects}, rects != nil
}

// arms returns the straight lines of a box character, or nil for other characters.
func arms(r rune) []rect {
	const straight = "─│┌┐└┘├┤┬┴┼╴╵╶╷━┃┏┓┗┛┣┫┳┻╋╸╹╺╻"
	reach := [...]string{"lr", "ud", "rd", "ld", "ru", "lu", "rud", "lud", "lrd", "lru", "lrud", "l", "u", "r", "d"}
	i := 0
	for _, known := range straight {
		if known == r {
			thick := float64(1 + i/len(reach))
			return join(reach[i%len(reach)], thick)
		}
		i++
	}
	return nil
}

// join returns lines from the middle of a cell to the edges in sides (l, r, u, d). A line
// through the whole cell is one rectangle.
func join(sides string, thick float64) []rect {
	left, right := strings.Contains(sides, "l"), strings.Contains(sides, "r")
	up, down := strings.Contains(sides, "u"), strings.Contains(sides, "d")
	var rects []rect
	if left || right {
		x0, x1 := float64(middleX), middleX+thick
		if left {
			x0 = 0
		}
		if right {
			x1 = cellWidth
		}
		rects = append(rects, rect{x0, middleY, x1 - x0, thick})
	}
	if up || down {
		y0, y1 := float64(middleY), middleY+thick
		if up {
			y0 = 0
		}
		if down {
			y1 = cellHeight
		}
		rects = append(rects, rect{middleX, y0, thick, y1 - y0})
	}
	return rects
}
