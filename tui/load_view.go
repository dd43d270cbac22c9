package tui

import (
	"fmt"
	"strings"
	"time"

	"locktop/loadgen"
	"locktop/tui/widget"
)

const (
	aside         = 34 // cells of the left column, with the blanks behind it
	rowsOfFigures = 18 // lines of it, without the caption
)

func (p *loadPage) view(s *state, w, h int) []string {
	switch {
	case s.load == nil:
		return s.paragraph(w, "", "There is no load on this server.", "",
			"locktop only looks at it, and changes nothing.", "",
			"`locktop demo` starts a Redis of its own, with clients that fight over",
			"locks; here is where you would drive them.")
	case s.frame().compact:
		return p.figures(s, w)
	}
	leftSide := append(s.scenarioBlock(aside-2, min(4, h-rowsOfFigures)), s.outcomesBlock(aside-2)...)
	rightSide := p.right(s, w-aside, h)
	for i := range leftSide {
		leftSide[i] += "  "
	}
	all := widget.Beside(leftSide, aside, rightSide, w-aside)
	return all[:min(h, len(all))]
}

// right stacks what moves. The charts and the clients share the lines that the
// rest leaves.
func (p *loadPage) right(s *state, w, h int) []string {
	verdict := s.verdictBlock(w)
	grid := s.clientsBlock(w, min(max(4, h/3), 2+rowsOf(len(s.metrics.Cells), w-2)))
	spare := max(0, h-len(verdict)-len(grid)-1) // the last line stays empty
	wait := s.waitBlock(w, spare*2/5)
	all := s.chartBlock(w, max(4, spare-len(wait)))
	all = append(all, wait...)
	all = append(all, verdict...)
	return append(all, grid...)
}

// rowsOf is the number of rows that cells take in a grid of w columns.
func rowsOf(cells, w int) int {
	perRow := max(1, w/spacing(cells, w))
	return (cells + perRow - 1) / perRow
}

// spacing is the width of a cell in the grid: two where one row has room for
// all of them with blanks between.
func spacing(cells, w int) int {
	if 2*cells <= w {
		return 2
	}
	return 1
}

// paragraph draws sentences, one a line.
func (s *state) paragraph(w int, sentences ...string) []string {
	var all []string
	for i, text := range sentences {
		st := s.theme.text
		if i == 1 {
			st = s.theme.strong
		}
		l := widget.NewLine(w).Skip(widget.Style{}, margin)
		all = append(all, l.Put(st, s.glyphs.FitEnd(text, l.Rest()-1)).String())
	}
	return all
}

// figure draws a line of a list of figures: a name, and a value at a column.
func (s *state) figure(w int, name string, st widget.Style, value string) string {
	l := widget.NewLine(w).Skip(widget.Style{}, 1).Put(s.theme.dim, name).To(widget.Style{}, 12)
	return l.Put(st, s.glyphs.FitEnd(value, l.Rest())).String()
}

// scenarioBlock draws what is run, with a caption of n lines at most.
func (s *state) scenarioBlock(w, n int) []string {
	c, t := s.scenario, s.theme
	patience := "for ever"
	if c.Patience > 0 {
		patience = setting(c.Patience)
	}
	renewed := ", not renewed"
	if !c.Lock.Renew.Off {
		renewed = ", renewed"
	}
	all := []string{s.ruleOf(w, "scenario", widget.Plain(c.Name))}
	for _, text := range wrap(s.glyphs, widget.Plain(c.Caption), w-1, n) {
		all = append(all, widget.NewLine(w).Skip(widget.Style{}, 1).Put(t.text, text).String())
	}
	return append(all,
		strings.Repeat(" ", w),
		s.figure(w, "clients", t.strong, count(s.scenario.Clients)),
		s.figure(w, "keys", t.text, count(c.Keys.N)),
		s.figure(w, "lease", t.text, setting(c.Lock.TTL)+renewed),
		s.figure(w, "hold", t.text, dist(c.Hold)),
		s.figure(w, "think", t.text, dist(c.Think)),
		s.figure(w, "patience", t.text, patience),
		strings.Repeat(" ", w))
}

