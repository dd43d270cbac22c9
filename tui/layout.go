package tui

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"locktop/internal/humanize"
	"locktop/tui/widget"
)

// layout divides the window into header, summary, page body and footer.
type layout struct {
	header, summary, footer bool
	body                    int // lines
	compact                 bool
}

// frame returns the layout for the size of the window. A small window drops the other lines in
// favour of the page.
func (s *screen) frame() layout {
	f := layout{compact: s.w < 60 || s.h < 12, header: s.h >= 3, footer: s.h >= 5}
	f.summary = !f.compact
	f.body = s.h - f.top() - linesOf(f.footer)
	return f
}

// top returns the number of lines above the page.
func (f layout) top() int { return linesOf(f.header, f.summary) }

// bottom returns the number of lines above the footer.
func (f layout) bottom() int { return f.top() + f.body }

// linesOf returns the number of lines that are shown.
func linesOf(shown ...bool) int { return count(shown, func(on *bool) bool { return *on }) }

// View implements tea.Model. It returns exactly as many lines as the window has, each as wide
// as the window.
func (a *app) View() string {
	s := &a.state
	if s.screen.w <= 0 || s.screen.h <= 0 {
		return ""
	}
	lines := a.lines(s)
	if s.dialog != nil {
		lines = s.dialog.draw(s, lines)
	}
	return strings.Join(lines, "\n")
}

// lines returns the lines of the screen: header, summary, page, footer. The colours of stale data are faint.
func (a *app) lines(s *state) []string {
	f := s.frame()
	lines := make([]string, 0, s.screen.h)
	if f.header {
		l := widget.NewLine(s.screen.w) // the page tabs, the server, the status and the write mode
		left, right := a.header(s)
		layoutLine(l, s.screen.glyphs, left, right)
		lines = append(lines, l.String())
	}
	if f.summary {
		lines = append(lines, a.summaryLine(s))
	}
	shown := *s
	if s.paused == nil && s.refresher.stale() {
		shown.screen.theme = s.screen.theme.faded(s.screen.renderer)
	}
	lines = append(lines, filled(a.page().view(&shown, s.screen.w, f.body), s.screen.w, f.body)[:f.body]...)
	if f.footer {
		lines = append(lines, s.footer(a.place(), a.open == a.home))
	}
	return lines
}

// header returns the segments of the first line: the program, a tab for each numbered page, the server, its status and
// the write mode. If these leave no room for the titles of all pages, the program and the numbers of the pages are
// dropped, or else the names of the closed pages.
func (a *app) header(s *state) (left, right []segment) {
	const needed = 3 // the priorities of server, status and mode
	t, clock := s.screen.theme, s.now
	if s.playback != nil {
		clock = s.playback.At.Local()
	}
	right = []segment{
		{style: t.dim, text: widget.Plain(strings.ToLower(s.current().snap.Server.Software())), priority: 5},
		s.mode(),
		{style: t.dim, text: clock.Format("15:04:05 MST"), priority: 6},
		a.modeBadge(),
	}
	server := segment{style: t.strong, text: " " + strings.TrimPrefix(s.address(), "redis://"), priority: 2}
	for cut := range 3 {
		left = []segment{{style: t.chip, text: []string{" locktop ", "", " locktop "}[cut]}}
		for i := range a.numbered() {
			title, st := pageSet(1<<i).title(), t.tab
			number, name, _ := strings.Cut(title, " ")
			closed := i != a.open && (a.place() != onLock || i != a.from)
			if closed {
				st = t.dim
			}
			switch {
			case cut == 1:
				title = name
			case cut == 2 && closed:
				title = number
			}
			left = append(left, segment{style: st, text: title, priority: 1, tight: true})
		}
		server.flex = max(14, min(widget.Width(server.text), maxServer))
		if cut > 0 {
			server.flex = 14
		}
		left = append(left, server)
		if needs(left, needed)+needs(right, needed) <= s.screen.w-1+segmentGap {
			break
		}
	}
	left[len(left)-1].flex = 14
	return left, right
}

// maxServer is the width from which the server may be cut for the titles of the pages.
const maxServer = 24

