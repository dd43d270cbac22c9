package tui

import (
	"locktop/keyspace"
	"locktop/tui/widget"
)

// theme says how things look by what they mean. Nothing is said by colour
// alone: wherever a colour tells a state, a word and a glyph tell it too.
type theme struct {
	text   widget.Style
	strong widget.Style
	dim    widget.Style
	chip   widget.Style // the program's name
	tab    widget.Style // the page that is open
	key    widget.Style // a key that can be pressed
	head   widget.Style // titles of columns
	sorted widget.Style // the title of the column that rows are sorted by
	row    widget.Style // the selected row
	rule   widget.Style
	good   widget.Style
	calm   widget.Style // good, and no reason to look there
	warn   widget.Style
	bad    widget.Style
	alarm  widget.Style // bad, and to be seen from afar
	read   widget.Style
	write  widget.Style
	chart  widget.Style
}

// systemTheme uses the terminal's own sixteen colours, and so fits its
// background whatever that is.
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
		alarm:  widget.SGR("1;37;41"),
		read:   widget.SGR("36"),
		write:  widget.SGR("35"),
		chart:  widget.SGR("32"),
	}
}

// monoTheme does without colour.
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
	}
}

// faded is the theme of a picture that is no longer true: all in one faint
// colour, only the selection still stands out.
func (t theme) faded() theme {
	faint := widget.SGR("2")
	return theme{
		text: faint, strong: faint, dim: faint, chip: t.chip, tab: t.tab, key: t.key,
		head: faint, sorted: faint, row: widget.SGR("2;7"), rule: faint,
		good: faint, calm: faint, warn: faint, bad: faint, alarm: faint, read: faint, write: faint, chart: faint,
	}
}

// ofState returns the glyph and the style that go with the word of a state.
func (s *state) ofState(st keyspace.State) (string, widget.Style) {
	g, t := s.glyphs, s.theme
	switch st {
	case keyspace.Held:
		return g.Dot, t.good
	case keyspace.Reading:
		return g.Half, t.read
	case keyspace.Writing:
		return g.Diamond, t.write
	case keyspace.Waiting:
		return g.Dotted, t.warn
	case keyspace.Stuck:
		return g.Alert, t.bad
	case keyspace.Partial:
		return g.Half, t.warn
	default:
		return g.Ring, t.dim
	}
}

// ofSeverity returns the glyph and the style of a finding.
func (s *state) ofSeverity(v keyspace.Severity) (string, widget.Style) {
	switch v {
	case keyspace.Critical:
		return s.glyphs.Alert, s.theme.bad
	case keyspace.Warning:
		return s.glyphs.Alert, s.theme.warn
	default:
		return s.glyphs.Between, s.theme.dim
	}
}
