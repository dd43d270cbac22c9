// Package svg converts a frame of the screen, as text with SGR sequences, to an SVG image.
// Letters stay text; the blocks and lines of charts become geometry without gaps.
package svg

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"unicode/utf8"
)

// The window around the cells, in units.
const (
	margin = 16
	bar    = 32 // title bar above the cells
)

// canvas collects the elements of an image.
type canvas struct {
	buf     bytes.Buffer
	pending tile // not yet written, because the next tile may extend it
}

// tile is a filled rectangle of the image.
type tile struct {
	rect
	colour rgb
	shade  float64
}

// Draw returns an SVG of text, one line per row, in a window of columns×rows cells with a
// title. It drops what does not fit.
func Draw(title, text string, columns, rows int) []byte {
	return draw(title, parse(text, columns, rows))
}

// draw returns an SVG of the screen in a window with a title.
func draw(title string, grid [][]cell) []byte {
	c := &canvas{}
	c.open(title, grid)
	for y, row := range grid {
		c.backgrounds(y, row)
		c.shapes(y, row)
		c.words(y, row)
		c.underlines(y, row)
	}
	c.buf.WriteString("</g>\n</svg>\n")
	return c.buf.Bytes()
}

// open writes everything around the cells.
func (c *canvas) open(title string, grid [][]cell) {
	w := cellWidth*len(grid[0]) + 2*margin
	h := cellHeight*len(grid) + bar + margin
	fmt.Fprintf(&c.buf, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img">`+"\n", w, h, w, h)
	fmt.Fprintf(&c.buf, "<title>%s</title>\n", escape(title))
	fmt.Fprintf(&c.buf, `<rect x="0.5" y="0.5" width="%d" height="%d" rx="9" fill="%s" stroke="#3a4252"/>`+"\n", w-1, h-1, background(nil))
	for i, light := range []string{"#f0655c", "#e8b43f", "#58b85a"} {
		fmt.Fprintf(&c.buf, `<circle cx="%d" cy="%d" r="5.5" fill="%s"/>`+"\n", margin+6+20*i, bar/2, light)
	}
	fmt.Fprintf(&c.buf, `<text x="%d" y="%d" text-anchor="middle" font-family="system-ui, sans-serif" font-size="13" fill="#8b94a6">%s</text>`+"\n",
		w/2, bar/2+5, escape(title))
	fmt.Fprintf(&c.buf, `<g transform="translate(%d %d)" font-family="ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace" font-size="%g">`+"\n",
		margin, bar, fontSize)
}

func (c *canvas) backgrounds(y int, row []cell) {
	for x, cell := range row {
		if cell.bg != background(nil) {
			c.tile(x, y, rect{0, 0, cellWidth, cellHeight}, cell.bg, 0)
		}
	}
	c.flush()
}

// shapes draws the characters with a geometry.
func (c *canvas) shapes(y int, row []cell) {
	for x, cell := range row {
		g, ok := shape(cell.text)
		if !ok {
			continue
		}
		for _, r := range g.rects {
			c.tile(x, y, r, cell.fg, g.shade)
		}
	}
	c.flush()
}

// underlines draws the underlines. They are not text decorations, because they also cover
// spaces.
func (c *canvas) underlines(y int, row []cell) {
	for x, cell := range row {
		if cell.underline {
			c.tile(x, y, rect{0, cellHeight - 2, cellWidth, 1}, cell.fg, 0)
		}
	}
	c.flush()
}

// tile adds a rectangle of the cell at x, y. It merges adjacent rectangles, because gaps
// between them would be visible.
func (c *canvas) tile(x, y int, r rect, ink rgb, shade float64) {
	r.x += float64(cellWidth * x)
	r.y += float64(cellHeight * y)
	p := &c.pending
	if p.w > 0 && p.colour == ink && p.shade == shade && p.y == r.y && p.h == r.h && p.x+p.w == r.x {
		p.w += r.w
		return
	}
	c.flush()
	c.pending = tile{r, ink, shade}
}

func (c *canvas) flush() {
	p := c.pending
	c.pending = tile{}
	if p.w == 0 {
		return
	}
	opacity := ""
	if p.shade > 0 {
		opacity = fmt.Sprintf(` fill-opacity="%g"`, p.shade)
	}
	fmt.Fprintf(&c.buf, `<rect x="%g" y="%g" width="%g" height="%g" fill="%s"%s/>`+"\n", p.x, p.y, p.w, p.h, p.colour, opacity)
}

// words writes the row's text word by word. If a font is not as wide as the cells, each word
// still begins in its column.
func (c *canvas) words(y int, row []cell) {
	for x := 0; x < len(row); {
		n := wordLength(row[x:])
		if n > 0 {
			c.word(x, y, row[x:x+n])
		}
		x += max(n, 1)
	}
}

// wordLength returns the number of cells at the start of row that form one text element:
// characters of one style, or a single character that fonts render differently. It returns 0 if
// the first cell is not text.
func wordLength(row []cell) int {
	if !isText(row[0]) {
		return 0
	}
	n := 1
	if !fillsOneCell(row[0]) {
		return n
	}
	for n < len(row) && isText(row[n]) && fillsOneCell(row[n]) && row[n].looksLike(row[0]) {
		n++
	}
	return n
}

func isText(c cell) bool {
	_, drawn := shape(c.text)
	return !drawn && c.text != "" && c.text != " "
}

// fillsOneCell reports whether every font has the character in a width of one cell.
func fillsOneCell(c cell) bool {
	r, size := utf8.DecodeRuneInString(c.text)
	return size == len(c.text) && r < 0x250 && c.width == 1
}

func (c cell) looksLike(o cell) bool {
	return c.fg == o.fg && c.bold == o.bold
}

// word writes the text of cells, stretched to their exact width.
func (c *canvas) word(x, y int, cells []cell) {
	text, width := "", 0
	for _, cell := range cells {
		text += cell.text
		width += cell.width
	}
	weight := ""
	if cells[0].bold {
		weight = ` font-weight="bold"`
	}
	const baseline = 12
	fmt.Fprintf(&c.buf, `<text x="%d" y="%d" textLength="%d" lengthAdjust="spacingAndGlyphs" fill="%s"%s>%s</text>`+"\n",
		cellWidth*x, cellHeight*y+baseline, cellWidth*width, cells[0].fg, weight, escape(text))
}

func escape(text string) string {
	var buf bytes.Buffer
	_ = xml.EscapeText(&buf, []byte(text)) // a bytes.Buffer never fails
	return buf.String()
}
