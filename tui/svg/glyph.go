package svg

// A cell has cellWidth×cellHeight units, so that an eighth of a block is a whole number of
// units. At fontSize, letters of most monospace fonts (0.6 em wide) fill a cell.
const (
	cellWidth  = 8
	cellHeight = 16
	fontSize   = 13.33
	middle     = cellHeight / 2 // upper edge of a horizontal line
)

// rect is a filled part of a cell, in units from its upper left corner.
type rect struct{ x, y, w, h float64 }

// glyph is a character as geometry. In most fonts, blocks and lines leave gaps between cells.
type glyph struct {
	rects []rect
	shade float64 // opacity of the rects; 0 is solid
}

// shape returns the geometry of a block or a horizontal line, as charts,
// bars and rules consist of. It returns false for other characters: fonts draw them.
func shape(text string) (glyph, bool) {
	runes := []rune(text)
	if len(runes) != 1 {
		return glyph{}, false
	}
	switch r := runes[0]; {
	case r == '─':
		return glyph{rects: []rect{{0, middle, cellWidth, 1}}}, true
	case r == '┄':
		return glyph{rects: []rect{{0, middle, 2, 1}, {4, middle, 2, 1}}}, true
	case r >= '▁' && r <= '█': // grow from below
		h := float64(r-'▀') * cellHeight / 8
		return glyph{rects: []rect{{0, cellHeight - h, cellWidth, h}}}, true
	case r > '█' && r <= '▏': // shrink to the left
		return glyph{rects: []rect{{0, 0, float64('▐' - r), cellHeight}}}, true
	case r == '▐':
		return glyph{rects: []rect{{cellWidth / 2, 0, cellWidth / 2, cellHeight}}}, true
	case r > '▐' && r <= '▓': // ░▒▓
		return glyph{rects: []rect{{0, 0, cellWidth, cellHeight}}, shade: float64(r-'▐') / 4}, true
	}
	return glyph{}, false
}
