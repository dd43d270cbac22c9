package tui

import (
	"fmt"
	"strings"

	"locktop/internal/humanize"
	"locktop/keyspace"
	"locktop/tui/widget"
)

// previewLines returns the height of the preview in lines.
func (s *state) previewLines() int {
	if s.screen.h < 28 {
		return 7
	}
	return 8
}

// height returns the number of visible rows.
func (p *locksPage) height(s *state) int { return p.rowsIn(s, s.frame().body) }

func (p *locksPage) rowsIn(s *state, h int) int {
	if s.frame().compact {
		return h
	}
	h-- // the titles
	if p.previews(s) && !p.beside(s) {
		h -= s.previewLines()
	}
	return max(0, h)
}

// roomForPreview is the window height in lines from which the preview is available.
const roomForPreview = 22

// previews reports whether the preview is visible.
func (p *locksPage) previews(s *state) bool {
	return !p.hide && !s.frame().compact && s.screen.h >= roomForPreview
}

// besideFrom is the window width from which the selected lock is beside the table. besideWidth
// is the width of the lock there.
const (
	besideFrom  = 160
	besideWidth = 56
)

// beside reports whether the full details of the selected lock are beside the table instead of
// a preview below it. A wide table leaves no room for them.
func (p *locksPage) beside(s *state) bool {
	return p.previews(s) && s.screen.w >= besideFrom && !p.wide
}

// tableWidth returns the width of the table.
func (p *locksPage) tableWidth(s *state) int {
	if p.beside(s) {
		return s.screen.w - besideWidth
	}
	return s.screen.w
}

func (p *locksPage) togglePreview(s *state) {
	if s.frame().compact || s.screen.h < roomForPreview {
		s.reject(fmt.Sprintf("no room for a preview: it takes 60 columns and %d lines", roomForPreview))
		return
	}
	p.hide = !p.hide
	p.reveal(s)
}

func (p *locksPage) view(s *state, w, h int) []string {
	if s.frame().compact {
		return p.compactRows(s, w, h)
	}
	if p.beside(s) {
		table := p.table(s, p.tableWidth(s), p.rowsIn(s, h))
		return widget.JoinHorizontal(table, p.tableWidth(s), p.inspector(s, h), besideWidth)
	}
	lines := p.table(s, w, p.rowsIn(s, h))
	if p.previews(s) {
		lines = append(lines, p.preview(s, w)...)
	}
	return lines
}

// lockPage returns the selected lock as a lockPage.
func (p *locksPage) lockPage() lockPage {
	return lockPage{id: p.chosen, last: p.last, seen: p.seen, gone: p.gone}
}

// inspector draws the selected lock as lockPage does, in h lines.
func (p *locksPage) inspector(s *state, h int) []string {
	if p.chosen == (keyspace.ID{}) {
		return nil
	}
	const edge = 2
	page := p.lockPage()
	lines := append([]string{s.ruleOf(besideWidth-edge, s.redactKey(p.last.Key), "")}, page.text(s, besideWidth-edge)...)
	lines = lines[:min(h, len(lines))]
	for i := range lines {
		lines[i] = strings.Repeat(" ", edge) + lines[i]
	}
	return lines
}

// table draws the titles and n rows.
func (p *locksPage) table(s *state, w, n int) []string {
	columns := p.columns()
	table := p.layout(s, w)
	sign := s.screen.glyphs.Down
	if p.reversed {
		sign = s.screen.glyphs.Up
	}
	head := widget.NewLine(w).Pad(widget.Style{}, margin)
	table.Header(head, s.screen.theme.head, s.screen.theme.sorted, p.sort, sign)
	lines := append(make([]string, 0, n+1), head.String())
	if len(p.rows) == 0 {
		return p.empty(s, lines, w, n)
	}
	now := s.clock()
	for i := range n {
		row := p.top + i
		if row >= len(p.rows) {
			lines = append(lines, strings.Repeat(" ", w))
			continue
		}
		l := widget.NewLine(w)
		if heading := p.rows[row].heading; heading != nil {
			s.ownerHeading(l, heading)
		} else {
			v := lockView{s.current().locks[p.rows[row].lock], now, s}
			p.tableRow(l, table, columns, v, row == p.row && !p.gone)
		}
		s.scrollBar(l, row, p.top, n, len(p.rows))
		lines = append(lines, l.String())
	}
	return lines
}

// roomForTitles is the table width from which the number of holds has a word as its title.
const roomForTitles = 110

// roomForAll is the table width from which all columns are shown beside the details.
const roomForAll = 140

