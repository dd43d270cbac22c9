package svg

import (
	"fmt"
	"image/color"

	"github.com/charmbracelet/x/ansi"
	"github.com/charmbracelet/x/cellbuf"
)

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
		fg:        foreground(style.Fg),
		bg:        background(style.Bg),
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

// foreground returns a foreground colour; nil is the terminal's default.
func foreground(c color.Color) rgb {
	if c == nil {
		return rgb{0xd5, 0xd9, 0xe2}
	}
	return toRGB(c)
}

// background returns a background colour; nil is the terminal's default.
func background(c color.Color) rgb {
	if c == nil {
		return rgb{0x17, 0x1b, 0x24}
	}
	return toRGB(c)
}

// toRGB returns a colour of the image. The 16 basic colours are chosen for readability on
// paper(nil).
func toRGB(c color.Color) rgb {
	switch c := c.(type) {
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