func dist(d loadgen.Dist) string {
	switch d.Shape {
	case loadgen.ShapeConst:
		return setting(d.Mean) + ", always"
	case loadgen.ShapeExp:
		return setting(d.Mean) + " on average"
	}
	return d.String()
}

// outcomesBlock draws how the attempts ended.
func (s *state) outcomesBlock(w int) []string {
	m, t := s.metrics, s.theme
	all := []string{
		s.ruleOf(w, "outcomes", ""),
		s.figure(w, "attempts", t.strong, count(m.Arrivals)),
		s.figure(w, "acquired", t.good, count(m.Acquired)),
		s.figure(w, "released", t.text, count(m.Released)),
		s.figure(w, "lost", s.ifAny(m.Lost, t.warn), count(m.Lost)),
		s.figure(w, "uncertain", s.ifAny(m.Unconfirmed, t.warn), count(m.Unconfirmed)),
		s.figure(w, "gave up", s.ifAny(m.TimedOut, t.warn), count(m.TimedOut)),
		s.figure(w, "errors", s.ifAny(m.Errors, t.bad), count(m.Errors)),
	}
	if m.LastErr != "" {
		all = append(all, widget.NewLine(w).Skip(widget.Style{}, 1).Put(t.bad, s.glyphs.FitEnd(widget.Plain(m.LastErr), w-1)).String())
	}
	return all
}

// ifAny is the style of a count that should be zero.
func (s *state) ifAny(n int64, st widget.Style) widget.Style {
	if n == 0 {
		return s.theme.dim
	}
	return st
}

// axis is the width of what stands left of a chart.
const axis = 8

// chartBlock draws the throughput of the last seconds in h lines.
func (s *state) chartBlock(w, h int) []string {
	values := make([]float64, 0, loadgen.HistorySeconds)
	for _, second := range fullSeconds(s.metrics) {
		values = append(values, float64(second.Acquired))
	}
	all := []string{s.ruleOf(w, "acquired per second", count(rate(s.metrics))+"/s")}
	all = append(all, s.chart(w, h-2, values, s.theme.chart, short)...)
	ago := fmt.Sprintf("%d s ago", max(0, w-axis-1))
	foot := widget.NewLine(w).Put(s.theme.dim, s.glyphs.FitRight("0", axis-1)).Skip(widget.Style{}, 1)
	foot.Put(s.theme.dim, ago).To(widget.Style{}, w-4).Put(s.theme.dim, "now")
	return append(all, foot.String())
}

// chart draws values in h lines, with labels at the top and in the middle.
func (s *state) chart(w, h int, values []float64, st widget.Style, label func(float64) string) []string {
	room := max(0, w-axis-1)
	values = values[max(0, len(values)-room):]
	top := 0.0
	for _, v := range values {
		top = max(top, v)
	}
	top = widget.RoundUp(top)
	var all []string
	for i, row := range s.glyphs.Chart(values, top, room, h) {
		text := ""
		switch {
		case i == 0:
			text = label(top)
		case i == h/2 && h%2 == 0:
			text = label(top / 2)
		}
		l := widget.NewLine(w).Put(s.theme.dim, s.glyphs.FitRight(text, axis-1)).Skip(widget.Style{}, 1)
		all = append(all, l.Put(st, row).String())
	}
	return all
}

// short writes a number for an axis: 500, 2.5k, 10k.
func short(v float64) string {
	if v < 1000 {
		return fmt.Sprintf("%g", v)
	}
	return fmt.Sprintf("%gk", v/1000)
}

// waitBlock draws how long acquiring took, and its p99 by the second where h
// lines have room for that.
func (s *state) waitBlock(w, h int) []string {
	t, m := s.theme, s.metrics
	l := widget.NewLine(w).Skip(widget.Style{}, 1)
	for _, f := range []struct {
		name string
		d    time.Duration
	}{{"p50", m.Wait.P50}, {"p99", m.Wait.P99}, {"max", m.Wait.Max}} {
		l.Put(t.dim, f.name+" ").Put(t.strong, s.glyphs.Fit(span(f.d), 10))
	}
	all := []string{s.ruleOf(w, "wait", "p99 per second"), l.String()}
	if h < 4 {
		all[0] = s.ruleOf(w, "wait", "")
		return all
	}
	values := make([]float64, 0, loadgen.HistorySeconds)
	for _, second := range fullSeconds(m) {
		values = append(values, float64(second.Wait.P99)/float64(time.Millisecond))
	}
	ms := func(v float64) string { return setting(time.Duration(v * float64(time.Millisecond))) }
	return append(all, s.chart(w, h-2, values, t.read, ms)...)
}

