package svg

import (
	"encoding/xml"
	"os"
	"slices"
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
	check.NoError(t, xml.Unmarshal(draw("a <title> & more", parse(text, width, 1)), &p))
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

func TestMarkupInTextIsOnlyText(t *testing.T) {
	p := drawnRow(t, `<b>&"x"`, 7)
	check.True(t, len(p.Cells.Texts) == 1 && p.Cells.Texts[0].Text == `<b>&"x"`, "the words are %+v", p.Cells.Texts)
}

func TestSampleIsDrawnAsBefore(t *testing.T) {
	text := check.Must(os.ReadFile("testdata/sample.ansi"))(t)
	golden.Check(t, "sample.svg", string(draw("sample", parse(string(text), 40, 6))))
}
