package svg

import "github.com/charmbracelet/x/cellbuf"

// cell is one cell of the screen.
type cell struct {
	text      string // one grapheme; "" after a wide one
	width     int    // of the grapheme, in cells
	ink       rgb
	paper     rgb
	bold      bool
	italic    bool
	underline bool
	strike    bool
}

// parse reads text with SGR sequences, one line per row, into height rows of width cells. It
// drops what does not fit.
func parse(text string, width, height int) [][]cell {
	buffer := cellbuf.NewBuffer(width, height)
	cellbuf.SetContent(buffer, text)
	grid := make([][]cell, height)
	for y := range grid {
		grid[y] = make([]cell, width)
		for x := range grid[y] {
			grid[y][x] = looks(buffer.Cell(x, y))
		}
	}
	return grid
}

// looks resolves a cell's colours and attributes.
func looks(c *cellbuf.Cell) cell {
	style := c.Style
	out := cell{
		text:      c.String(),
		width:     c.Width,
		ink:       ink(style.Fg),
		paper:     paper(style.Bg),
		bold:      style.Attrs.Contains(cellbuf.BoldAttr),
		italic:    style.Attrs.Contains(cellbuf.ItalicAttr),
		underline: style.UlStyle != cellbuf.NoUnderline,
		strike:    style.Attrs.Contains(cellbuf.StrikethroughAttr),
	}
	if style.Attrs.Contains(cellbuf.ReverseAttr) {
		out.ink, out.paper = out.paper, out.ink
	}
	if style.Attrs.Contains(cellbuf.FaintAttr) {
		out.ink = out.ink.faint(out.paper)
	}
	if style.Attrs.Contains(cellbuf.ConcealAttr) {
		out.ink = out.paper
	}
	return out
}
