package widget

import "strings"

// Glyphs is a set of characters to draw with. Each glyph is one cell wide.
type Glyphs struct {
	Ellipsis  string    // replaces omitted text
	Rule      string    // horizontal line
	Across    [9]string // from empty to full, filled from the left
	Upward    [9]string // from empty to full, filled from below
	Cursor    string    // selected row
	Thumb     string    // thumb of a scroll bar
	Up, Down  string    // directions
	Dot       string    // full
	Ring      string    // empty
	Half      string    // shared
	Diamond   string
	Dotted    string // expected
	Alert     string
	Cross     string
	Play      string // playing
	Paused    string // paused
	Check     string
	Frozen    string // client that does not run
	CutOff    string // client without a connection
	Shared    string // fill of shared holds
	Dead      string // sign of a dead client
	Contended string // fill of holds while others wait
	Dashed    string // fill of a free lock with waiters
	Clash     string // fill of overlapping holds
	Behind    string // fill of a highlighted time
	Between   string // separator in a line
	Point     string // at rest
	None      string // no value
	Times     string
	AtLeast   string              // prefix of a lower bound
	Spell     func(string) string // replaces arrows and the like; nil leaves them
}

// Word returns text with arrows and similar characters replaced for this set.
func (g Glyphs) Word(text string) string {
	if g.Spell == nil {
		return text
	}
	return g.Spell(text)
}

// The glyphs of both sets, in blocks and in ASCII.
var blocks, plain = glyphsOf(0), glyphsOf(1)

// glyphsOf returns set n.
func glyphsOf(n int) Glyphs {
	type set [2]string
	return Glyphs{
		Ellipsis:  set{"…", "~"}[n],
		Rule:      set{"─", "-"}[n],
		Across:    [2][9]string{{" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉", "█"}, {" ", " ", " ", " ", "-", "-", "-", "=", "#"}}[n],
		Upward:    [2][9]string{{" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"}, {" ", ".", ".", ".", ":", ":", "|", "|", "#"}}[n],
		Cursor:    set{"▌", ">"}[n],
		Thumb:     set{"▐", "|"}[n],
		Up:        set{"▲", "^"}[n],
		Down:      set{"▼", "v"}[n],
		Dot:       set{"●", "*"}[n],
		Ring:      set{"○", "o"}[n],
		Half:      set{"◐", "%"}[n],
		Diamond:   set{"◆", "#"}[n],
		Dotted:    set{"◌", "."}[n],
		Alert:     set{"▲", "!"}[n],
		Cross:     set{"✗", "x"}[n],
		Play:      set{"▶", ">"}[n],
		Paused:    set{"‖", "="}[n],
		Check:     set{"✓", "+"}[n],
		Frozen:    set{"◇", "="}[n],
		CutOff:    set{"⊘", "/"}[n],
		Shared:    set{"▒", "%"}[n],
		Dead:      set{"✝", "+"}[n],
		Contended: set{"▓", "&"}[n],
		Dashed:    set{"┄", "."}[n],
		Clash:     set{"!", "!"}[n],
		Behind:    set{"░", ":"}[n],
		Between:   set{"·", "|"}[n],
		Point:     set{"·", "."}[n],
		None:      set{"–", "-"}[n],
		Times:     set{"×", "x"}[n],
		AtLeast:   set{"≥", ">"}[n],
		Spell:     [2]func(string) string{nil, strings.NewReplacer("←", "<", "→", ">", "↑", "Up", "↓", "Down", "…", "..").Replace}[n],
	}
}

// Blocks returns glyphs that every Unicode terminal has.
func Blocks() Glyphs { return blocks }

// ASCII returns glyphs for terminals without Unicode.
func ASCII() Glyphs { return plain }

// GlyphSets lists the names for GlyphsNamed; the first is the default.
func GlyphSets() []string { return []string{"block", "ascii"} }

// GlyphsNamed returns a set by name. It returns the default for a name that it does not know.
func GlyphsNamed(name string) Glyphs {
	if name == "ascii" {
		return ASCII()
	}
	return Blocks()
}
