package tui

import (
	"cmp"
	"slices"
	"strings"

	tea "github.com/charmbracelet/bubbletea"

	"locktop/tui/widget"
)

// nodesPage shows the servers that the locks are on.
type nodesPage struct {
	cursor cursor[string] // by address
	rows   []node
}

// node is one server, as the picture shows it.
type node struct {
	addr          string
	role, version string
	locks         int
}

func (p *nodesPage) title() string { return "4 Nodes" }
func (p *nodesPage) place() place  { return onNodes }

func (p *nodesPage) update(s *state, msg tea.Msg) tea.Cmd {
	switch msg := msg.(type) {
	case lookedMsg, stillMsg, tea.WindowSizeMsg:
		p.arrange(s)
	case wheelMsg:
		p.cursor.choose(p.cursor.row+msg.steps, len(p.rows), p.key)
		p.cursor.reveal(len(p.rows), p.height(s))
	case clickMsg:
		if row := p.cursor.top + msg.y - 1; msg.y > 0 && msg.y <= p.height(s) {
			p.cursor.choose(row, len(p.rows), p.key)
		}
	case action:
		if !p.cursor.travel(msg, len(p.rows), p.height(s), p.key) {
			s.refuse("nothing to go back from: no pause")
		}
	}
	return nil
}

func (p *nodesPage) arrange(s *state) {
	snap := s.shown().snap
	counts := map[string]int{}
	for i := range snap.Locks {
		counts[snap.Locks[i].Node]++
	}
	if _, known := counts[snap.Server.Addr]; !known && snap.Server.Addr != "" && len(counts) == 0 {
		counts[snap.Server.Addr] = 0
	}
	p.rows = p.rows[:0]
	for addr, n := range counts {
		row := node{addr: addr, locks: n}
		if addr == snap.Server.Addr || len(counts) == 1 {
			row.role, row.version = snap.Server.Role, snap.Server.Version
		}
		p.rows = append(p.rows, row)
	}
	slices.SortFunc(p.rows, func(a, b node) int { return cmp.Or(strings.Compare(a.addr, b.addr)) })
	p.cursor.follow(len(p.rows), p.key)
	p.cursor.reveal(len(p.rows), p.height(s))
}

func (p *nodesPage) key(row int) string { return p.rows[row].addr }

func (p *nodesPage) height(s *state) int { return max(0, s.frame().body-1) }

func (p *nodesPage) summary(s *state, l *widget.Line) {
	snap := s.shown().snap
	spread(l, s.glyphs, []part{
		{style: s.theme.strong, text: several(len(p.rows), "node")},
		{style: s.theme.text, text: widget.Plain(snap.Server.Mode), rank: 1},
		{style: s.theme.dim, text: several(snap.Cost.Keys, "key"), rank: 2},
	}, nil)
}

func nodeColumns() []widget.Column {
	return []widget.Column{
		{Title: "NODE", Min: 16, Max: 32},
		{Title: "ROLE", Min: 8, Priority: 1},
		{Title: "VERSION", Min: 9, Priority: 2},
		{Title: "LOCKS", Min: 7, Right: true},
		{Title: "SHARE", Min: 7, Max: 24},
	}
}

func (p *nodesPage) view(s *state, w, h int) []string {
	table := widget.NewTable(s.glyphs, nodeColumns(), w-margin-1, s.gap())
	head := widget.NewLine(w).Skip(widget.Style{}, margin)
	table.Header(head, s.theme.head, s.theme.sorted, -1, "")
	lines := []string{head.String()}
	all := len(s.shown().snap.Locks)
	for i := range max(0, min(h-1, len(p.rows)-p.cursor.top)) {
		row := p.cursor.top + i
		l := widget.NewLine(w)
		s.pointer(l, row == p.cursor.row)
		table.Row(l, widget.Style{}, func(column, w int) widget.Cell { return s.nodeCell(p.rows[row], column, w, all) })
		lines = append(lines, l.String())
	}
	return lines[:min(h, len(lines))]
}

func (s *state) nodeCell(n node, column, w, all int) widget.Cell {
	t := s.theme
	switch column {
	case 0:
		return widget.Cell{Style: t.strong, Text: s.place(n.addr)}
	case 1:
		return widget.Cell{Style: t.text, Text: widget.Plain(n.role)}
	case 2:
		return widget.Cell{Style: t.dim, Text: widget.Plain(n.version)}
	case 3:
		return widget.Cell{Style: t.text, Text: count(n.locks)}
	default:
		return widget.Cell{Style: t.calm, Text: s.glyphs.Bar(float64(n.locks)/float64(max(1, all)), w)}
	}
}
