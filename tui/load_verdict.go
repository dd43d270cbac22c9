package tui

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"locktop/internal/humanize"
	"locktop/keyspace"
	"locktop/loadgen"
	"locktop/loadgen/oracle"
	"locktop/tui/widget"
)

// busyOver is the time span of the "held" percentage of a key.
const busyOver = 10 * time.Second

// captionBlock draws the name of the run, its caption in at most a number of lines, and what to look for.
func (p *loadPage) captionBlock(s *state, w, most int) []string {
	note := ""
	if s.run.scene >= 0 {
		note = fmt.Sprintf("scene %d of %d", s.run.scene+1, len(s.run.scenes))
	}
	all := []string{s.ruleOf(w, cmp.Or(widget.Plain(s.run.scenario.Name), "scenario"), note)}
	all = append(all, s.wrapped(w, 1, s.screen.theme.text, widget.Plain(s.run.scenario.Caption), most)...)
	if s.run.scenario.Watch != "" {
		all = append(all, p.lookFor(s, w))
	}
	return all
}

// errorLines draws the last error in at most a number of lines, and why the clients did not start.
func (p *loadPage) errorLines(s *state, w, most int) (all []string) {
	if s.run.metrics.LastErr != "" {
		all = s.wrapped(w, 1, s.screen.theme.bad, "last error: "+s.redactLoad(s.run.metrics.LastErr), most)
	}
	return append(all, s.wrapped(w, 1, s.screen.theme.bad, s.redactLoad(s.run.failed), 4)...)
}

// runBlock draws the top of the page: caption, what to watch with its metrics, the keys as the
// server has them, and the verdict. A narrow window has the outcomes here, in one line.
func (p *loadPage) runBlock(s *state, w int) []string {
	body, agents := s.frame().body, len(s.run.agents.all)
	lines := max(2, body/8)
	if agents > 0 && body < roomForAgents {
		lines = 0
	}
	all := append(p.captionBlock(s, w, lines), p.figureLines(s, w)...)
	all = append(all, p.comparedBlock(s, w)...)
	all = append(all, p.agentsBlock(s, w, max(4, body/4))...)
	if agents == 0 || body >= roomForAgents {
		all = append(all, p.keyLines(s, w, max(1, body/16))...)
	}
	if w < roomForOutcomes {
		all = append(all, p.outcomesLine(s, w))
	}
	return append(append(all, p.errorLines(s, w, 2)...), p.verdictBlock(s, w)...)
}

// roomForOutcomes is the width in cells from which the outcomes have their own column. roomForAgents is the body
// height in lines from which agents do not replace the caption and the keys.
const (
	roomForAgents   = 26
	roomForOutcomes = 110
)

// figureLines draws the metrics with expectations.
func (p *loadPage) figureLines(s *state, w int) []string {
	var all []string
	l := widget.NewLine(w).Pad(widget.Style{}, 1)
	for _, f := range s.expectations() {
		if l.Rest() < widget.Width(f.text)+4 {
			all = append(all, l.String())
			l = widget.NewLine(w).Pad(widget.Style{}, 1)
		}
		l.Put(f.style, f.text).Pad(widget.Style{}, 3)
	}
	if l.Rest() < w-1 {
		all = append(all, l.String())
	}
	return all
}

// expectations returns the metrics with expectations, each with its status.
func (s *state) expectations() []segment {
	g, t, m := s.screen.glyphs, s.screen.theme, s.run.metrics
	var all []segment
	for i, x := range slices.Concat(s.run.scenario.Expect, s.run.scenario.Thresholds) {
		name, measured := loadgen.Label(x.Figure), x.Measured(m)
		if o := m.Violations.Overlap; name == "overlap" && o.Count > 0 && o.Count == o.Excused {
			measured += ", excused by a fault"
		}
		if len(loadgen.Missed([]loadgen.Threshold{x}, m)) == 0 {
			text := g.Check + " " + name + " " + measured
			if i < len(s.run.scenario.Expect) && measured != "0" {
				text += ", as expected"
			}
			all = append(all, segment{style: t.good, text: text})
			continue
		}
		all = append(all, segment{style: t.dim, text: fmt.Sprintf("%s %s %s (expected %s %s)", g.Ring, name, measured, x.Op, strings.TrimPrefix(x.String(), x.Figure+" "+x.Op+" "))})
	}
	return all
}

