package svg

import (
	"encoding/xml"
	"os"
	"slices"
	"strings"
	"testing"

	"locktop/internal/check"
	"locktop/internal/golden"
)

// image is the part of an SVG that the tests read.
type image struct {
	Cells struct {
		Rects []struct {
			X       float64 `xml:"x,attr"`
			Y       float64 `xml:"y,attr"`
			W       float64 `xml:"width,attr"`
			H       float64 `xml:"height,attr"`
			Fill    string  `xml:"fill,attr"`
			Opacity float64 `xml:"fill-opacity,attr"`
		} `xml:"rect"`
		Texts []struct {
			X      int    `xml:"x,attr"`
			Y      int    `xml:"y,attr"`
			Length int    `xml:"textLength,attr"`
			Fill   string `xml:"fill,attr"`
			Weight string `xml:"font-weight,attr"`
			Text   string `xml:",chardata"`
		} `xml:"text"`
	} `xml:"g"`
}

// drawnRow draws one row of text and reads the SVG back.
func drawnRow(t *testing.T, text string, width int) image {
	t.Helper()
	var p image
	check.NoError(t, xml.Unmarshal(Draw("a <title> & more", text, width, 1), &p))
	return p
}

func TestBlocksFillTheirPartOfTheCell(t *testing.T) {
	for text, want := range map[string]rect{
		"█": {0, 0, 8, 16}, "▉": {0, 0, 7, 16}, "▊": {0, 0, 6, 16}, "▋": {0, 0, 5, 16}, "▌": {0, 0, 4, 16},
		"▍": {0, 0, 3, 16}, "▎": {0, 0, 2, 16}, "▏": {0, 0, 1, 16}, "▐": {4, 0, 4, 16}, "─": {0, 8, 8, 1},
		"▁": {0, 14, 8, 2}, "▂": {0, 12, 8, 4}, "▃": {0, 10, 8, 6}, "▄": {0, 8, 8, 8},
		"▅": {0, 6, 8, 10}, "▆": {0, 4, 8, 12}, "▇": {0, 2, 8, 14},
	} {
		g, ok := shape(text)
		check.True(t, ok && len(g.rects) == 1 && g.rects[0] == want, "%s is drawn as %+v, want %v", text, g, want)
	}
}

func TestRectanglesCoverTheirCells(t *testing.T) {
	type got struct {
		x, w    float64
		fill    string
		opacity float64
	}
	green, red, blue := basicColour(2).String(), basicColour(1).String(), basicColour(4).String()
	for text, want := range map[string][]got{
		"\x1b[32m──██▌\x1b[31m█": {{0, 16, green, 0}, {16, 20, green, 0}, {40, 8, red, 0}}, // neighbours of one colour are one
		"░":                      {{0, 8, ink.String(), 0.25}},                             // shades let the background through
		"▒":                      {{0, 8, ink.String(), 0.5}},
		"▓":                      {{0, 8, ink.String(), 0.75}},
		"\x1b[4m  ":              {{0, 16, ink.String(), 0}}, // underlines also go under spaces
		" \x1b[44m ":             {{8, 8, blue, 0}},          // backgrounds that differ from the window
	} {
		p := drawnRow(t, text, 6)
		var all []got
		for _, r := range p.Cells.Rects {
			all = append(all, got{r.X, r.W, r.Fill, r.Opacity})
		}
		check.True(t, slices.Equal(all, want) && len(p.Cells.Texts) == 0,
			"the rectangles of %q are %v, want %v; left to the font: %v", text, all, want, p.Cells.Texts)
	}
}

func TestWordsBeginInTheirColumnAndFillTheirCells(t *testing.T) {
	p := drawnRow(t, "ab  \x1b[1;31mcd\x1b[0mé ●x鎖y", 13)
	type got struct {
		column, cells int
		text, weight  string
	}
	var all []got
	for _, x := range p.Cells.Texts {
		all = append(all, got{x.X / cellWidth, x.Length / cellWidth, x.Text, x.Weight})
	}
	want := []got{
		{0, 2, "ab", ""}, {4, 2, "cd", "bold"}, {6, 1, "é", ""},
		{8, 1, "●", ""}, {9, 1, "x", ""}, {10, 2, "鎖", ""}, {12, 1, "y", ""},
	}
	check.True(t, slices.Equal(all, want), "the words are %v, want %v", all, want)
}

func TestSampleIsDrawnAsBefore(t *testing.T) {
	text := check.Must(os.ReadFile("testdata/sample.ansi"))(t)
	golden.Check(t, "sample.svg", string(Draw("sample", string(text), 40, 6)))
}

func TestColoursAndAttributesAreReadFromTheSequences(t *testing.T) {
	own := cell{text: "x", width: 1, fg: ink, bg: paper}
	with := func(change func(*cell)) cell {
		c := own
		change(&c)
		return c
	}
	for sequence, want := range map[string]cell{
		"":                       own,
		"\x1b[31m":               with(func(c *cell) { c.fg = basicColour(1) }),
		"\x1b[96m":               with(func(c *cell) { c.fg = basicColour(14) }),
		"\x1b[38;5;9m":           with(func(c *cell) { c.fg = basicColour(9) }),
		"\x1b[38;5;196m":         with(func(c *cell) { c.fg = rgb{255, 0, 0} }),
		"\x1b[38;2;1;2;3m":       with(func(c *cell) { c.fg = rgb{1, 2, 3} }),
		"\x1b[48;2;1;2;3m":       with(func(c *cell) { c.bg = rgb{1, 2, 3} }),
		"\x1b[44m":               with(func(c *cell) { c.bg = basicColour(4) }),
		"\x1b[1;4m":              with(func(c *cell) { c.bold, c.underline = true, true }),
		"\x1b[7m":                with(func(c *cell) { c.fg, c.bg = c.bg, c.fg }),
		"\x1b[2m":                with(func(c *cell) { c.fg = c.fg.faint(c.bg) }),
		"\x1b[1;31;44m\x1b[0m":   own,
		"\x1b[31;44m\x1b[39;49m": own,
	} {
		got := parse(sequence+"x", 1, 1)[0][0]
		check.True(t, got == want, "%q makes %+v, want %+v", sequence, got, want)
	}
}

func TestColoursGoOnInTheNextLine(t *testing.T) {
	grid := parse("\x1b[31ma\nb", 2, 2)
	got := grid[1][0]
	check.True(t, got.text == "b" && got.fg == basicColour(1), "the second line begins with %+v", got)
}

func TestScreenHasItsSizeWhateverTheText(t *testing.T) {
	for _, text := range []string{"", "a", "abcdef\n\n\n\n\nabc", strings.Repeat("鎖", 9)} {
		grid := parse(text, 3, 2)
		check.True(t, len(grid) == 2 && len(grid[0]) == 3 && len(grid[1]) == 3, "%q does not make 3×2 cells", text)
	}
}
