package tui

import (
	"strconv"

	"locktop/keyspace"
	"locktop/tui/widget"
)

// theme maps meanings to styles. A word and a glyph always repeat what a colour says.
type theme struct {
	text   widget.Style
	strong widget.Style
	dim    widget.Style
	chip   widget.Style // program name
	tab    widget.Style // open page
	key    widget.Style // key to press
	head   widget.Style // column titles
	sorted widget.Style // title of the sort column
	row    widget.Style // selected row
	rule   widget.Style
	good   widget.Style
	calm   widget.Style // good, and not worth attention
	warn   widget.Style
	bad    widget.Style
	alarm  widget.Style // bad, and conspicuous
	read   widget.Style
	write  widget.Style
	chart  widget.Style
	band   widget.Style // background of a time with an active fault
	owners []owner      // greys of owners on a timeline, whose colours mean waiting, overlap and fault; letters distinguish the owners
}

// owner is the style of one owner on a timeline.
type owner struct {
	letter widget.Style // on the owner's colour
	fill   widget.Style
}

// namedTheme is a theme with its name.
type namedTheme struct {
	name string
	make func() theme
}

// themes lists all themes; the first is the default.
func themes() []namedTheme {
	return []namedTheme{
		{"system", systemTheme},
		{"dark", darkTheme},
		{"light", lightTheme},
		{"mono", monoTheme},
		{"deuteranopia", deuteranopiaTheme},
		{"tritanopia", tritanopiaTheme},
		{"contrast", contrastTheme},
	}
}

// Themes lists the valid names for [Config.Theme].
func Themes() []string {
	var names []string
	for _, l := range themes() {
		names = append(names, l.name)
	}
	return names
}

// themeNamed returns a theme by name. It returns the default for "" and, with false, for an
// unknown name.
func themeNamed(name string) (theme, bool) {
	for _, l := range themes() {
		if l.name == name {
			return l.make(), true
		}
	}
	return systemTheme(), name == ""
}

// systemTheme uses the terminal's own 16 colours, which fit any background.
func systemTheme() theme {
	return theme{
		strong: widget.SGR("1"),
		dim:    widget.SGR("2"),
		chip:   widget.SGR("1;30;46"),
		tab:    widget.SGR("1;4"),
		key:    widget.SGR("1;36"),
		head:   widget.SGR("1;36"),
		sorted: widget.SGR("1;4;36"),
		row:    widget.SGR("30;46"),
		rule:   widget.SGR("36"),
		good:   widget.SGR("32"),
		calm:   widget.SGR("2;32"),
		warn:   widget.SGR("33"),
		bad:    widget.SGR("1;31"),
		alarm:  widget.SGR("1;7;31"), // reverse video: the background colour on red is readable in every palette
		read:   widget.SGR("36"),
		write:  widget.SGR("35"),
		chart:  widget.SGR("32"),
		band:   widget.SGR("33;2"),
		owners: owners("97;", 90),
	}
}

// owners returns the styles of owners in basic colours: letters on a colour, and the colour as
// foreground. letter is the SGR prefix of the letters.
func owners(letter string, colours ...int) []owner {
	var all []owner
	for _, c := range colours {
		all = append(all, owner{widget.SGR(letter + strconv.Itoa(c+10)), widget.SGR(strconv.Itoa(c))})
	}
	return all
}

// palette holds a theme's colours as numbers of the 256-colour palette.
type palette struct {
	accent, good, calm, warn, bad, read, write string
	dim, rule, row, ink                        string // ink is the text colour on a coloured background
	owners                                     []string
}

func (r palette) theme() theme {
	fg := func(colour string) widget.Style { return widget.SGR("38;5;" + colour) }
	bold := func(colour string) widget.Style { return widget.SGR("1;38;5;" + colour) }
	on := func(colour string) widget.Style { return widget.SGR("1;38;5;" + r.ink + ";48;5;" + colour) }
	t := theme{
		strong: widget.SGR("1"),
		dim:    fg(r.dim),
		chip:   on(r.accent),
		tab:    widget.SGR("1;4"),
		key:    bold(r.accent),
		head:   bold(r.accent),
		sorted: widget.SGR("1;4;38;5;" + r.accent),
		row:    widget.SGR("1;48;5;" + r.row),
		rule:   fg(r.rule),
		good:   fg(r.good),
		calm:   fg(r.calm),
		warn:   fg(r.warn),
		bad:    bold(r.bad),
		alarm:  on(r.bad),
		read:   fg(r.read),
		write:  fg(r.write),
		chart:  fg(r.good),
		band:   fg(r.warn),
	}
	for _, colour := range r.owners {
		t.owners = append(t.owners, owner{on(colour), fg(colour)})
	}
	return t
}

