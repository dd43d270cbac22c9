package tui

import (
	"strings"

	tea "github.com/charmbracelet/bubbletea"

	"locktop/keyspace"
	"locktop/tui/widget"
)

// page is one of the full-screen pages. A page keeps its own cursor and order; its data comes
// from the state.
type page interface {
	title() string  // "" for the page without a number
	place() pageSet // the keys that it handles
	// update handles an action, a mouse event with line numbers of the page, and every message
	// that changed the state.
	update(*state, tea.Msg) tea.Cmd
	// summary draws the line above the page.
	summary(*state, *widget.Line)
	// view draws the page: at most h lines, each w cells wide.
	view(s *state, w, h int) []string
}

// subject is a page with a selected lock. ok is false if no lock is selected.
type subject interface {
	subject(*state) (l keyspace.Lock, ok bool)
}

// clickMsg is a click on a line of the page. wheelMsg is a turn of the wheel over the page;
// positive steps scroll down.
type (
	clickMsg struct{ x, y int }
	wheelMsg struct{ steps int }
)

// cursor is the selection in a list, and the scroll position. The selection follows its entry,
// identified by a key, when the list changes.
type cursor[K comparable] struct {
	chosen K
	any    bool // chosen is valid
	row    int  // current or last row of the entry
	top    int  // first visible line
}

// follow finds the selected entry in a changed list of n entries. If the entry is gone, the
// entry in its row becomes the selection.
func (c *cursor[K]) follow(n int, key func(int) K) {
	if c.any && c.row < n && key(c.row) == c.chosen {
		return
	}
	for i := 0; c.any && i < n; i++ {
		if key(i) == c.chosen {
			c.row = i
			return
		}
	}
	c.any = false
	c.choose(min(c.row, n-1), n, key)
}

// choose selects a row, or the nearest existing one.
func (c *cursor[K]) choose(row, n int, key func(int) K) {
	c.row = max(0, min(row, n-1))
	if n > 0 {
		c.chosen, c.any = key(c.row), true
	}
}

// travel moves the selection by a navigation action, with h visible lines. It returns false for
// other actions.
func (c *cursor[K]) travel(a action, n, h int, key func(int) K) bool {
	steps, ok := stride(a, n, h)
	if ok {
		c.choose(c.row+steps, n, key)
		c.reveal(n, h)
	}
	return ok
}

// stride returns the distance that an action moves in a list of n entries, of which h are
// visible.
func stride(a action, n, h int) (steps int, ok bool) {
	switch a {
	case up:
		return -1, true
	case down:
		return 1, true
	case pageUp:
		return -max(1, h), true
	case pageDown:
		return max(1, h), true
	case halfUp:
		return -max(1, h/2), true
	case halfDown:
		return max(1, h/2), true
	case first:
		return -n, true
	case last:
		return n, true
	}
	return 0, false
}

// reveal scrolls until the selection is among the h visible lines.
func (c *cursor[K]) reveal(n, h int) {
	c.top = max(0, min(c.top, n-h))
	if c.row < c.top {
		c.top = c.row
	}
	if h > 0 && c.row >= c.top+h {
		c.top = c.row - h + 1
	}
}

// margin is the width left of the table, for cursor, finding and tag.
const margin = 3

// gap returns the number of cells between columns.
func (s *state) gap() int {
	if s.screen.w < 100 {
		return 1
	}
	return 2
}

// pointer draws the cells left of a row.
func (s *state) pointer(l *widget.Line, selected bool) {
	cursor := " "
	if selected {
		cursor = s.screen.glyphs.Cursor
	}
	l.Put(s.screen.theme.key, cursor).Skip(widget.Style{}, margin-1)
}

// rule draws a horizontal line with a title on the left and a note on the right.
func (s *state) rule(title, note string) string { return s.ruleOf(s.screen.w, title, note) }

func (s *state) ruleOf(w int, title, note string) string {
	t, g := s.screen.theme, s.screen.glyphs
	l := widget.NewLine(w)
	l.Put(t.rule, strings.Repeat(g.Rule, 2))
	if room := w - 6; title != "" && room > 0 {
		l.Put(t.strong, " "+g.Fit(title, min(widget.Width(title), room))+" ")
	}
	if tail := widget.Width(note) + 4; note != "" && tail < l.Rest() {
		l.Put(t.rule, strings.Repeat(g.Rule, l.Rest()-tail)).Put(t.dim, " "+note+" ")
	}
	l.Put(t.rule, strings.Repeat(g.Rule, l.Rest()))
	return l.String()
}

// item draws a line with a label and a text.
func (s *state) item(w int, label string, st widget.Style, text string) string {
	l := widget.NewLine(w).Skip(widget.Style{}, margin).Put(s.screen.theme.dim, label).To(widget.Style{}, margin+10)
	return l.Put(st, s.screen.glyphs.FitEnd(text, l.Rest()-1)).String()
}

// items draws a label and a text in at most most lines.
func (s *state) items(w int, label string, st widget.Style, text string, most int) []string {
	var lines []string
	for _, part := range s.screen.glyphs.Wrap(text, max(1, w-margin-11), most) {
		lines = append(lines, s.item(w, label, st, part))
		label = ""
	}
	return lines
}

// sentence joins the facts that are not empty.
func (s *state) sentence(facts ...string) string {
	kept := facts[:0]
	for _, f := range facts {
		if f != "" {
			kept = append(kept, f)
		}
	}
	return strings.Join(kept, " "+s.screen.glyphs.Between+" ")
}

// paragraph draws one sentence per line.
func (s *state) paragraph(w int, sentences ...string) []string {
	var all []string
	for i, text := range sentences {
		st := s.screen.theme.text
		if i == 1 {
			st = s.screen.theme.strong
		}
		l := widget.NewLine(w).Skip(widget.Style{}, margin)
		all = append(all, l.Put(st, s.screen.glyphs.FitEnd(text, l.Rest()-1)).String())
	}
	return all
}

// wrapAnywhere draws the complete text, broken at any cell, in as many lines as necessary.
func (s *state) wrapAnywhere(w, indent int, st widget.Style, text string) []string {
	var lines []string
	for _, part := range widget.Break(text, max(1, w-indent-1)) {
		lines = append(lines, widget.NewLine(w).Skip(widget.Style{}, min(indent, w)).Put(st, part).String())
	}
	return lines
}