// verdict says whether the lock kept its promise.
func (s *state) verdict() (widget.Style, string) {
	t, g, o := s.theme, s.glyphs, s.metrics.Overlap
	switch {
	case o.Count > 0:
		times := strings.ToUpper(several(o.Count, "overlap"))
		return t.alarm, fmt.Sprintf(" %s %s, longest %s: two clients were inside at once ", g.Alert, times, span(o.Longest))
	case s.metrics.Acquired == 0:
		return t.dim, fmt.Sprintf(" %s nothing has run yet; s starts the clients ", g.None)
	default:
		return t.good, fmt.Sprintf(" %s 0 overlaps: the lock held ", g.Check)
	}
}

// verdictBlock draws the verdict: an overlap in a bar that nobody overlooks.
func (s *state) verdictBlock(w int) []string {
	st, words := s.verdict()
	line := func(text string) string { return widget.NewLine(w).Put(st, s.glyphs.FitEnd(text, w)).String() }
	rule := s.ruleOf(w, "mutual exclusion", "")
	if s.metrics.Overlap.Count > 0 {
		return []string{rule, line(""), line(words), line("")}
	}
	return []string{rule, line(words)}
}

// clientsBlock draws a cell for each client, in h lines.
func (s *state) clientsBlock(w, h int) []string {
	if h < 3 {
		return nil
	}
	cells := s.metrics.Cells
	w -= 2
	size := spacing(len(cells), w)
	room := max(0, w/size) * (h - 2)
	note := ""
	if len(cells) > room {
		note = count(len(cells)-room) + " more"
		cells = cells[:room]
	}
	all := []string{s.ruleOf(w+2, "clients", note), s.legend(w + 2)}
	for len(cells) > 0 {
		n := min(len(cells), w/size)
		l := widget.NewLine(w+2).Skip(widget.Style{}, 1)
		for _, c := range cells[:n] {
			glyph, st := s.ofCell(c)
			l.Put(st, glyph).Skip(widget.Style{}, size-1)
		}
		all, cells = append(all, l.String()), cells[n:]
	}
	return all
}

// legend says what the cells stand for, and how many there are of each.
func (s *state) legend(w int) string {
	m := s.metrics
	l := widget.NewLine(w).Skip(widget.Style{}, 1)
	for _, of := range []struct {
		cell loadgen.Cell
		n    int
		word string
	}{{loadgen.Inside, m.Holding, "holding"}, {loadgen.Queued, m.Waiting, "waiting"}, {loadgen.Thinking, m.Idle, "thinking"}} {
		glyph, st := s.ofCell(of.cell)
		l.Put(st, glyph).Put(s.theme.text, fmt.Sprintf(" %s ", count(of.n))).Put(s.theme.dim, of.word).Skip(widget.Style{}, 3)
	}
	return l.String()
}

// ofCell returns the glyph and the style of what a client is doing.
func (s *state) ofCell(c loadgen.Cell) (string, widget.Style) {
	switch c {
	case loadgen.Inside:
		return s.glyphs.Dot, s.theme.good
	case loadgen.Queued:
		return s.glyphs.Ring, s.theme.warn
	default:
		return s.glyphs.Point, s.theme.dim
	}
}

// figures is the page in a small window.
func (p *loadPage) figures(s *state, w int) []string {
	m, t := s.metrics, s.theme
	l := widget.NewLine(w)
	p.summary(s, l)
	st, words := s.verdict()
	return []string{
		l.String(),
		widget.NewLine(w).Put(st, words).String(),
		s.figure(w, "wait p50", t.text, span(m.Wait.P50)),
		s.figure(w, "wait p99", t.text, span(m.Wait.P99)),
		s.legend(w),
	}
}