// modeBadge says which changes the keys can make on the server.
func (a *app) modeBadge() segment {
	switch {
	case a.playback != nil && a.playback.Damage != "":
		return segment{style: a.screen.theme.bad, text: "REPLAY, damaged", priority: 1}
	case a.playback != nil:
		return segment{style: a.screen.theme.good, text: "REPLAY", priority: 1}
	case a.config.Executor == nil && a.run.load != nil && a.run.begin != nil:
		return segment{style: a.screen.theme.warn, text: "READ-ONLY + LOAD", priority: 3}
	case a.config.Executor == nil:
		return segment{style: a.screen.theme.good, text: "READ-ONLY", priority: 3}
	case a.whyNotAct() != "":
		return segment{style: a.screen.theme.bad, text: "WRITE (cannot act)", priority: 3}
	case a.config.Production:
		return segment{style: a.screen.theme.alarm, text: " PRODUCTION ", priority: 1}
	default:
		return segment{style: a.screen.theme.warn, text: "WRITE", priority: 3}
	}
}

// address returns the connected server, or a placeholder in privacy mode.
func (s *state) address() string {
	if s.privacy.on {
		return "(hidden)"
	}
	return widget.Plain(s.config.Title)
}

// mode returns the status of the view: live, paused, lost or a position in a recording.
func (s *state) mode() segment {
	g, t := s.screen.glyphs, s.screen.theme
	switch {
	case s.playback != nil:
		return segment{style: t.chip, text: s.playback.position(s), priority: 1}
	case s.paused != nil:
		text := " PAUSED " + humanize.Clock(s.now.Sub(s.paused.since))
		if s.paused.rewound {
			text = " showing " + s.paused.clock.Local().Format("15:04:05")
		}
		if n := s.log.total - s.paused.events; n > 0 {
			text += ", +" + humanize.Plural(n, "event")
		}
		return segment{style: t.chip, text: text + " ", priority: 1}
	case s.refresher.stale():
		return segment{style: t.bad, text: g.Cross + " lost", priority: 1}
	case s.live == nil:
		return segment{style: t.warn, text: g.Dotted + " connecting", priority: 1}
	case s.refresher.busy && s.now.Sub(s.refresher.asked) >= slowAfter:
		return segment{style: t.warn, text: g.Dotted + " no answer " + humanize.Duration(s.now.Sub(s.refresher.asked)), priority: 1}
	}
	answered := s.live.snap.AnsweredAt() // zero if it is not known when the servers answered the reads that the picture shows
	if age := s.now.Sub(answered); !answered.IsZero() && age > s.refresher.every+oldAfter {
		return segment{style: t.warn, text: g.Dotted + " " + humanize.Duration(age) + " old", priority: 1}
	}
	return segment{style: t.good, text: g.Dot + " live", priority: 1}
}

// oldAfter is the age from which a picture is not live.
const oldAfter = 2 * time.Second

// summaryLine draws the second line: the page's summary, the connection error, or the gap in a
// recording.
func (a *app) summaryLine(s *state) string {
	l := widget.NewLine(s.screen.w).Pad(widget.Style{}, 1)
	bad := ""
	if p := s.playback; s.refresher.stale() {
		bad = s.refresher.lost(s.now)
	} else if p != nil && !p.GapFrom.IsZero() {
		bad = fmt.Sprintf("nothing was recorded from %s to %s: this is the state before", p.GapFrom.Local().Format(time.TimeOnly), p.GapUntil.Local().Format(time.TimeOnly))
	}
	if bad != "" {
		return l.Put(s.screen.theme.bad, s.screen.glyphs.FitEnd(s.screen.glyphs.Cross+" "+bad, l.Rest())).String()
	}
	a.page().summary(s, l)
	return l.String()
}

// lost describes the connection error and its duration.
func (k *refresher) lost(now time.Time) string {
	switch {
	case k.silent:
		return fmt.Sprintf("no answer for %s, still waiting", humanize.Duration(now.Sub(cmp.Or(k.answered, k.asked))))
	case k.refused:
		return fmt.Sprintf("the server refuses to be read: %s, trying again", k.reason)
	case k.answered.IsZero():
		return fmt.Sprintf("no connection: %s, trying again", k.reason)
	default:
		return fmt.Sprintf("connection lost %s ago: %s, trying again", humanize.Duration(now.Sub(k.answered)), k.reason)
	}
}

