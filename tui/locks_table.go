package tui

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"locktop/internal/humanize"
	"locktop/keyspace"
	"locktop/keyspace/contention"
	"locktop/tui/widget"
)

// bySeverity is the sort order without a column: the most severe locks first.
const bySeverity = -1

// lockView is a lock with the time and the state to draw it.
type lockView struct {
	*keyspace.Lock
	now   time.Time // server's time
	state *state
	class *contention.Class // for which it stands, or nil
}

// viewOf returns a lock at the time of the screen.
func (s *state) viewOf(l *keyspace.Lock) lockView { return lockView{Lock: l, now: s.clock(), state: s} }

// column is a column of the table of locks.
type column struct {
	widget.Column
	wide bool // shown only in a wide table
	cell func(v lockView, w int) widget.Cell
	less func(a, b lockView) int // nil if rows cannot be sorted by it
}

// name returns the title of the column as texts and :sort have it.
func (c column) name() string { return strings.ToLower(c.Title) }

// columns returns the columns of the table, from left to right.
func (p *locksPage) columns() []column {
	if p.group == byClass {
		return classColumns()
	}
	all := lockColumns()
	if !p.wide {
		return slices.DeleteFunc(all, func(c column) bool { return c.wide })
	}
	for i := range all { // drop the wide columns last if the table is too narrow
		if c := &all[i]; c.wide {
			c.Priority -= 6
		} else if c.Priority > 2 {
			c.Priority += 10
		}
	}
	return all
}

func lockColumns() []column {
	return []column{
		{widget.Column{Title: "LOCK", Min: 16, Max: 44}, false, func(v lockView, _ int) widget.Cell {
			return widget.Cell{Style: v.state.screen.theme.strong, Text: v.state.privacy.key(v.Key)}
		}, func(a, b lockView) int { return keyspace.CompareNames(a.Key, b.Key) }},
		{widget.Column{Title: "KIND", Min: 9, Priority: 5}, false, func(v lockView, _ int) widget.Cell {
			return v.cell(string(v.Kind))
		}, func(a, b lockView) int { return cmp.Compare(a.Kind, b.Kind) }},
		{widget.Column{Title: "FORMAT", Min: 11, Max: 16, Priority: 8}, false, func(v lockView, _ int) widget.Cell {
			return v.dimCell(widget.Plain(v.Format))
		}, func(a, b lockView) int { return strings.Compare(a.Format, b.Format) }},
		{widget.Column{Title: "OWNER", Min: 12, Max: 26, Priority: 1}, false, ownerCell, func(a, b lockView) int {
			return keyspace.CompareNames(a.firstHolder(), b.firstHolder())
		}},
		{widget.Column{Title: "PROCESS", Min: 16, Max: 34, Priority: 4}, false, processCell, func(a, b lockView) int {
			return strings.Compare(processCell(a, 0).Text, processCell(b, 0).Text)
		}},
		{widget.Column{Title: "DEPTH", Min: 6, Priority: 6, Right: true}, false, depthCell, mostFirst(lockView.Depth)},
		{widget.Column{Title: "WAIT", Min: 5, Priority: 2, Right: true}, false, waitCell, mostFirst(func(v lockView) int { return v.LeastWaiters(v.now) })},
		{widget.Column{Title: "HELD", Min: 8, Priority: 3, Right: true}, false, heldCell, mostFirst(func(v lockView) time.Duration { return v.Age(v.now).Duration })},
		{widget.Column{Title: "TTL", Min: 7, Right: true}, false, ttlCell, byTTL},
		{widget.Column{Title: "", Min: 8, Max: 18, Priority: 7}, false, func(v lockView, w int) widget.Cell {
			return widget.Cell{Style: v.urgency(v.state.screen.theme.calm), Text: v.state.screen.glyphs.Bar(v.remaining(), w)}
		}, nil},
		{widget.Column{Title: "STATE", Min: 9}, false, func(v lockView, _ int) widget.Cell {
			glyph, style, word := v.look()
			return widget.Cell{Style: style, Text: glyph + " " + word}
		}, func(a, b lockView) int { return cmp.Compare(a.State(a.now), b.State(b.now)) }},
		{widget.Column{Title: "FENCE", Min: 6, Priority: 9, Right: true}, true, func(v lockView, _ int) widget.Cell {
			if v.Fence == 0 {
				return v.dimCell(v.state.screen.glyphs.None)
			}
			return v.cell(strconv.FormatInt(v.Fence, 10))
		}, mostFirst(func(v lockView) int64 { return v.Fence })},
		{widget.Column{Title: "RENEWED", Min: 8, Priority: 9, Right: true}, true, func(v lockView, _ int) widget.Cell {
			return v.cell(humanize.Count(v.Renewals) + v.state.screen.glyphs.Times)
		}, mostFirst(func(v lockView) int { return v.Renewals })},
		{widget.Column{Title: "DB", Min: 3, Priority: 10, Right: true}, true, func(v lockView, _ int) widget.Cell {
			return v.cell(strconv.Itoa(v.DB))
		}, func(a, b lockView) int { return cmp.Compare(a.DB, b.DB) }},
		{widget.Column{Title: "NODE", Min: 15, Max: 24, Priority: 10}, true, func(v lockView, _ int) widget.Cell {
			if n := len(v.Votes); n > 0 {
				return v.dimCell(humanize.Plural(n, "node"))
			}
			return v.dimCell(v.state.privacy.addr(v.Node))
		}, func(a, b lockView) int { return keyspace.CompareNames(a.Node, b.Node) }},
	}
}

