package tui

import (
	"cmp"
	"slices"
	"strings"

	tea "github.com/charmbracelet/bubbletea"

	"locktop/keyspace"
	"locktop/tui/widget"
)

// page is one of the full-screen pages. A page keeps its own selection and order; its data comes
// from the state.
type page interface {
	// arrange updates the page after a change of the state or of the window.
	arrange(*state)
	// act handles an action.
	act(*state, action) tea.Cmd
	// summary draws the line above the page.
	summary(*state, *widget.Line)
	// view draws the page: at most h lines, each w cells wide.
	view(s *state, w, h int) []string
}

// subject is a page with a selected lock. ok is false if no lock is selected.
type subject interface {
	subject(*state) (l keyspace.Lock, ok bool)
}

// scroller is a page that handles the wheel. Positive steps scroll down.
type scroller interface {
	scroll(s *state, steps int)
}

// clicker is a page that handles clicks. Line 0 is the first line of the page. again reports a click on the
// selected row, which does what Enter does.
type clicker interface {
	click(s *state, x, line int) (again bool)
}

// list is the rows of a page, with the selected one and the scroll position. With set, the selection
// follows its entry, identified by a key, when the rows change.
type list[K comparable] struct {
	keys    []K // of the rows, if set has changed them
	n, h    int // number of rows, and of visible rows
	chosen  K
	any     bool               // chosen is valid
	row     int                // current or last row of the entry
	top     int                // first visible row
	moved   bool               // the user moved the selection
	heading func(row int) bool // a row is the heading of the next one and cannot be selected; nil = no row is
	onMove  func()             // called when a row is selected; or nil
}

// set changes the rows. If the selected entry is gone, the entry in its row becomes the
// selection.
func (c *list[K]) set(keys []K, h int) {
	c.keys, c.n, c.h = keys, len(keys), h
	if !c.any || c.row >= len(keys) || keys[c.row] != c.chosen {
		if row := slices.Index(keys, c.chosen); c.any && row >= 0 {
			c.row = row
		} else {
			c.any = false
			c.choose(c.row)
		}
	}
	c.reveal()
}

// choose selects a row, or the nearest existing one.
func (c *list[K]) choose(row int) {
	c.row = max(0, min(row, c.n-1))
	if c.isHeading(c.row) {
		c.row++
	}
	if len(c.keys) > 0 {
		c.chosen, c.any = c.keys[c.row], true
	}
	if c.onMove != nil && c.n > 0 {
		c.onMove()
	}
	c.reveal()
}

func (c *list[K]) isHeading(row int) bool {
	return c.heading != nil && 0 <= row && row < c.n && c.heading(row)
}

// toFirst makes the next set select the first row.
func (c *list[K]) toFirst() { c.row, c.any = 0, false }

// navigate moves the selection by an action. It returns false for other actions.
func (c *list[K]) navigate(a action) bool {
	steps, ok := stride(a, c.n, c.h)
	if ok {
		c.scroll(nil, steps)
	}
	return ok
}

func (c *list[K]) scroll(_ *state, steps int) {
	if c.n == 0 {
		return
	}
	c.moved = true
	row := max(0, min(c.row+steps, c.n-1))
	if steps < 0 && c.isHeading(row) {
		row = max(0, row-1)
	}
	c.choose(row)
}

// click selects the row at a line below the title.
func (c *list[K]) click(_ *state, _, line int) (again bool) {
	row := c.top + line - 1
	if line <= 0 || line > c.h || row >= c.n {
		return false
	}
	again = row == c.row && c.moved
	c.moved = true
	c.choose(row)
	return again
}

// reveal scrolls until the selection is visible, with the heading above it.
func (c *list[K]) reveal() {
	least := c.row
	if c.h > 1 && c.isHeading(least-1) {
		least--
	}
	c.top = min(scrolled(c.top, c.n, c.h), least)
	if c.h > 0 && c.row >= c.top+c.h {
		c.top = c.row - c.h + 1
	}
}

// lines draws the first n visible rows.
func (c *list[K]) lines(w, n int, draw func(l *widget.Line, row int)) []string {
	var lines []string
	for row := c.top; row < min(c.top+n, c.n); row++ {
		l := widget.NewLine(w)
		draw(l, row)
		lines = append(lines, l.String())
	}
	return lines
}

// mapped returns what f makes of each element.
func mapped[T, U any](all []T, f func(T) U) []U {
	made := make([]U, len(all))
	for i, x := range all {
		made[i] = f(x)
	}
	return made
}

