package tui

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"locktop/internal/humanize"
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
	// view draws the page for h lines, each w cells wide. Further lines are not shown.
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

// list is the rows of a page or of a menu, with the selected one and the scroll position. With set, the selection
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
	said := slices.DeleteFunc(facts, func(fact string) bool { return fact == "" })
	return strings.Join(said, " "+s.glyphs.Between+" ")
}

// paragraph draws one sentence per line.
func (s *screen) paragraph(w int, sentences ...string) []string {
	var all []string
	for i, text := range sentences {
		st := s.theme.text
		if i == 1 {
			st = s.theme.strong
		}
		all = append(all, s.fitted(w, margin, st, text))
	}
	return all
}

// fitted draws the beginning of a text that has room in one line.
func (s *screen) fitted(w, indent int, st widget.Style, text string) string {
	l := widget.NewLine(w).Pad(widget.Style{}, indent)
	return l.Put(st, s.glyphs.FitEnd(text, l.Rest()-1)).String()
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

// filter selects locks by what the screen shows of them.
//
//	word    part of the key, an owner, a waiter, the kind, the format or the state, in any case,
//	        or of a finding's kind; "finding" selects all locks that have a finding
//	!word   all locks that do not match word
//	~expr   a regular expression, in any case
type filter struct {
	text     string // as typed; "" matches everything
	word     string
	expr     *regexp.Regexp
	invert   bool
	parseErr string // why the expression is invalid, "" if it is valid
	last     string // text before it was cleared

	found, all int // number of entries that it selects, and of all, when the page was arranged
}

// matches says how many of all entries the filter selects.
func (f *filter) matches() string { return humanize.Count(f.found) + " of " + humanize.Count(f.all) }

// onKey handles the keys of the filter: search opens its prompt, back clears it, and nextMatch and
// lastMatch move among its rows, or bring the last filter back. It returns false for other actions.
func (f *filter) onKey(s *state, a action, p page) bool {
	steps := map[action]int{nextMatch: 1, lastMatch: -1}[a]
	switch {
	case a == search:
		s.dialog = f.prompt(s, p)
	case a == back && f.text == "":
		s.leave("nothing to leave: no pause, no filter, no tags")
	case a == back:
		*f = filter{last: f.text}
		p.arrange(s)
	case steps == 0:
		return false
	case f.text == "" && f.last == "":
		s.reject(s.keymap.named("no filter yet; {filter} sets one"))
	case f.text == "":
		*f = parseFilter(f.last)
		p.arrange(s)
	default:
		p.(scroller).scroll(s, steps)
	}
	return true
}

// prompt returns the prompt for the filter, with the number of matches or the error in the
// filter.
func (f *filter) prompt(s *state, p page) *prompt {
	d := newPrompt("/", f.text)
	d.typed = func(text string) {
		last := f.last
		*f = parseFilter(text)
		f.last = last
		p.arrange(s)
	}
	d.note = func(string) (string, bool) {
		if f.parseErr != "" {
			return f.parseErr, true
		}
		return f.matches(), false
	}
	return d
}

// segment returns the filter and the number of matches for a summary.
func (f *filter) segment(s *state) segment {
	if f.text == "" {
		return segment{}
	}
	return segment{style: s.screen.theme.key, text: f.shown(s) + "  " + f.matches(), priority: 1}
}

// shown returns the filter for display, without its text in privacy mode: the text is a part of a name.
func (f *filter) shown(s *state) string {
	if s.privacy.on {
		return "/(hidden)"
	}
	return "/" + widget.Plain(f.text)
}

// parseFilter parses the typed text. An invalid filter matches everything.
func parseFilter(text string) filter {
	f := filter{text: text}
	rest, invert := strings.CutPrefix(text, "!")
	f.invert = invert
	if source, ok := strings.CutPrefix(rest, "~"); ok {
		expr, err := regexp.Compile("(?i)" + source)
		if err != nil {
			f.parseErr = widget.Plain(strings.TrimPrefix(err.Error(), "error parsing regexp: "))
			return f
		}
		f.expr = expr
		return f
	}
	f.word = strings.ToLower(rest)
	return f
}

// active reports whether the filter can exclude anything.
func (f *filter) active() bool { return f.parseErr == "" && (f.word != "" || f.expr != nil) }

// lock reports whether the filter selects a lock. about holds the kinds of its findings.
func (f *filter) lock(l *keyspace.Lock, now time.Time, about string) bool {
	return !f.active() || (f.any(l.Key, string(l.Kind), l.Format, string(l.State(now))) || about != "" && f.contains(about) ||
		slices.ContainsFunc(l.Holders, func(h keyspace.Holder) bool { return f.any(h.Label, h.ID) }) ||
		slices.ContainsFunc(l.Waiters, func(w keyspace.Waiter) bool { return f.any(w.ID) })) != f.invert
}

// lane reports whether the filter selects a timeline lane, by its key or the names of its
// holders.
func (f *filter) lane(key string, owners func() []string) bool {
	return !f.active() || f.any(append(owners(), key)...) != f.invert
}

// any reports whether one of some texts, as the screen shows them, contains the word or matches the expression.
func (f *filter) any(texts ...string) bool {
	return slices.ContainsFunc(texts, func(text string) bool { return f.contains(widget.Plain(text)) })
}

func (f *filter) contains(text string) bool {
	if f.expr != nil {
		return f.expr.MatchString(text)
	}
	return strings.Contains(strings.ToLower(text), f.word)
}

// severityOrder is the name of the order bySeverity.
const severityOrder = "severity"

// sortMenu returns the menu of the columns to sort by, with the words of their titles.
func (p *locksPage) sortMenu() *menu {
	m := &menu{title: "sort by"}
	taken := "jkqv" // keys of a menu, and of the severity
	add := func(key, label, detail string, column int) {
		if column == p.sort {
			m.row, detail = len(m.choices), strings.TrimSpace(detail+" now; again: reversed")
		}
		m.choices = append(m.choices, choice{key: key, label: label, detail: detail, pick: func(s *state) (dialog, tea.Cmd) {
			p.sortBy(s, column)
			return nil, s.notify("order: " + p.orderText())
		}})
	}
	add("v", severityOrder, "worst first", bySeverity)
	for i, c := range p.columns() {
		free := strings.IndexFunc(c.name(), func(r rune) bool { return r != ' ' && !strings.ContainsRune(taken, r) })
		if c.less == nil || free < 0 {
			continue
		}
		taken += c.name()[free : free+1]
		add(c.name()[free:free+1], c.name(), "", i)
	}
	return m
}

// sortBy sorts by a column, or reverses its order.
func (p *locksPage) sortBy(s *state, column int) {
	p.reversed = column == p.sort && !p.reversed
	p.sort = column
	p.arrange(s)
}