// comparedBlock compares the run with the runs beside it, one per line.
func (p *loadPage) comparedBlock(s *state, w int) []string {
	if len(s.run.compared) == 0 {
		return nil
	}
	t := s.screen.theme
	figures := []string{"acquired.count", "commands_per_hold", "wait.p50", "wait.p99", "overlap.count"}
	columns := mapped(figures, loadgen.Label)
	row := func(st widget.Style, name string, cells []string) string {
		l := widget.NewLine(w).Pad(widget.Style{}, 1).Put(st, s.screen.glyphs.Fit(name, 20))
		for i, text := range cells {
			l.Put(st, s.screen.glyphs.FitRight(text, widget.Width(columns[i])+2))
		}
		return l.String()
	}
	all := []string{row(t.dim, "compared", columns)}
	for _, c := range append([]loadgen.Compared{{Lock: s.run.scenario.Lock, Metrics: s.run.metrics}}, s.run.compared...) {
		all = append(all, row(t.text, c.Lock.String(), mapped(figures, c.Metrics.Figures().Text)))
	}
	return all
}

// keyLines draws the first n keys of the load: holder, count, TTL and waiters.
func (p *loadPage) keyLines(s *state, w, n int) []string {
	var all []string
	for i := range min(n, s.run.scenario.Keys.N) {
		key := fmt.Sprintf("%s%d", s.run.scenario.Keys.Prefix, i+1)
		l := widget.NewLine(w).Pad(widget.Style{}, 1)
		if s.run.scene < 0 || s.run.scenario.Keys.N > 1 { // else the lanes name it
			l.Put(s.screen.theme.dim, s.privacy.key(key)+" ")
		}
		s.keyLine(l, key)
		all = append(all, l.String())
	}
	return all
}

func (s *state) keyLine(l *widget.Line, key string) {
	t := s.screen.theme
	var lane *lane
	if s.timeline.reported(key) {
		lane = s.timeline.lane(ofLoad(key), nil, s.now)
	}
	s.keyState(l, lane, s.loadLock(key))
	if lane == nil || !s.run.metrics.Running {
		return
	}
	l.Put(t.text, "  "+s.waitersOf(lane))
	now := s.now
	since := now.Add(-min(busyOver, max(s.run.metrics.Elapsed, time.Second)))
	busy := fmt.Sprintf("  held %.0f%%", 100*lane.busy(timeWindow{from: since, to: now}, true))
	if whole := busy + " of the last " + humanize.Setting(now.Sub(since).Round(time.Second)); widget.Width(whole) < l.Rest() {
		busy = whole
	}
	if widget.Width(busy) < l.Rest() {
		l.Put(t.dim, busy)
	}
}

// loadLock returns the lock with the given key in the current snapshot, or nil.
func (s *state) loadLock(key string) *keyspace.Lock {
	locks := s.current().locks
	if i := slices.IndexFunc(locks, func(l *keyspace.Lock) bool { return l.Key == key }); i >= 0 {
		return locks[i]
	}
	return nil
}

// holders names the first holder of a lock with its count, and the number of other holders.
func (s *state) holders(l *keyspace.Lock) string {
	h := &l.Holders[0]
	text := s.privacy.owner(h.Name())
	if h.Depth > 1 {
		text += s.screen.glyphs.Word(fmt.Sprintf(" ×%d", h.Depth))
	}
	if s.run.faultLog.isUnaware(h.Label, l.Key, h.ID) {
		text += ", which does not know it"
	}
	return listed([]string{text}, 1, len(l.Holders))
}

// outcomesLine draws the outcomes in one line.
func (p *loadPage) outcomesLine(s *state, w int) string {
	l := widget.NewLine(w).Pad(widget.Style{}, 1)
	for i, f := range s.outcomes() {
		text := f.name + " " + f.value
		if i > 2 && f.none || l.Rest() < widget.Width(text)+2 {
			continue
		}
		l.Put(f.style, text).Pad(widget.Style{}, 2)
	}
	return l.String()
}