// layout lays the columns out in w cells.
func (p *locksPage) layout(s *state, w int) widget.Table {
	columns := p.columns()
	shapes := make([]widget.Column, len(columns))
	for i, c := range columns {
		shapes[i] = c.Column
		if c.name == "count" && w < roomForTitles {
			shapes[i].Title, shapes[i].Min = s.screen.glyphs.Times, 3
		}
		switch {
		case c.name == "key": // as wide as the longest key
			shapes[i].Max = max(p.keyWidth, c.Min)
			if !p.wide {
				shapes[i].Min = min(shapes[i].Max, max(c.Min, w*28/100))
			}
		case c.name == "owner":
			shapes[i].Max = max(min(p.ownerWidth, c.Max), c.Min)
		case p.beside(s) && w < roomForAll: // the details show format and TTL bar already, and the names need the room
			shapes[i].Off = c.Title == "" || c.name == "format"
			shapes[i].Max = 0
		}
	}
	return widget.NewTable(s.screen.glyphs, shapes, w-margin-1, s.gap())
}

// tableRow draws a row except for its last cell.
func (p *locksPage) tableRow(l *widget.Line, table widget.Table, columns []column, v lockView, selected bool) {
	var base widget.Style
	cell := func(i, w int) widget.Cell { return columns[i].cell(v, w) }
	if selected {
		base = v.state.screen.theme.row
		cell = func(i, w int) widget.Cell { return widget.Cell{Style: base, Text: columns[i].cell(v, w).Text} }
	}
	v.mark(l, base, selected, p.tags[v.ID().OnAnyNode()])
	table.Row(l, base, cell)
	l.Pad(base, l.Rest()-1)
}

// mark draws the cells left of a row: cursor, worst finding and tag.
func (v lockView) mark(l *widget.Line, base widget.Style, selected, tagged bool) {
	s := v.state
	cursor := " "
	if selected {
		cursor = s.screen.glyphs.Cursor
	}
	l.Put(base, cursor)
	glyph, style := " ", base
	if severity, found := s.current().worst[v.ID()]; found {
		glyph, style = s.ofSeverity(severity)
	}
	if selected {
		style = base
	}
	l.Put(style, glyph)
	if !tagged {
		l.Pad(base, 1)
		return
	}
	style = s.screen.theme.key
	if selected {
		style = base
	}
	l.Put(style, s.screen.glyphs.Check)
}

// empty draws why there are no rows.
func (p *locksPage) empty(s *state, lines []string, w, n int) []string {
	for _, text := range p.emptyText(s) {
		lines = append(lines, widget.NewLine(w).Pad(widget.Style{}, margin).Put(s.screen.theme.dim, text).String())
	}
	return filled(lines, w, n+1)[:n+1]
}

func (p *locksPage) emptyText(s *state) []string {
	switch {
	case s.live == nil && s.refresher.stale():
		return []string{"", "no snapshot yet: the server has not answered"}
	case s.live == nil:
		return []string{"", "looking " + s.screen.glyphs.Ellipsis}
	case len(s.current().locks) > 0:
		return []string{"", "no lock matches the filter; Esc clears it"}
	case !s.current().snap.Complete:
		return []string{"", "no locks so far; still looking"}
	default:
		keys := humanize.Plural(s.current().snap.Cost.Keys, "key")
		return []string{"", "no locks among " + keys, "", "`locktop demo` shows a server that has some"}
	}
}

// compactRows draws one line per lock for a small window.
func (p *locksPage) compactRows(s *state, w, h int) []string {
	if len(p.rows) == 0 {
		return p.empty(s, nil, w, h-1)
	}
	lines := make([]string, 0, h)
	now := s.clock()
	for row := p.top; row < min(p.top+h, len(p.rows)); row++ {
		if heading := p.rows[row].heading; heading != nil {
			l := widget.NewLine(w)
			s.ownerHeading(l, heading)
			lines = append(lines, l.String())
			continue
		}
		v := lockView{s.current().locks[p.rows[row].lock], now, s}
		lines = append(lines, v.compact(w, row == p.row && !p.gone))
	}
	return lines
}

// compact draws a lock in one line: the cursor, its worst finding or its state, its key, owner and TTL.
func (v lockView) compact(w int, selected bool) string {
	s := v.state
	glyph, style := s.ofState(v.State(v.now))
	if severity, found := s.current().worst[v.ID()]; found {
		glyph, style = s.ofSeverity(severity)
	}
	ttl := ttlCell(v, 0)
	text, key, cursor := s.screen.theme.text, s.screen.theme.strong, " "
	if selected {
		cursor = s.screen.glyphs.Cursor
		text, key, style, ttl.Style = s.screen.theme.row, s.screen.theme.row, s.screen.theme.row, s.screen.theme.row
	}
	if w < 20 {
		cursor = ""
	}
	l := widget.NewLine(w).Put(text, cursor).Put(style, glyph).Pad(text, 1)
	owner := 0
	if w >= 36 {
		owner = 12
	}
	room := l.Rest() - owner - widget.Width(ttl.Text) - 2
	if room < 1 {
		return l.Put(key, s.screen.glyphs.Fit(s.redactKey(v.Key), l.Rest())).String()
	}
	l.Put(key, s.screen.glyphs.Fit(s.redactKey(v.Key), room)).Pad(text, 1)
	l.Put(text, s.screen.glyphs.Fit(v.owner(), owner)).Pad(text, 1)
	return l.Put(ttl.Style, ttl.Text).String()
}
