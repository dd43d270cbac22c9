package tui

import (
	"fmt"
	"slices"
	"time"

	"locktop/internal/humanize"
	"locktop/loadgen"
	"locktop/loadgen/oracle"
	"locktop/tui/widget"
)

// leftWidth returns the width of the left column, including the blanks after it.
func leftWidth(w int) int {
	if w < 90 {
		return 34
	}
	return 40
}

func (p *loadPage) view(s *state, w, h int) []string {
	switch {
	case s.run.load == nil:
		all := s.paragraph(w, "", "There is no load on this server.", "", "locktop only reads from it.", "",
			"`locktop demo` starts a Redis of its own, with clients that compete",
			"for locks; this page is where you drive them.")
		if s.run.begin != nil {
			all = append(all, s.paragraph(w, "", "", s.keymap.named("This server is on your machine: {start-stop} runs clients on it, after a question."))...)
		}
		return all
	case s.frame().compact:
		return p.compactView(s, w)
	case p.folded(s):
		return p.sceneView(s, w, h)
	}
	all, middle, log := p.layout(s, w, h)
	all = append(all, p.middleBlock(s, w, middle)...)
	return append(all, log...)
}

// layout divides h lines: the caption and the verdict at the top, the fault log at the bottom, form and charts
// between them.
func (p *loadPage) layout(s *state, w, h int) (top []string, middle int, log []string) {
	top = p.runBlock(s, w)
	log = s.faultLogBlock(w, min(8, max(4, h/4), h-len(top)-middleLeast))
	return top, max(0, h-len(top)-len(log)), log
}

// middleLeast is the minimum height of form and charts.
const middleLeast = 7

// middleBlock draws the form, the outcomes if they fit, and the charts, in h lines.
func (p *loadPage) middleBlock(s *state, w, h int) []string {
	narrow, v := leftWidth(w), 0 // v is the width of the column of outcomes
	if w >= roomForOutcomes {
		v = 30
	}
	rightSide := p.rightColumn(s, w-narrow-v, h)
	if v > 0 {
		rightSide = widget.JoinHorizontal(p.outcomesBlock(s, v-2), v-2, rightSide, w-narrow-v)
	}
	return filled(widget.JoinHorizontal(p.form(s, narrow-2, h), narrow-2, rightSide, w-narrow), w, h)[:max(0, h)]
}

// rightColumn draws the charts above the clients.
func (p *loadPage) rightColumn(s *state, w, h int) []string {
	grid := p.clientsBlock(s, w, min(max(3, h/3), 2+rowsOf(len(s.run.metrics.Clients.States), w-2)))
	spare := max(0, h-len(grid))
	wait := p.waitBlock(s, w, spare*2/5)
	if spare-len(wait) < 4 {
		wait = nil
	}
	all := p.chartBlock(s, w, spare-len(wait))
	all = append(all, wait...)
	return append(all, grid...)
}

// rowsOf returns the number of rows of a grid of w columns.
func rowsOf(cells, w int) int {
	perRow := max(1, w/spacing(cells, w))
	return (cells + perRow - 1) / perRow
}

// spacing returns the width of a grid cell: 2 if all cells then fit in one row, else 1.
func spacing(cells, w int) int {
	if 2*cells <= w {
		return 2
	}
	return 1
}

// metricLine draws a name and a value.
func (s *screen) metricLine(w int, name string, st widget.Style, value string) string {
	l := widget.NewLine(w).Pad(widget.Style{}, 1).Put(s.theme.dim, name).PadTo(widget.Style{}, 16)
	return l.Put(st, s.glyphs.FitEnd(value, l.Rest())).String()
}

// formWindow returns the range of fields that are visible in a form of h lines.
func (p *loadPage) formWindow(s *state, h int) (first, last int) {
	n, room := len(formFields(s.run.scenario)), max(0, h-1)
	first = scrolled(p.place(s)-room/2, n, room)
	return first, min(n, first+room)
}

// form draws the visible fields of the scenario in h lines.
func (p *loadPage) form(s *state, w, h int) []string {
	t := s.screen.theme
	fields := formFields(s.run.scenario)
	first, last := p.formWindow(s, h)
	note := ""
	if last-first < len(fields) {
		note = fmt.Sprintf("%d of %d", last-first, len(fields))
	}
	all := []string{s.ruleOf(w, "settings", note)}
	for i := first; i < last; i++ {
		k := fields[i]
		l := widget.NewLine(w)
		l.Put(t.key, s.cursor(i == p.place(s))).Put(t.dim, k.name).PadTo(widget.Style{}, 13)
		st, value := t.text, widget.Plain(k.value(s.run.scenario))
		if i == p.place(s) {
			st, value = t.strong, s.screen.glyphs.Word("← ")+value+s.screen.glyphs.Word(" →")
		}
		all = append(all, l.Put(st, s.screen.glyphs.FitEnd(value, l.Rest())).String())
	}
	return all
}

