package tui

import (
	"fmt"
	"strings"

	"locktop/humanize"
	"locktop/tui/widget"
)

// frame is how the window is divided.
type frame struct {
	head, summary, foot bool
	body                int // lines
	compact             bool
}

// frame divides the window. In a small one the page comes first.
func (s *state) frame() frame {
	f := frame{body: s.h, compact: s.w < 60 || s.h < 12}
	f.head = s.h >= 3
	f.foot = s.h >= 5
	f.summary = !f.compact
	for _, line := range []bool{f.head, f.foot, f.summary} {
		if line {
			f.body--
		}
	}
	return f
}

// top is the first line of the page.
func (f frame) top() int {
	n := 0
	for _, line := range []bool{f.head, f.summary} {
		if line {
			n++
		}
	}
	return n
}

// head draws the first line: what this is, what it is connected to, and
// whether what it shows is now.
func (a *app) head(s *state) string {
	t := s.theme
	parts := []part{{style: t.chip, text: " locktop "}}
	parts = append(parts, a.tabs(s)...)
	parts = append(parts, part{style: t.strong, text: " " + s.address(), rank: 2, flex: 14})

	l := widget.NewLine(s.w)
	spread(l, s.glyphs, parts, []part{
		{style: t.dim, text: s.version(), rank: 5},
		s.mode(),
		{style: t.dim, text: s.oclock(), rank: 6},
		a.rights(),
	})
	return l.String()
}

// rights say what the keys may do to the server.
func (a *app) rights() part {
	switch {
	case a.playing != nil && a.playing.Damage != "":
		return part{style: a.theme.bad, text: "REPLAY, damaged", rank: 1}
	case a.playing != nil:
		return part{style: a.theme.good, text: "REPLAY", rank: 1}
	case a.world.Breaker == nil && a.load != nil && a.begin != nil:
		return part{style: a.theme.warn, text: "READ-ONLY + LOAD", rank: 3}
	case a.world.Breaker == nil:
		return part{style: a.theme.good, text: "READ-ONLY", rank: 3}
	case a.world.Production:
		return part{style: a.theme.alarm, text: " PRODUCTION ", rank: 1}
	default:
		return part{style: a.theme.warn, text: "WRITE", rank: 3}
	}
}

// tabs are the names of the numbered pages, or their numbers alone where there
// is no room for more.
func (a *app) tabs(s *state) []part {
	var tabs []part
	for i, p := range a.pages {
		title := p.title()
		if title == "" {
			continue
		}
		st := s.theme.dim
		if i == a.open || a.page().title() == "" && i == a.from {
			st = s.theme.tab
		} else if s.w < namesFrom || s.playing != nil && s.w < namesFrom+25 {
			title = title[:1]
		}
		tabs = append(tabs, part{style: st, text: title, rank: 1, tight: true})
	}
	return tabs
}

// namesFrom is the width from which on all pages are named.
const namesFrom = 100

// clickTab opens the page whose name is at a column of the first line.
func (a *app) clickTab(x int) {
	at := widget.Width(" locktop ") + apart
	for i, tab := range a.tabs(&a.state) {
		if x >= at && x < at+widget.Width(tab.text) {
			a.turnTo(i)
			return
		}
		at += widget.Width(tab.text) + tab.gap()
	}
}

// address is where we are connected, as it may be shown.
func (s *state) address() string {
	if s.veil.drawn {
		return "(hidden)"
	}
	return s.where
}

// oclock is our time, or that of the recording.
func (s *state) oclock() string {
	if s.playing != nil {
		return s.playing.At.Local().Format("15:04:05")
	}
	return s.now.Format("15:04:05")
}

func (s *state) version() string {
	return widget.Plain(strings.ToLower(s.shown().snap.Server.Software()))
}

// mode says whether the picture is of now.
func (s *state) mode() part {
	g, t := s.glyphs, s.theme
	switch {
	case s.playing != nil:
		return part{style: t.chip, text: s.playing.position(s), rank: 1}
	case s.still != nil:
		text := " PAUSED " + humanize.Clock(s.now.Sub(s.still.since))
		if s.still.rewound {
			text = " showing " + s.still.clock.Local().Format("15:04:05")
		}
		if n := s.missed(); n > 0 {
			text += ", +" + humanize.Plural(n, "event")
		}
		return part{style: t.chip, text: text + " ", rank: 1}
	case s.link.down():
		return part{style: t.bad, text: g.Cross + " lost", rank: 1}
	case s.live == nil:
		return part{style: t.warn, text: g.Dotted + " connecting", rank: 1}
	case s.link.busy && s.now.Sub(s.link.asked) >= doubtAfter:
		return part{style: t.warn, text: g.Dotted + " no answer " + humanize.Duration(s.now.Sub(s.link.asked)), rank: 1}
	default:
		return part{style: t.good, text: g.Dot + " live", rank: 1}
	}
}

// summary draws the second line: what the page makes of the picture, or why
// there is no newer one.
func (a *app) summary(s *state, p page) string {
	l := widget.NewLine(s.w)
	l.Skip(widget.Style{}, 1)
	if s.link.down() {
		l.Put(s.theme.bad, s.glyphs.FitEnd(s.lost(), l.Rest()))
		return l.String()
	}
	p.summary(s, l)
	return l.String()
}

// lost says since when and why there is no newer picture.
func (s *state) lost() string {
	k, g := s.link, s.glyphs
	switch {
	case k.silent && k.answered.IsZero():
		return fmt.Sprintf("%s no answer for %s, still waiting", g.Cross, humanize.Duration(s.now.Sub(k.asked)))
	case k.silent:
		return fmt.Sprintf("%s no answer for %s, still waiting", g.Cross, humanize.Duration(s.now.Sub(k.answered)))
	case k.answered.IsZero():
		return fmt.Sprintf("%s no connection: %s, trying again", g.Cross, k.reason)
	default:
		return fmt.Sprintf("%s connection lost %s ago: %s, trying again", g.Cross, humanize.Duration(s.now.Sub(k.answered)), k.reason)
	}
}

// foot draws the last line: what the last key had to say, or which keys there
// are.
func (s *state) foot(p page) string {
	l := widget.NewLine(s.w)
	t := s.theme
	if s.notice.text != "" {
		st := t.strong
		if s.notice.bad {
			st = t.warn
		}
		l.Skip(widget.Style{}, 1).Put(st, s.glyphs.FitEnd(s.notice.text, l.Rest()))
		return l.String()
	}
	for _, b := range bindings() {
		if b.word == "" || b.place&p.place() == 0 || !s.offers(b) {
			continue
		}
		label := s.glyphs.Word(b.label)
		if widget.Width(label)+widget.Width(b.word)+3 > l.Rest() {
			continue
		}
		l.Skip(widget.Style{}, 1).Put(t.key, label).Put(t.dim, " "+b.word).Skip(widget.Style{}, 1)
	}
	return l.String()
}

// offers reports whether there is anything for a key to act on: a load for those of
// the Load page, servers that can be taken down for those of the Nodes page.
func (s *state) offers(b binding) bool {
	switch b.place {
	case onLoad:
		return s.load != nil || s.begin != nil && b.action == startStop
	case onNodes:
		return len(s.quorum) > 0
	}
	return true
}