// darkTheme is for a dark background.
func darkTheme() theme {
	return palette{
		accent: "80", good: "114", calm: "65", warn: "221", bad: "203", read: "75", write: "177",
		dim: "245", rule: "239", row: "237", ink: "234",
		owners: []string{"246", "251", "249"},
	}.theme()
}

// lightTheme is for a light background.
func lightTheme() theme {
	return palette{
		accent: "30", good: "28", calm: "71", warn: "130", bad: "160", read: "25", write: "91",
		dim: "243", rule: "250", row: "253", ink: "255",
		owners: []string{"243", "239", "241"},
	}.theme()
}

// deuteranopiaTheme uses blue for good and orange for bad, for red-green blindness.
func deuteranopiaTheme() theme {
	return palette{
		accent: "117", good: "75", calm: "67", warn: "228", bad: "208", read: "153", write: "146",
		dim: "245", rule: "239", row: "237", ink: "234",
		owners: []string{"246", "251", "249"},
	}.theme()
}

// tritanopiaTheme uses turquoise for good and red for bad, for blue-yellow blindness.
func tritanopiaTheme() theme {
	return palette{
		accent: "80", good: "43", calm: "66", warn: "218", bad: "196", read: "159", write: "211",
		dim: "245", rule: "239", row: "237", ink: "234",
		owners: []string{"246", "251", "249"},
	}.theme()
}

// contrastTheme has no faint colours.
func contrastTheme() theme {
	return theme{
		strong: widget.SGR("1"),
		chip:   widget.SGR("1;7"),
		tab:    widget.SGR("1;7"),
		key:    widget.SGR("1;96"),
		head:   widget.SGR("1;4"),
		sorted: widget.SGR("1;7"),
		row:    widget.SGR("1;7"),
		good:   widget.SGR("1;92"),
		calm:   widget.SGR("92"),
		warn:   widget.SGR("1;93"),
		bad:    widget.SGR("1;91"),
		alarm:  widget.SGR("1;97;41"),
		read:   widget.SGR("1;96"),
		write:  widget.SGR("1;95"),
		chart:  widget.SGR("92"),
		band:   widget.SGR("93"),
		owners: owners("1;30;", 37),
	}
}

// monoTheme has no colours.
func monoTheme() theme {
	return theme{
		strong: widget.SGR("1"),
		dim:    widget.SGR("2"),
		chip:   widget.SGR("1;7"),
		tab:    widget.SGR("1;4"),
		key:    widget.SGR("1"),
		head:   widget.SGR("1"),
		sorted: widget.SGR("1;4"),
		row:    widget.SGR("7"),
		rule:   widget.SGR("2"),
		calm:   widget.SGR("2"),
		warn:   widget.SGR("1"),
		bad:    widget.SGR("1"),
		alarm:  widget.SGR("1;7"),
		write:  widget.SGR("1"),
		band:   widget.SGR("2"),
		owners: []owner{{widget.SGR("1;7"), widget.Style{}}},
	}
}

// bareTheme has no escape sequences.
func bareTheme() theme { return theme{owners: make([]owner, 1)} }

// faded returns the theme for stale data: one faint colour for all but the selection.
func (t theme) faded() theme {
	faint := widget.SGR("2")
	return theme{
		text: faint, strong: faint, dim: faint, chip: t.chip, tab: t.tab, key: t.key,
		head: faint, sorted: faint, row: widget.SGR("2;7"), rule: faint,
		good: faint, calm: faint, warn: faint, bad: faint, alarm: faint, read: faint, write: faint, chart: faint,
		band: faint, owners: []owner{{widget.SGR("2;7"), faint}},
	}
}

// letters are the letters of owners.
const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// ofOwner returns letter number n and its style.
func (t theme) ofOwner(n int) (letter string, look owner) {
	return letters[n%len(letters) : n%len(letters)+1], t.owners[n%len(t.owners)]
}

// ofState returns the glyph and the style of a lock's state.
func (s *state) ofState(st keyspace.State) (string, widget.Style) {
	g, t := s.screen.glyphs, s.screen.theme
	switch st {
	case keyspace.Held:
		return g.Dot, t.good
	case keyspace.ReadHeld:
		return g.Half, t.read
	case keyspace.WriteHeld:
		return g.Diamond, t.write
	case keyspace.Waiting:
		return g.Dotted, t.warn
	case keyspace.Stuck:
		return g.Alert, t.bad
	case keyspace.Partial:
		return g.Half, t.warn
	case keyspace.Lapsed:
		return g.Dotted, t.warn
	default:
		return g.Ring, t.dim
	}
}

// ofSeverity returns the glyph and the style of a severity.
func (s *state) ofSeverity(v keyspace.Severity) (string, widget.Style) {
	switch v {
	case keyspace.Critical:
		return s.screen.glyphs.Alert, s.screen.theme.bad
	case keyspace.Warning:
		return s.screen.glyphs.Alert, s.screen.theme.warn
	default:
		return s.screen.glyphs.Between, s.screen.theme.dim
	}
}