// look returns the state of a lock for display. A critical finding is never beside a state that looks good.
func (v lockView) look() (glyph string, style widget.Style, word string) {
	state := v.State(v.now)
	glyph, style = v.state.look(state)
	if severity := v.state.current().worst[v.ID()]; severity == keyspace.Critical && state != keyspace.Stuck {
		glyph, style = v.state.look(severity)
		if v.Endless() {
			return glyph, style, "no TTL"
		}
	}
	return glyph, style, string(state)
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
	lines = append(lines, p.lines(w, n, func(l *widget.Line, row int) {
		if r := p.rows[row]; r.heading != nil {
			r.heading.draw(s, l)
		} else {
			p.tableRow(l, table, columns, lockView{r.lock, now, s, r.class}, row == p.row && !p.gone)
		}
		s.scrollBar(l, row, p.top, n, len(p.rows))
	})...)
	return filled(lines, w, n+1)
}

// roomForAll is the table width from which all columns are shown beside the details.
const roomForAll = 140

// layout lays the columns out in w cells.
func (p *locksPage) layout(s *state, w int) widget.Table {
	columns, key := p.columns(), w*28/100
	if p.deep {
		key = max(w*26/100, min(23, w-57)) // beside DEPTH, at 80 columns too
	}
	shapes := make([]widget.Column, len(columns))
	for i, c := range columns {
		shapes[i] = c.Column
		switch {
		case c.Title == "PROCESS" && s.config.Finder == nil:
			shapes[i].Off = true
		case c.Title == "DEPTH" && p.deep:
			shapes[i].Priority = 2
		case c.Title == "LOCK": // as wide as the longest key
			shapes[i].Max = max(p.keyWidth, c.Min)
			if !p.wide {
				shapes[i].Min = min(shapes[i].Max, max(c.Min, key))
			}
		case c.Title == "OWNER":
			shapes[i].Max = max(min(p.ownerWidth, c.Max), c.Min)
		case p.beside(s) && w < roomForAll: // the details show format and TTL bar already, and the names need the room
			shapes[i].Off = c.Title == "" || c.Title == "FORMAT"
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
	v.mark(l, base, selected, p.tagged(v.ID().OnAnyNode()))
	table.Row(l, base, cell)
	l.Pad(base, l.Rest()-1)
}

// mark draws the cells left of a row: cursor, worst finding and tag.
func (v lockView) mark(l *widget.Line, base widget.Style, selected, tagged bool) {
	s := v.state
	glyph, style := " ", base
	if severity, found := s.current().worst[v.ID()]; found {
		glyph, style = s.look(severity)
	}
	check, checked := " ", base
	if tagged {
		check, checked = s.screen.glyphs.Check, s.screen.theme.key
	}
	if selected {
		style, checked = base, base
	}
	l.Put(base, s.cursor(selected)).Put(style, glyph).Put(checked, check)
}

// empty draws why there are no rows.
func (p *locksPage) empty(s *state, lines []string, w, n int) []string {
	return filled(append(lines, indented(w, margin, s.screen.theme.dim, p.emptyText(s))...), w, n+1)[:n+1]
}

func (p *locksPage) emptyText(s *state) []string {
	switch {
	case s.live == nil && s.refresher.stale():
		return []string{"", "no snapshot yet: the server has not answered"}
	case s.live == nil:
		return []string{"", "scanning " + s.screen.glyphs.Ellipsis}
	case p.group == byClass && p.waiting.rows == nil:
		return []string{"", "summing up " + s.screen.glyphs.Ellipsis}
	case len(s.current().locks) > 0:
		return []string{"", s.keymap.named("no lock matches the filter; {back} clears it")}
	case !s.current().snap.Scanned():
		return []string{"", "no locks so far; still scanning"}
	case !s.current().snap.Complete:
		return []string{"", "no locks are seen; there may be some: page Nodes says why"}
	default:
		keys := humanize.Plural(s.current().snap.Cost.Keys, "key")
		return []string{"", "no locks among " + keys, "", "`locktop demo` shows a server that has some"}
	}
}

// cell returns a cell with a plain text.
func (v lockView) cell(text string) widget.Cell {
	return widget.Cell{Style: v.state.screen.theme.text, Text: text}
}

// dimCell returns a cell with a text that is less important.
func (v lockView) dimCell(text string) widget.Cell {
	return widget.Cell{Style: v.state.screen.theme.dim, Text: text}
}

// mostFirst returns an order by a number, the greatest first.
func mostFirst[N cmp.Ordered](number func(lockView) N) func(a, b lockView) int {
	return func(a, b lockView) int { return cmp.Compare(number(b), number(a)) }
}

func ownerCell(v lockView, _ int) widget.Cell {
	if v.state.ofLoad(v.Key) {
		return widget.Cell{Style: v.state.screen.theme.chart, Text: "load " + v.owner()} // a client of this load
	}
	return v.cell(v.owner())
}

// owner names the holders in short.
func (v lockView) owner() string {
	switch n := len(v.Holders); {
	case n == 0:
		return v.state.screen.glyphs.None
	case n == 1:
		return v.state.privacy.owner(v.Holders[0].Name())
	case v.Holders[0].Mode == keyspace.Read:
		return fmt.Sprintf("R%s%d %s", v.state.screen.glyphs.Times, n, v.state.privacy.owner(v.Holders[0].Name()))
	default:
		return fmt.Sprintf("%s +%d", v.state.privacy.owner(v.Holders[0].Name()), n-1)
	}
}

func depthCell(v lockView, _ int) widget.Cell {
	st := v.state.screen.theme.dim
	if v.Depth() > 1 {
		st = v.state.screen.theme.strong
	}
	return widget.Cell{Style: st, Text: v.DepthText()}
}

func waitCell(v lockView, _ int) widget.Cell {
	n := v.WaiterCount()
	switch {
	case n == 0 && v.Asked(v.now):
		return widget.Cell{Style: v.state.screen.theme.warn, Text: v.state.screen.glyphs.AtLeast + "1"}
	case n == 0 && v.blocked() > 0:
		return widget.Cell{Style: v.state.screen.theme.warn, Text: "?"}
	case n == 0 && v.hidesWaiters():
		return widget.Cell{Style: v.state.screen.theme.dim, Text: "?"}
	case n == 0:
		return widget.Cell{Style: v.state.screen.theme.dim, Text: "0"}
	}
	style := v.state.screen.theme.warn
	if _, severity := v.LongestWait(v.now); severity == keyspace.Critical {
		style = v.state.screen.theme.bad
	}
	return widget.Cell{Style: style, Text: v.state.atLeast(len(v.Waiters) > 0 && v.Waiters[0].Polls, humanize.Count(n))}
}

func heldCell(v lockView, _ int) widget.Cell {
	age := v.Age(v.now)
	if !age.Wide() && (age.Duration == 0 || age.AtLeast && age.Duration < time.Second) {
		return v.dimCell(v.state.screen.glyphs.None)
	}
	return v.cell(v.state.ageText(age))
}

// ageText returns an age for a narrow place: ≥41 s.
func (s *screen) ageText(age keyspace.Age) string {
	if age.Wide() {
		return s.glyphs.AtMost + humanize.Duration(age.Most)
	}
	return s.atLeast(age.AtLeast, humanize.Duration(age.Duration))
}

// hidesWaiters reports whether the format does not show the waiters.
func (v lockView) hidesWaiters() bool {
	f, known := v.state.formats[v.Format]
	return known && !f.ShowsWaiters
}

// blocked returns the number of blocked clients on the lock's server, if the waiters of the
// format block there.
func (v lockView) blocked() int64 {
	if !v.state.formats[v.Format].BlockingWait || len(v.Holders) == 0 {
		return 0
	}
	return v.node().Blocked
}

// node returns the server of the lock. If the lock has several, it is the one that stands for
// all of them.
func (v lockView) node() keyspace.Node {
	snap := &v.state.current().snap
	for i := range snap.Nodes {
		if snap.Nodes[i].Addr == v.Node {
			return snap.Nodes[i]
		}
	}
	return keyspace.Node{Server: snap.Server}
}

func ttlCell(v lockView, _ int) widget.Cell {
	t := v.state.screen.theme
	rest, ok := v.TTL(v.now)
	switch {
	case len(v.Holders) == 0 && !ok:
		return widget.Cell{Style: t.dim, Text: v.state.screen.glyphs.None}
	case !ok:
		return widget.Cell{Style: t.bad, Text: "never"}
	case v.State(v.now) == keyspace.Lapsed:
		return widget.Cell{Style: t.warn, Text: "-" + humanize.Left(-rest)}
	default:
		return widget.Cell{Style: v.urgency(t.text), Text: humanize.Left(rest)}
	}
}

// remaining returns the fraction of the lease that is left, from 0 to 1.
func (v lockView) remaining() float64 {
	rest, ok := v.TTL(v.now)
	full, _ := v.FullTTL()
	if !ok || full <= 0 {
		return 0
	}
	return max(0, min(1, float64(rest)/float64(full)))
}

// urgency returns the style of a remaining time; calm is the style while at least 40 % are
// left.
func (v lockView) urgency(calm widget.Style) widget.Style {
	switch rest := v.remaining(); {
	case rest < 0.15:
		return v.state.screen.theme.bad
	case rest < 0.4:
		return v.state.screen.theme.warn
	default:
		return calm
	}
}

// byTTL sorts by expiry time, and locks without a TTL last.
func byTTL(a, b lockView) int {
	if never := a.Expires.IsZero(); never != b.Expires.IsZero() {
		if never {
			return 1
		}
		return -1
	}
	return a.Expires.Compare(b.Expires)
}

func (v lockView) firstHolder() string {
	if len(v.Holders) == 0 {
		return ""
	}
	return v.Holders[0].Name()
}
