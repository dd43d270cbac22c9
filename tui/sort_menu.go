package tui

import (
	"strings"

	tea "github.com/charmbracelet/bubbletea"
)

// severityOrder is the name of the order bySeverity.
const severityOrder = "severity"

// sortMenu returns the menu of the columns to sort by, with the words of their titles.
func (p *locksPage) sortMenu() *menu {
	m := &menu{title: "sort by"}
	taken := "jkqv" // keys of a menu, and of the severity
	add := func(key, label, detail string, column int) {
		if column == p.sort {
			m.at, detail = len(m.choices), strings.TrimSpace(detail+" now; again: reversed")
		}
		m.choices = append(m.choices, choice{key: key, label: label, detail: detail, pick: func(s *state) (dialog, tea.Cmd) {
			p.sortBy(s, column)
			return nil, s.notify("order: " + p.order())
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