func dist(d loadgen.Dist) string {
	switch d.Shape {
	case loadgen.ShapeConst:
		return "exactly " + humanize.Setting(d.Mean)
	case loadgen.ShapeExp:
		return humanize.Setting(d.Mean) + " on average"
	}
	return d.String()
}

// outcome is a figure of the run, in words.
type outcome struct {
	name, value string
	style       widget.Style
	none        bool
}

// outcomes returns the counts of attempts and holds, the violations and the fairness. It omits
// most of those that are zero.
func (s *state) outcomes() []outcome {
	t, figures := s.screen.theme, s.run.metrics.Figures()
	var all []outcome
	add := func(name, figure string, st widget.Style, quiet bool) { // quiet: hidden while zero
		v, known := figures[figure]
		if v == 0 {
			st = t.dim
		}
		if known && (v > 0 || !quiet) {
			all = append(all, outcome{name, figures.Text(figure), st, v == 0})
		}
	}
	for _, f := range []struct {
		name  string
		st    widget.Style
		quiet bool
	}{
		{"arrivals", t.strong, false}, {"acquired", t.good, false}, {"released", t.text, false}, {"renewals", t.text, true},
		{"expired", t.warn, false}, {"lost", t.warn, false}, {"abandoned", t.warn, true}, {"unconfirmed", t.warn, true},
		{"timed_out", t.warn, false}, {"refused", t.warn, true}, {"errors", t.bad, false},
	} {
		add(loadgen.Label(f.name), f.name+".count", f.st, f.quiet)
	}
	for _, k := range oracle.Kinds() {
		_, st := s.look(k.Severity)
		add(k.Word, string(k.ID)+".count", st, true)
	}
	add("fairness", "fairness.jain", t.text, true)
	add("starved", "fairness.starved", t.text, true)
	return all
}

// outcomesBlock draws one outcome per line.
func (p *loadPage) outcomesBlock(s *state, w int) []string {
	lines := mapped(s.outcomes(), func(f outcome) string { return s.metricLine(w, f.name, f.style, f.value) })
	return append([]string{s.ruleOf(w, "outcomes", "")}, lines...)
}

// axis is the width left of a chart, for its labels.
const axis = 8

// chartBlock draws the throughput per second in h lines.
func (p *loadPage) chartBlock(s *state, w, h int) []string {
	each := p.columnsPerSecond(s, w)
	values := p.perSecond(s, w, func(second loadgen.Second) float64 { return float64(second.Acquired) })
	all := []string{s.ruleOf(w, "acquired per second", humanize.Count(rate(s.run.metrics))+"/s")}
	all = append(all, s.chart(w, h-2, values, s.screen.theme.chart, axisLabel)...)
	room, end := w-axis-1, s.run.metrics.Began.Add(s.run.metrics.Elapsed.Truncate(time.Second))
	v := timeWindow{end.Add(-time.Duration(room) * time.Second / time.Duration(each)), end, room}
	foot := widget.NewLine(w)
	putWords(foot, axis, slices.Concat([]word{{0, fmt.Sprintf("%d s ago", max(0, room)/each), s.screen.theme.dim}, {room - 3, "now", s.screen.theme.dim}}, s.faultWords(v, 0)))
	return append(all, foot.String())
}

// columnsPerSecond returns the number of chart columns per second. It is more than 1 if the whole of a
// short run then fits.
func (p *loadPage) columnsPerSecond(s *state, w int) int {
	planned := int(s.run.scenario.Duration / time.Second)
	if planned == 0 {
		return 1
	}
	return max(1, min(8, (w-axis-1)/planned))
}

// perSecond returns a figure of each completed second, once for each of its columns.
func (p *loadPage) perSecond(s *state, w int, figure func(loadgen.Second) float64) (values []float64) {
	for _, second := range fullSeconds(s.run.metrics) {
		values = append(values, slices.Repeat([]float64{figure(second)}, p.columnsPerSecond(s, w))...)
	}
	return values
}

