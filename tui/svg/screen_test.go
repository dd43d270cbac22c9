package svg

import (
	"strings"
	"testing"

	"locktop/internal/check"
)

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

func TestFaintLiesBetweenForegroundAndBackground(t *testing.T) {
	check.Equal(t, (rgb{200, 0, 100}).faint(rgb{0, 100, 100}), (rgb{110, 45, 100}), "faint")
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

func TestWideCharacterTakesTwoCells(t *testing.T) {
	row := parse("鎖x", 3, 1)[0]
	check.True(t, row[0].text == "鎖" && row[0].width == 2 && row[1].text == "" && row[2].text == "x", "the row is %+v", row)
}
