package tui

import (
	"io"
	"slices"

	"github.com/charmbracelet/lipgloss"
	"github.com/muesli/termenv"

	"locktop/keyspace"
	"locktop/loadgen"
	"locktop/loadgen/oracle"
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

// namedTheme is a theme with its name. make makes it for a terminal.
type namedTheme struct {
	name string
	make func(*lipgloss.Renderer) theme
}

// themes lists all themes; the first is the default.
func themes() []namedTheme {
	dark := palette{
		accent: "80", good: "114", calm: "65", warn: "221", bad: "203", read: "75", write: "177",
		dim: "245", rule: "239", row: "237", ink: "234", owners: []lipgloss.Color{"246", "251", "249"},
	}
	light := palette{
		accent: "30", good: "28", calm: "71", warn: "130", bad: "160", read: "25", write: "91",
		dim: "243", rule: "250", row: "253", ink: "255", owners: []lipgloss.Color{"243", "239", "241"},
	}
	deuteranopia := dark // blue for good and orange for bad, for red-green blindness
	deuteranopia.accent, deuteranopia.good, deuteranopia.calm = "117", "75", "67"
	deuteranopia.warn, deuteranopia.bad, deuteranopia.read, deuteranopia.write = "228", "208", "153", "146"
	tritanopia := dark // turquoise for good and red for bad, for blue-yellow blindness
	tritanopia.good, tritanopia.calm = "43", "66"
	tritanopia.warn, tritanopia.bad, tritanopia.read, tritanopia.write = "218", "196", "159", "211"
	return []namedTheme{
		{"system", systemTheme},
		{"dark", dark.theme},
		{"light", light.theme},
		{"mono", monoTheme},
		{"deuteranopia", deuteranopia.theme},
		{"tritanopia", tritanopia.theme},
		{"contrast", contrastTheme},
	}
}

// Themes lists the valid names for [Config.Theme].
func Themes() []string {
	return mapped(themes(), func(t namedTheme) string { return t.name })
}

// themeNamed returns a theme by name. It returns the default for a name that it does not know.
func themeNamed(name string, r *lipgloss.Renderer) theme {
	all := themes()
	return all[max(0, slices.IndexFunc(all, func(t namedTheme) bool { return t.name == name }))].make(r)
}

// renderer returns the renderer for a terminal with these colours: lipgloss replaces colours
// that it does not have by the nearest ones, and leaves out all styles without a profile.
func renderer(colours termenv.Profile) *lipgloss.Renderer {
	r := lipgloss.NewRenderer(io.Discard)
	r.SetColorProfile(colours)
	return r
}

// The terminal's own colours, which its user has chosen.
const (
	black         = lipgloss.Color("0")
	red           = lipgloss.Color("1")
	green         = lipgloss.Color("2")
	yellow        = lipgloss.Color("3")
	magenta       = lipgloss.Color("5")
	cyan          = lipgloss.Color("6")
	white         = lipgloss.Color("7")
	grey          = lipgloss.Color("8")
	brightRed     = lipgloss.Color("9")
	brightGreen   = lipgloss.Color("10")
	brightYellow  = lipgloss.Color("11")
	brightMagenta = lipgloss.Color("13")
	brightCyan    = lipgloss.Color("14")
	brightWhite   = lipgloss.Color("15")
)

// systemTheme uses the terminal's own 16 colours, which fit any background.
func systemTheme(r *lipgloss.Renderer) theme {
	plain, faint := r.NewStyle(), r.NewStyle().Faint(true)
	t := palette{accent: cyan, good: green, warn: yellow, bad: red, read: cyan, write: magenta, rule: cyan, ink: black}.theme(r)
	t.dim, t.calm, t.band = widget.StyleOf(faint), widget.StyleOf(faint.Foreground(green)), widget.StyleOf(faint.Foreground(yellow))
	t.row = widget.StyleOf(plain.Foreground(black).Background(cyan))
	t.alarm = widget.StyleOf(plain.Bold(true).Reverse(true).Foreground(red)) // reverse video: the background colour on red is readable in every palette
	t.owners = owners(plain.Foreground(brightWhite), grey)
	return t
}

// owners returns the styles of owners: letters on a colour, and the colour as foreground.
// letter is the style of the letters.
func owners(letter lipgloss.Style, colours ...lipgloss.Color) []owner {
	return mapped(colours, func(c lipgloss.Color) owner {
		return owner{widget.StyleOf(letter.Background(c)), widget.StyleOf(letter.UnsetForeground().UnsetBold().Foreground(c))}
	})
}

// palette holds a theme's colours.
type palette struct {
	accent, good, calm, warn, bad, read, write lipgloss.Color
	dim, rule, row, ink                        lipgloss.Color // ink is the text colour on a coloured background
	owners                                     []lipgloss.Color
}

// theme returns the theme with these colours.
func (c palette) theme(r *lipgloss.Renderer) theme {
	plain := r.NewStyle()
	bold := plain.Bold(true)
	on := bold.Foreground(c.ink)
	return theme{
		strong: widget.StyleOf(bold),
		dim:    widget.StyleOf(plain.Foreground(c.dim)),
		chip:   widget.StyleOf(on.Background(c.accent)),
		tab:    widget.StyleOf(bold.Underline(true)),
		key:    widget.StyleOf(bold.Foreground(c.accent)),
		head:   widget.StyleOf(bold.Foreground(c.accent)),
		sorted: widget.StyleOf(bold.Underline(true).Foreground(c.accent)),
		row:    widget.StyleOf(bold.Background(c.row)),
		rule:   widget.StyleOf(plain.Foreground(c.rule)),
		good:   widget.StyleOf(plain.Foreground(c.good)),
		calm:   widget.StyleOf(plain.Foreground(c.calm)),
		warn:   widget.StyleOf(plain.Foreground(c.warn)),
		bad:    widget.StyleOf(bold.Foreground(c.bad)),
		alarm:  widget.StyleOf(on.Background(c.bad)),
		read:   widget.StyleOf(plain.Foreground(c.read)),
		write:  widget.StyleOf(plain.Foreground(c.write)),
		chart:  widget.StyleOf(plain.Foreground(c.good)),
		band:   widget.StyleOf(plain.Foreground(c.warn)),
		owners: owners(on, c.owners...),
	}
}

// contrastTheme has no faint colours.
func contrastTheme(r *lipgloss.Renderer) theme {
	bold := r.NewStyle().Bold(true)
	t := palette{accent: brightCyan, good: brightGreen, calm: brightGreen, warn: brightYellow, bad: brightRed}.theme(r)
	t.dim, t.rule = widget.Style{}, widget.Style{}
	t.head = widget.StyleOf(bold.Underline(true))
	reverse := widget.StyleOf(bold.Reverse(true))
	t.chip, t.tab, t.sorted, t.row = reverse, reverse, reverse, reverse
	t.good, t.warn = widget.StyleOf(bold.Foreground(brightGreen)), widget.StyleOf(bold.Foreground(brightYellow))
	t.read, t.write = widget.StyleOf(bold.Foreground(brightCyan)), widget.StyleOf(bold.Foreground(brightMagenta))
	t.alarm = widget.StyleOf(bold.Foreground(brightWhite).Background(red))
	t.owners = owners(bold.Foreground(black), white)
	return t
}

// monoTheme has no colours.
func monoTheme(r *lipgloss.Renderer) theme {
	plain := r.NewStyle()
	bold, faint, reverse := widget.StyleOf(plain.Bold(true)), widget.StyleOf(plain.Faint(true)), widget.StyleOf(plain.Bold(true).Reverse(true))
	underlined := widget.StyleOf(plain.Bold(true).Underline(true))
	return theme{
		strong: bold, dim: faint, chip: reverse, tab: underlined, key: bold,
		head: bold, sorted: underlined, row: widget.StyleOf(plain.Reverse(true)), rule: faint,
		calm: faint, warn: bold, bad: bold, alarm: reverse, write: bold,
		band: faint, owners: []owner{{reverse, widget.Style{}}},
	}
}

// faded returns the theme for stale data: one faint colour for all but the selection.
func (t theme) faded(r *lipgloss.Renderer) theme {
	style := r.NewStyle().Faint(true)
	faint, reverse := widget.StyleOf(style), widget.StyleOf(style.Reverse(true))
	return theme{
		text: faint, strong: faint, dim: faint, chip: t.chip, tab: t.tab, key: t.key,
		head: faint, sorted: faint, row: reverse, rule: faint,
		good: faint, calm: faint, warn: faint, bad: faint, alarm: faint, read: faint, write: faint, chart: faint,
		band: faint, owners: []owner{{reverse, faint}},
	}
}

// letters are the letters of owners.
const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// ofOwner returns letter number n and its style.
func (t theme) ofOwner(n int) (letter string, look owner) {
	return letters[n%len(letters) : n%len(letters)+1], t.owners[n%len(t.owners)]
}

// look returns the glyph and the style of a state of a lock or of a client, of a severity, or of an event of a lock or of
// the load.
func (s *state) look(of any) (string, widget.Style) {
	g, t := s.screen.glyphs, s.screen.theme
	if of == keyspace.Replaced && s.current().snap.Watch.Mode != keyspace.Push {
		of = keyspace.Released // most hand-overs between two polls look like a replacement
	}
	if e, ok := of.(loadgen.EventKind); ok {
		if kind, known := oracle.Violation(e).Kind(); known {
			of = kind.Severity
		}
	}
	switch of {
	case keyspace.Held, keyspace.Acquired, keyspace.Reentered, keyspace.HandedOver, loadgen.Inside:
		return g.Dot, t.good
	case keyspace.Discovered:
		return g.Dot, t.dim
	case keyspace.ReadHeld:
		return g.Half, t.read
	case keyspace.Partial:
		return g.Half, t.warn
	case keyspace.WriteHeld:
		return g.Diamond, t.write
	case keyspace.Waiting, keyspace.Lapsed:
		return g.Dotted, t.warn
	case keyspace.WaiterJoined, keyspace.WaiterLeft:
		return g.Dotted, t.dim
	case keyspace.Free:
		return g.Ring, t.dim
	case keyspace.Released, keyspace.Exited:
		return g.Ring, t.text
	case loadgen.Queued:
		return g.Ring, t.warn
	case keyspace.Critical, keyspace.Stuck, keyspace.Stolen, keyspace.Evicted, keyspace.Flushed, keyspace.Lost:
		return g.Alert, t.bad
	case keyspace.Warning, loadgen.FaultBegan, loadgen.Abandoned, oracle.Risky:
		return g.Alert, t.warn
	case keyspace.Replaced, keyspace.Expired, keyspace.TTLLost, keyspace.Deleted, keyspace.Vanished:
		return g.Cross, t.warn
	case loadgen.Dead:
		return g.Dead, t.bad
	case loadgen.Incomplete, oracle.Broken, oracle.Harmed:
		return g.Cross, t.bad
	case oracle.Harmless:
		return g.Check, t.good
	case loadgen.Frozen:
		return g.Frozen, t.read
	case loadgen.Partitioned:
		return g.CutOff, t.write
	case keyspace.Info:
		return g.Between, t.dim
	case loadgen.Acquired, loadgen.FaultEnded:
		return g.Point, t.text
	default:
		return g.Point, t.dim
	}
}
