package tui

import (
	"cmp"
	"slices"
	"strings"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"locktop/internal/humanize"
	"locktop/tui/widget"
)

// commandStatsDialog lists all Redis commands that locktop sent, the most frequent first.
type commandStatsDialog struct {
	stats CommandStats
	top   int
}

func (d *commandStatsDialog) update(s *state, k tea.KeyMsg) (dialog, tea.Cmd) {
	by := scrollKeys(0)[k.String()]
	if by == 0 {
		return nil, nil
	}
	d.top = scrolled(d.top+by, len(d.stats.Commands()), 1)
	return d, nil
}

func (d *commandStatsDialog) draw(s *state, lines []string) []string {
	t, all := s.screen.theme, d.stats.Commands()
	slices.SortFunc(all, func(a, b CommandStat) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), strings.Compare(a.Name, b.Name))
	})
	sum := int64(0)
	for _, c := range all {
		sum += c.Count
	}
	panel := []string{s.ruleOf(s.screen.w, "commands sent", humanize.Plural(sum, "command")+" so far; any other key closes")}
	table := widget.NewTable(s.screen.glyphs, commandStatsColumns, s.screen.w-margin-1, s.gap())
	head := widget.NewLine(s.screen.w).Pad(widget.Style{}, margin)
	table.Header(head, s.screen.theme.head, s.screen.theme.sorted, -1, "")
	panel = append(panel, head.String())
	for _, c := range all[min(d.top, len(all)):] {
		l := widget.NewLine(s.screen.w).Pad(widget.Style{}, margin)
		cells := [...]widget.Cell{
			{Style: t.strong, Text: widget.Plain(c.Name)}, {Style: t.text, Text: humanize.Count(c.Count)},
			{Style: s.ifAny(c.Errors, t.warn), Text: humanize.Count(c.Errors)},
			{Style: t.text, Text: humanize.Count(int64(c.Took/time.Microsecond) / max(1, c.Count))},
			{Style: t.dim, Text: humanize.Duration(s.now.Sub(c.Last))},
		}
		table.Row(l, widget.Style{}, func(column, _ int) widget.Cell { return cells[column] })
		panel = append(panel, l.String())
	}
	f := s.frame()
	return s.hints(overlay(s, lines, panel[:min(len(panel), max(1, f.body-1))]), hint{"↑ ↓", "scroll"}, hint{"any other key", "closes"})
}

var commandStatsColumns = []widget.Column{
	{Title: "COMMAND", Min: 12, Max: 28},
	{Title: "SENT", Min: 10, Right: true},
	{Title: "ERRORS", Min: 7, Priority: 2, Right: true},
	{Title: "µs EACH", Min: 9, Priority: 1, Right: true},
	{Title: "LAST", Min: 9, Priority: 3, Right: true},
}
