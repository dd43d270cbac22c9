package tui

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"locktop/internal/humanize"
	"locktop/keyspace"
	"locktop/tui/widget"
)

// timelinePage draws the holds of each lock over time, one lane per lock.
type timelinePage struct {
	list[keyspace.ID] // by lane
	filter            filter
	zoom              int           // index into zooms
	offset            time.Duration // time from the right edge to now

	jumped     time.Time     // local time of the overlap that the last jump showed
	jumpOffset time.Duration // back after the jump; differs after panning
}

// zooms lists the time spans that fit the screen.
var zooms = []time.Duration{2 * time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second,
	time.Minute, 2 * time.Minute, 5 * time.Minute, historyKept}

func (p *timelinePage) act(s *state, a action) tea.Cmd {
	switch {
	case a == back && p.offset > 0:
		p.offset = 0
		return nil
	case p.navigate(a) || p.filter.onKey(s, a, p):
		return nil
	}
	switch a {
	case zoomIn:
		p.zoomTo(s, p.zoom-1)
	case zoomOut:
		p.zoomTo(s, p.zoom+1)
	case panLeft:
		p.pan(s, p.span()/4)
	case panRight:
		p.pan(s, -p.span()/4)
	case previousFault:
		p.jump(s, -1)
	case nextFault:
		p.jump(s, 1)
	case enter:
		if len(p.keys) > 0 {
			s.openLock(p.laneLock(s))
			return nil
		}
		s.reject("no lock to open")
	}
	return nil
}

func (p *timelinePage) span() time.Duration { return zooms[p.zoom] }

func (p *timelinePage) zoomTo(s *state, zoom int) {
	p.zoom = max(0, min(zoom, len(zooms)-1))
	if zoom != p.zoom {
		s.reject("already at the limit: " + humanize.Duration(p.span()))
	}
}

func (p *timelinePage) pan(s *state, by time.Duration) {
	p.offset = max(0, min(p.offset+by, historyKept))
	if p.offset == 0 && by < 0 {
		s.notify("now at the live edge")
	}
}

// window returns the visible time span, w cells wide.
func (p *timelinePage) window(s *state, w int) timeWindow {
	to := s.clock().Add(-p.offset)
	return timeWindow{to.Add(-p.span()), to, max(1, w)}
}

// jump shows the overlap before or after the one of the last jump. At first and after panning,
// it starts at the edge of the window.
func (p *timelinePage) jump(s *state, direction int) {
	now := s.clock().Add(-s.current().offset) // local time, as the load's events have
	view := p.window(s, 1)
	from := map[int]time.Time{-1: view.to, 1: view.from}[direction].Add(-s.current().offset)
	if !p.jumped.IsZero() && p.offset == p.jumpOffset {
		from = p.jumped
	}
	var best timeWindow
	var where string
	var nearest time.Duration
	for key, overlaps := range s.timeline.overlaps {
		for _, c := range overlaps {
			if ahead := time.Duration(direction) * c.from.Sub(from); ahead > 0 && (nearest == 0 || ahead < nearest) {
				best, where, nearest = c, key, ahead
			}
		}
	}
	if nearest == 0 {
		s.reject("no violation " + [...]string{"before", "", "after"}[direction+1] + " this time")
		return
	}
	p.offset = max(0, now.Sub(best.from)-p.span()/2)
	if row := slices.IndexFunc(p.keys, func(id keyspace.ID) bool { return id.Key == where }); row >= 0 {
		p.choose(row)
	}
	p.jumped, p.jumpOffset = best.from, p.offset
	s.notify("two clients held it at the same time for " + humanize.Duration(best.to.Sub(best.from)))
}

// arrange lists the lanes with content: those of the load first, then the others, each in order
// of name, so that lanes keep their places.
func (p *timelinePage) arrange(s *state) {
	lanes := p.keys[:0]
	p.filter.all = 0
	add := func(id keyspace.ID, owners func() []string) {
		p.filter.all++
		if p.filter.lane(id.Key, owners) {
			lanes = append(lanes, id)
		}
	}
	known := timeWindow{from: s.clock().Add(-historyKept)}
	m := s.moment()
	for id, n := range s.timeline.each {
		if last, lasts := n.Last(); lasts || last.After(m.onClockOf(n, known).from) {
			add(id, n.names)
		}
	}
	for _, l := range s.current().snap.Locks {
		if len(l.Holders) > 0 && !s.timeline.sampled.Has(l.ID()) && !s.timeline.reported(l.Key) {
			add(l.ID().OnAnyNode(), func() []string { return mapped(l.Holders, keyspace.Holder.Name) })
		}
	}
	rank := func(id keyspace.ID) int {
		if s.timeline.reported(id.Key) {
			return 0
		}
		return 1
	}
	slices.SortFunc(lanes, func(a, b keyspace.ID) int {
		return cmp.Or(rank(a)-rank(b), keyspace.CompareNames(a.Key, b.Key), a.DB-b.DB)
	})
	p.filter.found = len(lanes)
	p.set(lanes, max(0, s.frame().body-1-legendLines))
}

// laneLock returns the lock of the selected lane. A load's lane identifies the lock by its key
// only.
func (p *timelinePage) laneLock(s *state) keyspace.Lock {
	id := p.chosen
	for _, l := range s.current().locks {
		if l.ID().OnAnyNode() == id || s.timeline.reported(id.Key) && l.Key == id.Key {
			return *l
		}
	}
	return keyspace.Lock{Key: id.Key, DB: id.DB}
}

// legendLines is the height of the legend below the lanes, in lines.
const legendLines = 3