// count returns the number of elements for which is is true.
func count[T any](all []T, is func(*T) bool) (n int) {
	for i := range all {
		if is(&all[i]) {
			n++
		}
	}
	return n
}

// neighbour returns the next larger or smaller element of a sorted list, or the nearest one.
func neighbour[T cmp.Ordered](all []T, now T, direction int) T {
	i, exact := slices.BinarySearch(all, now)
	switch {
	case direction < 0:
		i--
	case exact:
		i++
	}
	return all[max(0, min(i, len(all)-1))]
}

// scrolled returns the first visible line nearest to top, if h of total lines are visible.
func scrolled(top, total, h int) int { return max(0, min(top, total-h)) }

// scrollBar draws the last cell of a row, if n of total rows are visible from top on.
func (s *screen) scrollBar(l *widget.Line, row, top, n, total int) {
	if first, end := widget.Scrollbar(top, n, total); row-top >= first && row-top < end {
		l.Pad(widget.Style{}, l.Rest()-1).Put(s.theme.rule, s.glyphs.Thumb)
	}
}

// stride returns the distance that an action moves in a list of n entries, of which h are
// visible.
func stride(a action, n, h int) (steps int, ok bool) {
	steps, ok = map[action]int{
		up: -1, down: 1, pageUp: -max(1, h), pageDown: max(1, h), halfUp: -max(1, h/2), halfDown: max(1, h/2), first: -n, last: n,
	}[a]
	return steps, ok
}

// margin is the width left of the table, for cursor, finding and tag.
const margin = 3

// gap returns the number of cells between columns.
func (s *screen) gap() int {
	if s.w < 100 {
		return 1
	}
	return 2
}

// cursor returns the first cell of a row.
func (s *screen) cursor(selected bool) string {
	if selected {
		return s.glyphs.Cursor
	}
	return " "
}

// pointer draws the cells left of a row.
func (s *screen) pointer(l *widget.Line, selected bool) {
	l.Put(s.theme.key, s.cursor(selected)).Pad(widget.Style{}, margin-1)
}

// ruleOf draws a horizontal line with a title on the left and a note on the right.
func (s *screen) ruleOf(w int, title, note string) string {
	t, g := s.theme, s.glyphs
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
func (s *screen) item(w int, label string, st widget.Style, text string) string {
	l := widget.NewLine(w).Pad(widget.Style{}, margin).Put(s.theme.dim, label).PadTo(widget.Style{}, margin+10)
	return l.Put(st, s.glyphs.FitEnd(text, l.Rest()-1)).String()
}

// items draws a label and a text in at most most lines.
func (s *screen) items(w int, label string, st widget.Style, text string, most int) []string {
	var lines []string
	for _, part := range s.glyphs.Wrap(text, max(1, w-margin-11), most) {
		lines = append(lines, s.item(w, label, st, part))
		label = ""
	}
	return lines
}

// sentence joins the facts that are not empty.
func (s *screen) sentence(facts ...string) string {
	kept := facts[:0]
	for _, f := range facts {
		if f != "" {
			kept = append(kept, f)
		}
	}
	return strings.Join(kept, " "+s.glyphs.Between+" ")
}

// paragraph draws one sentence per line.
func (s *screen) paragraph(w int, sentences ...string) []string {
	var all []string
	for i, text := range sentences {
		st := s.theme.text
		if i == 1 {
			st = s.theme.strong
		}
		l := widget.NewLine(w).Pad(widget.Style{}, margin)
		all = append(all, l.Put(st, s.glyphs.FitEnd(text, l.Rest()-1)).String())
	}
	return all
}

// wrapped draws a text in at most most lines.
func (s *screen) wrapped(w, indent int, st widget.Style, text string, most int) []string {
	return indented(w, indent, st, s.glyphs.Wrap(text, w-2*indent, most))
}

// indented draws lines of text.
func indented(w, indent int, st widget.Style, texts []string) []string {
	return mapped(texts, func(text string) string { return widget.NewLine(w).Pad(widget.Style{}, indent).Put(st, text).String() })
}

// filled appends blank lines until there are n.
func filled(lines []string, w, n int) []string {
	for len(lines) < n {
		lines = append(lines, strings.Repeat(" ", w))
	}
	return lines
}

// wrapAnywhere draws the complete text, broken at any cell, in as many lines as necessary.
func (s *screen) wrapAnywhere(w, indent int, st widget.Style, text string) []string {
	return indented(w, indent, st, widget.Chunk(text, max(1, w-indent-1)))
}
