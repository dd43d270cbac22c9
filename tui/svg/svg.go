// Package svg converts a frame of the screen, as text with SGR sequences, to an SVG image.
// Letters stay text; the blocks and lines of charts become geometry without gaps.
package svg

import (
	"bytes"
	"fmt"
	"html"
	"image/color"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
	"github.com/charmbracelet/x/cellbuf"
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
	c, grid := &canvas{}, parse(text, columns, rows)
	c.open(title, grid)
	for y, row := range grid {
		c.tiles(row, func(x int, one cell) {
			if one.bg != paper {
				c.tile(x, y, rect{0, 0, cellWidth, cellHeight}, one.bg, 0)
			}
		})
		c.tiles(row, func(x int, one cell) {
			g, _ := shape(one.text)
			for _, r := range g.rects {
				c.tile(x, y, r, one.fg, g.shade)
			}
		})
		c.words(y, row)
		c.tiles(row, func(x int, one cell) { // not as text decorations, because they also cover spaces
			if one.underline {
				c.tile(x, y, rect{0, cellHeight - 2, cellWidth, 1}, one.fg, 0)
			}
		})
	}
	c.buf.WriteString("</g>\n</svg>\n")
	return c.buf.Bytes()
}

// open writes everything around the cells.
func (c *canvas) open(title string, grid [][]cell) {
	w := cellWidth*len(grid[0]) + 2*margin
	h := cellHeight*len(grid) + bar + margin
	fmt.Fprintf(&c.buf, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img">`+"\n", w, h, w, h)
	fmt.Fprintf(&c.buf, "<title>%s</title>\n", html.EscapeString(title))
	fmt.Fprintf(&c.buf, `<rect x="0.5" y="0.5" width="%d" height="%d" rx="9" fill="%s" stroke="#3a4252"/>`+"\n", w-1, h-1, paper)
	for i, light := range []string{"#f0655c", "#e8b43f", "#58b85a"} {
		fmt.Fprintf(&c.buf, `<circle cx="%d" cy="%d" r="5.5" fill="%s"/>`+"\n", margin+6+20*i, bar/2, light)
	}
	fmt.Fprintf(&c.buf, `<text x="%d" y="%d" text-anchor="middle" font-family="system-ui, sans-serif" font-size="13" fill="#8b94a6">%s</text>`+"\n",
		w/2, bar/2+5, html.EscapeString(title))
	fmt.Fprintf(&c.buf, `<g transform="translate(%d %d)" font-family="ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace" font-size="%g">`+"\n",
		margin, bar, fontSize)
}

// tiles draws the tiles of one kind in a row: draw adds those of one cell.
func (c *canvas) tiles(row []cell, draw func(x int, one cell)) {
	for x, one := range row {
		draw(x, one)
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
	for n < len(row) && isText(row[n]) && fillsOneCell(row[n]) && row[n].fg == row[0].fg && row[n].bold == row[0].bold {
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
		cellWidth*x, cellHeight*y+baseline, cellWidth*width, cells[0].fg, weight, html.EscapeString(text))
}

// cell is one cell of the screen.
type cell struct {
	text      string // one grapheme; "" after a wide one
	width     int    // of the grapheme, in cells
	fg        rgb
	bg        rgb
	bold      bool
	underline bool
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
			grid[y][x] = resolve(buffer.Cell(x, y))
		}
	}
	return grid
}

// resolve resolves a cell's colours and those attributes that themes use.
func resolve(c *cellbuf.Cell) cell {
	style := c.Style
	out := cell{
		text:      c.String(),
		width:     c.Width,
		fg:        toRGB(style.Fg, ink),
		bg:        toRGB(style.Bg, paper),
		bold:      style.Attrs.Contains(cellbuf.BoldAttr),
		underline: style.UlStyle != cellbuf.NoUnderline,
	}
	if style.Attrs.Contains(cellbuf.ReverseAttr) {
		out.fg, out.bg = out.bg, out.fg
	}
	if style.Attrs.Contains(cellbuf.FaintAttr) {
		out.fg = out.fg.faint(out.bg)
	}
	return out
}

// rgb is a colour of the image.
type rgb struct{ r, g, b uint8 }

// String returns the colour in SVG syntax.
func (c rgb) String() string { return fmt.Sprintf("#%02x%02x%02x", c.r, c.g, c.b) }

// faint returns the colour mixed with the background colour.
func (c rgb) faint(paper rgb) rgb {
	mix := func(a, b uint8) uint8 { return uint8((int(a)*11 + int(b)*9) / 20) }
	return rgb{mix(c.r, paper.r), mix(c.g, paper.g), mix(c.b, paper.b)}
}

// The terminal's default colours.
var ink, paper = rgb{0xd5, 0xd9, 0xe2}, rgb{0x17, 0x1b, 0x24}

// toRGB returns a colour of the image; nil is the default. The 16 basic colours are chosen for readability on paper.
func toRGB(c color.Color, byDefault rgb) rgb {
	switch c := c.(type) {
	case nil:
		return byDefault
	case ansi.BasicColor:
		return basicColour(int(c))
	case ansi.IndexedColor:
		if c < 16 {
			return basicColour(int(c))
		}
	}
	r, g, b, _ := c.RGBA()
	return rgb{uint8(r >> 8), uint8(g >> 8), uint8(b >> 8)}
}

func basicColour(i int) rgb {
	return [16]rgb{
		{0x2b, 0x31, 0x3d}, {0xf0, 0x71, 0x78}, {0x8f, 0xcf, 0x7b}, {0xe8, 0xc4, 0x6c},
		{0x6c, 0xa8, 0xf0}, {0xc8, 0x96, 0xe8}, {0x63, 0xc8, 0xd0}, {0xc3, 0xc9, 0xd4},
		{0x70, 0x7a, 0x8c}, {0xff, 0x8b, 0x92}, {0xa9, 0xe3, 0x96}, {0xff, 0xdc, 0x8a},
		{0x8f, 0xc1, 0xff}, {0xdd, 0xb3, 0xf7}, {0x87, 0xe0, 0xe7}, {0xf5, 0xf7, 0xfa},
	}[i]
}

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