// footer draws the last line: the message of the last key, or the keys of the page, the first one or another.
func (s *state) footer(at pageSet, first bool) string {
	l := widget.NewLine(s.screen.w)
	t := s.screen.theme
	if s.notice.text != "" {
		st := t.strong
		if s.notice.bad {
			st = t.warn
		}
		l.Pad(widget.Style{}, 1).Put(st, s.screen.glyphs.FitEnd(s.notice.text, l.Rest()))
		return l.String()
	}
	for _, b := range s.footerKeys(at) {
		if b.actions[0].action == quit && !first {
			b.word = "back"
		}
		l.Pad(widget.Style{}, 1).Put(t.key, s.screen.glyphs.Word(b.label)).Put(t.dim, " "+b.word).Pad(widget.Style{}, 1)
	}
	return l.String()
}

// footerKeys returns the keys of a page that have room in the footer.
func (s *state) footerKeys(at pageSet) (all []binding) {
	rest := s.screen.w
	for _, b := range s.keymap {
		if w := s.footerWidth(b); b.word != "" && b.place&at != 0 && s.offers(b) && w <= rest {
			all = append(all, b)
			rest -= w
		}
	}
	return all
}

// footerWidth returns the width of a key in the footer.
func (s *screen) footerWidth(b binding) int {
	return widget.Width(s.glyphs.Word(b.label)) + widget.Width(b.word) + 3
}

// offers reports whether a key has a target: the menu some scenes, an action a session that may act, a key of the Load or Nodes page a load, or
// the servers of a Redlock.
func (s *state) offers(b binding) bool {
	switch b.actions[0].action {
	case sceneMenu:
		return s.run.load != nil && len(s.run.scenes) > 0
	case actOn:
		return s.config.Executor != nil
	case findClient:
		return s.findsClients()
	}
	switch b.place {
	case onLoad:
		return s.run.load != nil || s.run.begin != nil && b.actions[0].action == startStop
	case onNodes:
		return len(s.run.quorum) > 0
	}
	return true
}

// segment is a part of a line. Its text must be escaped by widget.Plain.
type segment struct {
	style    widget.Style
	text     string // "" hides the segment
	priority int    // 0 always stays; of the others, the highest is dropped first
	flex     int    // minimum width in cells, if the text may be shortened; 0 if not
	tight    bool   // followed by one blank instead of segmentGap
}

// gap returns the number of blanks after the segment.
func (p segment) gap() int {
	if p.tight {
		return 1
	}
	return segmentGap
}

// segmentGap is the number of blanks between two segments.
const segmentGap = 2

func (p segment) min() int {
	n := widget.Width(p.text)
	if p.flex > 0 {
		n = min(n, p.flex)
	}
	return n
}

// layoutLine draws segments at the left and right edges of a line except for its last cell. It
// drops segments that do not fit by priority. Flexible segments belong to the left.
func layoutLine(l *widget.Line, g widget.Glyphs, left, right []segment) {
	const edge = 1
	room := l.Rest() - edge + segmentGap
	limit := slices.MaxFunc(slices.Concat(left, right), func(a, b segment) int { return a.priority - b.priority }).priority
	for limit > 0 && needs(left, limit)+needs(right, limit) > room {
		limit--
	}
	spare := max(0, room-needs(left, limit)-needs(right, limit))
	for _, p := range left {
		spare = put(l, g, p, limit, spare)
	}
	l.Pad(widget.Style{}, l.Rest()-edge+segmentGap-needs(right, limit))
	for _, p := range right {
		spare = put(l, g, p, limit, spare)
	}
}

// put draws a segment with its gap, and returns the remaining spare cells.
func put(l *widget.Line, g widget.Glyphs, p segment, limit, spare int) int {
	if p.text == "" || p.priority > limit {
		return spare
	}
	more := min(spare, widget.Width(p.text)-p.min())
	l.Put(p.style, g.FitEnd(p.text, p.min()+more)).Pad(widget.Style{}, p.gap())
	return spare - more
}

// needs returns the minimum width of the segments up to priority limit, with gaps.
func needs(side []segment, limit int) int {
	n := 0
	for _, p := range side {
		if p.text != "" && p.priority <= limit {
			n += p.min() + p.gap()
		}
	}
	return n
}