func (p *timelinePage) summary(s *state, l *widget.Line) {
	t, g := s.screen.theme, s.screen.glyphs
	var judged segment
	if s.run.load != nil {
		judged = s.overlaps()
	}
	edge := "ending now"
	if p.offset > 0 {
		edge = "ending " + humanize.Duration(p.offset) + " ago"
	}
	lanes := humanize.Plural(p.filter.all, "lane")
	if p.filter.active() {
		lanes = humanize.Count(p.filter.found) + " of " + lanes + " " + p.filter.shown(s)
	}
	source := "selected lane: sampled, without shorter holds than a poll"
	if len(p.keys) > 0 && s.timeline.reported(p.chosen.Key) {
		source = "selected lane: exact, of the load's own clients"
	}
	layoutLine(l, g, []segment{
		{style: t.strong, text: humanize.Duration(p.span())},
		{style: t.text, text: edge},
		{style: t.text, text: lanes, priority: 2},
		{style: t.dim, text: source, priority: 4},
	}, []segment{judged})
}

func (p *timelinePage) view(s *state, w, h int) []string {
	names := min(32, max(8, w/4))
	v := p.window(s, w-margin-names-2)
	lines := []string{p.axis(s, w, names, v)}
	if len(p.keys) == 0 {
		empty := "no lock has been held yet"
		if p.filter.all > 0 {
			empty = s.keymap.named("no lane matches the filter; {back} shows all")
		}
		lines = append(lines, s.paragraph(w, "", empty)...)
	}
	lines = append(lines, p.lines(w, h-1-legendLines, func(l *widget.Line, row int) { p.lane(s, l, names, row, v) })...)
	return append(filled(lines, w, h-legendLines), p.legend(s, w, v)...)
}

// lane draws the key of a lock and its strip.
func (p *timelinePage) lane(s *state, l *widget.Line, names, row int, v timeWindow) {
	id := p.keys[row]
	name := s.screen.theme.text
	if row == p.row {
		name = s.screen.theme.strong
	}
	s.pointer(l, row == p.row)
	l.Put(name, s.screen.glyphs.Fit(s.privacy.key(id.Key), names)).Pad(widget.Style{}, 1)
	s.strip(l, id, v)
}

// axis draws the times above the lanes, and the faults where they began.
func (p *timelinePage) axis(s *state, w, names int, v timeWindow) string {
	l := widget.NewLine(w).Pad(widget.Style{}, margin).Put(s.screen.theme.head, s.screen.glyphs.Fit("LOCK", names)).Pad(widget.Style{}, 1)
	edge := margin + names + 1
	const every = 20
	form := "15:04:05"
	if p.span() <= 10*time.Second {
		form = "15:04:05.0"
	}
	var times []word
	for x := 0; x+every/2 < v.w; x += every {
		at := v.from.Add(v.to.Sub(v.from) / time.Duration(v.w) * time.Duration(x))
		times = append(times, word{x, at.Local().Format(form), s.screen.theme.dim})
	}
	local := v
	local.from, local.to = v.from.Add(-s.current().offset), v.to.Add(-s.current().offset)
	putWords(l, edge, slices.Concat(times[:min(1, len(times))], s.faultWords(local, len(form)+1), times))
	return l.String()
}

// legend draws the owners of the letters in the selected lane, and the glyphs.
func (p *timelinePage) legend(s *state, w int, v timeWindow) []string {
	if len(p.keys) == 0 {
		return nil
	}
	lines := []string{s.ruleOf(w, s.privacy.key(p.chosen.Key), "who held it")}
	lines = append(lines, p.ownersLegend(s, w, v)...)
	g, t := s.screen.glyphs, s.screen.theme
	return append(lines, s.signs(w, sign{t.owners[0].fill, g.Across[8], "held"}, sign{t.text, g.Shared, "shared"}, sign{t.warn, g.Contended, "waited for"},
		sign{t.warn, g.Dashed, "free, with waiters"}, sign{t.alarm, g.Clash, "overlap"}, sign{t.band, g.Behind, "fault"}))
}

// ownersLegend draws the owners of the letters in a strip, as many as fit in one line.
func (p *timelinePage) ownersLegend(s *state, w int, v timeWindow) []string {
	n, v := s.moment().lane(p.chosen, v)
	if n == nil {
		return nil
	}
	l := widget.NewLine(w).Pad(widget.Style{}, margin)
	seen := map[int]bool{} // by owner number, because some unsound kinds of lock give one token to several clients
	for _, h := range slices.Backward(n.drawn()) {
		if seen[h.owner] || !v.shows(h.From.At, h.To.At) {
			continue
		}
		seen[h.owner] = true
		letter, look := s.screen.theme.ofOwner(h.letter)
		name := s.privacy.owner(h.Holder.Name())
		if len(name) > 20 {
			name = s.screen.glyphs.Fit(name, 20)
		}
		text := fmt.Sprintf(" %s %s", name, humanize.Duration(h.until(v.to).Sub(h.From.At)))
		if l.Rest() < widget.Width(text)+4 {
			l.Put(s.screen.theme.dim, s.screen.glyphs.Ellipsis)
			break
		}
		l.Put(look.letter, letter).Put(s.screen.theme.text, text).Pad(widget.Style{}, 3)
	}
	if len(seen) == 0 {
		return []string{widget.NewLine(w).Pad(widget.Style{}, margin).Put(s.screen.theme.dim, "no hold was seen in this time").String()}
	}
	return []string{l.String()}
}

// sign is a glyph of a strip with its meaning.
type sign struct {
	style widget.Style
	glyph string
	word  string
}

// signs draws the meanings of glyphs.
func (s *screen) signs(w int, all ...sign) string {
	l := widget.NewLine(w).Pad(widget.Style{}, margin)
	for _, one := range all {
		l.Put(one.style, one.glyph).Put(s.theme.dim, " "+one.word).Pad(widget.Style{}, 2)
	}
	return l.String()
}
