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
	Play     string // time goes on
	Paused   string // time stands still
	Check    string
	Frozen   string // somebody who does not move
	Severed  string // somebody out of reach
	Shared   string // fills what several have at once
	Dashed   string // fills what nobody has
	Clash    string // fills what two have who must not
	Behind   string // fills a time that stands out
	Between  string // separates words of one line
	Point    string // something at rest
	None     string // there is no value
	Times    string
	AtLeast  string              // of a value that may be more
	Fine     bool                // charts have two columns to a cell
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
		Play:     "▶",
		Paused:   "‖",
		Check:    "✓",
		Frozen:   "◇",
		Severed:  "⊘",
		Shared:   "▒",
		Dashed:   "┄",
		Clash:    "!",
		Behind:   "░",
		Between:  "·",
		Point:    "·",
		None:     "–",
		Times:    "×",
		AtLeast:  "≥",
	}
}

// Braille are Blocks that draw with dots, and charts twice as fine.
func Braille() Glyphs {
	g := Blocks()
	g.Across = [9]string{" ", "⡀", "⡄", "⡆", "⡇", "⣇", "⣧", "⣷", "⣿"}
	g.Upward = [9]string{" ", "⣀", "⣀", "⣤", "⣤", "⣶", "⣶", "⣿", "⣿"}
	g.Fine = true
	return g
}

// GlyphSets are the names that GlyphsNamed knows; the first is the default.
func GlyphSets() []string { return []string{"block", "braille", "ascii"} }

// GlyphsNamed returns a set by its name, the default for "". Of a name that
// there is not it returns the default, too, and false.
func GlyphsNamed(name string) (g Glyphs, ok bool) {
	switch name {
	case "braille":
		return Braille(), true
	case "ascii":
		return ASCII(), true
	default:
		return Blocks(), name == "" || name == "block"
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
		Play:     ">",
		Paused:   "=",
		Check:    "+",
		Frozen:   "=",
		Severed:  "/",
		Shared:   "%",
		Dashed:   ".",
		Clash:    "!",
		Behind:   ":",
		Between:  "|",
		Point:    ".",
		None:     "-",
		Times:    "x",
		AtLeast:  ">",
		Spell:    strings.NewReplacer("←", "<", "→", ">", "↑", "Up", "↓", "Down", "…", "..").Replace,
	}
}
