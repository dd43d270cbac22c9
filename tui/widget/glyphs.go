package widget

import "strings"

// Glyphs is what pictures are made of. Each string of one glyph is one cell
// wide.
type Glyphs struct {
	Ellipsis string    // stands for what was left out
	Rule     string    // a horizontal line
	Across   [9]string // from empty to full, filling from the left
	Upward   [9]string // from empty to full, filling from below
	Cursor   string    // marks the selected row
	Thumb    string    // shows at the right edge which part of a list is in sight
	Up, Down string    // directions
	Dot      string    // something full
	Ring     string    // something empty
	Half     string    // something shared
	Diamond  string
	Dotted   string // something expected
	Alert    string
	Cross    string
	Check    string
	Between  string // separates words of one line
	Point    string // something at rest
	None     string // there is no value
	Times    string
	Spell    func(string) string // writes arrows and the like with what the set has; nil leaves them
}

// Word returns text that was written with arrows and the like, written with
// what the set has.
func (g Glyphs) Word(text string) string {
	if g.Spell == nil {
		return text
	}
	return g.Spell(text)
}

// Blocks are glyphs that every terminal with Unicode has.
func Blocks() Glyphs {
	return Glyphs{
		Ellipsis: "…",
		Rule:     "─",
		Across:   [9]string{" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉", "█"},
		Upward:   [9]string{" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"},
		Cursor:   "▌",
		Thumb:    "▐",
		Up:       "▲",
		Down:     "▼",
		Dot:      "●",
		Ring:     "○",
		Half:     "◐",
		Diamond:  "◆",
		Dotted:   "◌",
		Alert:    "▲",
		Cross:    "✗",
		Check:    "✓",
		Between:  "·",
		Point:    "·",
		None:     "–",
		Times:    "×",
	}
}

// ASCII are glyphs for terminals without Unicode.
func ASCII() Glyphs {
	return Glyphs{
		Ellipsis: "~",
		Rule:     "-",
		Across:   [9]string{" ", " ", " ", " ", "-", "-", "-", "=", "#"},
		Upward:   [9]string{" ", ".", ".", ".", ":", ":", "|", "|", "#"},
		Cursor:   ">",
		Thumb:    "|",
		Up:       "^",
		Down:     "v",
		Dot:      "*",
		Ring:     "o",
		Half:     "%",
		Diamond:  "#",
		Dotted:   ".",
		Alert:    "!",
		Cross:    "x",
		Check:    "+",
		Between:  "|",
		Point:    ".",
		None:     "-",
		Times:    "x",
		Spell:    strings.NewReplacer("←", "<", "→", ">", "↑", "Up", "↓", "Down").Replace,
	}
}
