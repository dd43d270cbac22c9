package widget

// Glyphs is what pictures are made of. Each string of one glyph is one cell
// wide.
type Glyphs struct {
	Ellipsis string    // stands for what was left out
	Rule     string    // a horizontal line
	Across   [9]string // from empty to full, filling from the left
	Upward   [9]string // from empty to full, filling from below
	Cursor   string    // marks the selected row
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
	None     string // there is no value
	Times    string
}

// Blocks are glyphs that every terminal with Unicode has.
func Blocks() Glyphs {
	return Glyphs{
		Ellipsis: "…",
		Rule:     "─",
		Across:   [9]string{" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉", "█"},
		Upward:   [9]string{" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"},
		Cursor:   "▌",
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
		None:     "-",
		Times:    "x",
	}
}