// chart draws values in h lines, with labels at the top, the middle and the bottom.
func (s *screen) chart(w, h int, values []float64, st widget.Style, label func(float64) string) []string {
	room := max(0, w-axis-1)
	values = values[max(0, len(values)-room):]
	top := widget.RoundUp(slices.Max(append([]float64{0}, values...)))
	var all []string
	for i, row := range s.glyphs.Chart(values, top, room, h) {
		text := ""
		switch {
		case i == 0:
			text = label(top)
		case i == h-1:
			text = "0"
		case i == h/2 && h%2 == 0:
			text = label(top / 2)
		}
		l := widget.NewLine(w).Put(s.theme.dim, s.glyphs.FitRight(text, axis-1)).Pad(widget.Style{}, 1)
		all = append(all, l.Put(st, row).String())
	}
	return all
}

// axisLabel formats a number for an axis: 500, 2.5k, 10k.
func axisLabel(v float64) string {
	if v < 1000 {
		return fmt.Sprintf("%g", v)
	}
	return fmt.Sprintf("%gk", v/1000)
}

// waitBlock draws the percentiles of the wait times, and p99 per second if h is at least 4.
func (p *loadPage) waitBlock(s *state, w, h int) []string {
	t, m := s.screen.theme, s.run.metrics
	l := widget.NewLine(w).Pad(widget.Style{}, 1)
	for _, f := range []struct {
		name string
		d    time.Duration
	}{{"p50", m.Latency.Wait.P50}, {"p99", m.Latency.Wait.P99}, {"max", m.Latency.Wait.Max}} {
		l.Put(t.dim, f.name+" ").Put(t.strong, s.screen.glyphs.Fit(humanize.Duration(f.d), 10))
	}
	all := []string{s.ruleOf(w, "wait", "p99 per second"), l.String()}
	if h < 4 {
		all[0] = s.ruleOf(w, "wait", "")
		return all
	}
	values := p.perSecond(s, w, func(second loadgen.Second) float64 { return float64(second.Wait.P99) / float64(time.Millisecond) })
	ms := func(v float64) string { return humanize.Setting(time.Duration(v * float64(time.Millisecond))) }
	return append(all, s.chart(w, h-2, values, t.read, ms)...)
}

// clientsBlock draws one cell for each client, in h lines.
func (p *loadPage) clientsBlock(s *state, w, h int) []string {
	if h < 3 {
		return nil
	}
	cells := s.run.metrics.Clients.States
	w -= 2
	size := spacing(len(cells), w)
	room := max(0, w/size) * (h - 2)
	note := ""
	if len(s.run.agents.all) > 0 {
		note = "each agent's at its last report"
	}
	if len(cells) > room {
		note = humanize.Count(len(cells)-room) + " more"
		cells = cells[:room]
	}
	if p.client > 0 && p.client <= len(s.run.metrics.Clients.States) {
		note = fmt.Sprintf("client-%d is %s", p.client, s.run.metrics.Clients.States[p.client-1])
	}
	all := []string{s.ruleOf(w+2, "clients", note), p.legend(s, w+2)}
	for at := 0; at < len(cells); {
		n := min(len(cells)-at, w/size)
		l := widget.NewLine(w+2).Pad(widget.Style{}, 1)
		for i, c := range cells[at : at+n] {
			glyph, st := s.look(c)
			if at+i+1 == p.client {
				st = s.screen.theme.row
			}
			l.Put(st, glyph).Pad(widget.Style{}, size-1)
		}
		all, at = append(all, l.String()), at+n
	}
	return all
}

// legend explains the cells and counts the clients in each state.
func (p *loadPage) legend(s *state, w int) string {
	counts := map[loadgen.ClientState]int{}
	for _, c := range s.run.metrics.Clients.States {
		counts[c]++
	}
	l := widget.NewLine(w).Pad(widget.Style{}, 1)
	for _, c := range []loadgen.ClientState{loadgen.Frozen, loadgen.Partitioned, loadgen.Dead, loadgen.Inside, loadgen.Queued, loadgen.Thinking} {
		n := humanize.Count(counts[c])
		if (n != "0" || c <= loadgen.Inside) && widget.Width(n+c.String())+3 <= l.Rest() {
			glyph, st := s.look(c)
			l.Put(st, glyph).Put(s.screen.theme.text, " "+n+" ").Put(s.screen.theme.dim, c.String()).Pad(widget.Style{}, 3)
		}
	}
	return l.String()
}

// compactView draws the page in a small window.
func (p *loadPage) compactView(s *state, w int) []string {
	m, t := s.run.metrics, s.screen.theme
	l := widget.NewLine(w)
	p.summary(s, l)
	st, words := s.verdict()
	return []string{
		l.String(),
		widget.NewLine(w).Put(st, words).String(),
		s.metricLine(w, "wait p50", t.text, humanize.Duration(m.Latency.Wait.P50)),
		s.metricLine(w, "wait p99", t.text, humanize.Duration(m.Latency.Wait.P99)),
		p.legend(s, w),
	}
}