// verdict returns the verdict in a few words, and its style.
func (s *state) verdict() (widget.Style, string) {
	t, g, o := s.screen.theme, s.screen.glyphs, s.run.metrics.Violations.Overlap
	switch {
	case o.Count > 0 && s.run.metrics.Verdict(s.run.scenario).Doubtful:
		return t.warn, fmt.Sprintf(" %s perhaps %s, longest %s: or replies were late ", g.Alert, humanize.Plural(o.Count, "overlap"), humanize.Duration(o.Longest))
	case o.Count > 0:
		times := strings.ToUpper(humanize.Plural(o.Count, "overlap"))
		return t.alarm, fmt.Sprintf(" %s %s, longest %s: %s held it at the same time ", g.Alert, times, humanize.Duration(o.Longest), s.run.scenario.Lock.TooMany())
	case s.provenOverlaps() > 0:
		times := strings.ToUpper(humanize.Plural(s.provenOverlaps(), "overlap"))
		return t.alarm, fmt.Sprintf(" %s %s in the order of the witness: %s held it at the same time ", g.Alert, times, s.run.scenario.Lock.TooMany())
	case s.run.awaitsAgents():
		return t.dim, fmt.Sprintf(" %s %s ", g.None, s.run.arrivals())
	case s.run.metrics.Acquired == 0 && s.run.metrics.Running:
		return t.dim, fmt.Sprintf(" %s no client has got a lock yet ", g.None)
	case s.run.metrics.Acquired == 0:
		return t.dim, fmt.Sprintf(" %s nothing has run yet; %s starts the clients ", g.None, s.keymap.key(startStop))
	}
	many := s.run.scenario.Lock.TooMany()
	for _, k := range oracle.Kinds() {
		if n := k.Of(&s.run.metrics.Violations).Count; n > 0 && k.Severity < oracle.Harmless {
			_, st := s.look(k.Severity)
			return st, fmt.Sprintf(" %s 0 overlaps, but %s ", g.Alert, k.Sentence(n, many))
		}
	}
	switch {
	case len(s.run.agents.incomplete) > 0:
		return t.warn, fmt.Sprintf(" %s 0 overlaps, but the run is incomplete ", g.Alert)
	case s.run.metrics.Oracles > 1:
		return t.good, fmt.Sprintf(" %s no overlap was seen ", g.Check)
	default:
		return t.good, fmt.Sprintf(" %s 0 overlaps: mutual exclusion held ", g.Check)
	}
}

// verdictBlock draws the verdict and its explanation. An overlap fills three lines. A low
// window has one line.
func (p *loadPage) verdictBlock(s *state, w int) []string {
	st, words := s.verdict()
	line := func(st widget.Style, text string) string {
		return widget.NewLine(w).Put(st, s.screen.glyphs.FitEnd(text, w)).String()
	}
	note := "so far"
	if !s.run.metrics.Running {
		note = "final"
	}
	if s.screen.h < roomForWords {
		lines := s.wrapped(w, 1, st, strings.TrimSpace(words), 2)
		if len(lines) > 1 {
			return lines
		}
		l := widget.NewLine(w).Pad(widget.Style{}, 1).Put(s.screen.theme.dim, note).Pad(widget.Style{}, 1)
		return []string{l.Put(st, s.screen.glyphs.FitEnd(strings.TrimSpace(words), l.Rest())).String()}
	}
	all := []string{s.ruleOf(w, "verdict", note)}
	if s.run.metrics.Violations.Overlap.Count > 0 || s.provenOverlaps() > 0 {
		all = append(all, line(st, ""), line(st, words), line(st, ""))
	} else {
		all = append(all, line(st, words))
	}
	if s.run.metrics.Acquired > 0 && s.provenOverlaps() == 0 {
		verdict, found := s.run.metrics.Verdict(s.run.scenario), s.run.metrics.Violations
		if s.run.metrics.Oracles < 2 && found.Overlap.Count+found.WorkOverlap.Count == 0 {
			verdict.Overlap = "" // the words say it
		}
		all = append(all, s.wrapped(w, 1, s.screen.theme.text, widget.Plain(strings.TrimSpace(verdict.Text())), 2)...)
		missed := verdict.Missed
		if !s.run.metrics.Running {
			missed = append(missed, verdict.Gaps...)
		}
		for _, text := range missed {
			all = append(all, line(s.screen.theme.bad, " "+s.screen.glyphs.Cross+" "+widget.Plain(text)))
		}
	}
	return all
}

// roomForWords is the window height in lines from which the verdict is explained.
const roomForWords = 28
