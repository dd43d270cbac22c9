package tui

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"locktop/keyspace"
	"locktop/loadgen"
	"locktop/loadgen/oracle"
	"locktop/tui/widget"
)

// told is what the client of a hold of the load has reported besides its begin and its end.
type told struct {
	label string // its count, its fencing number, or what it is for
	until time.Time
	marks []mark
}

// mark is a report at a moment.
type mark struct {
	at    time.Time
	kind  loadgen.EventKind
	label string // of the hold, from then on
}

// toldKept is the number of holds with reports.
const toldKept = 1024

// mark records what the client of a hold reports. lock is the lock of the load.
func (c *timeline) mark(e *loadgen.Event, lock loadgen.Lock) {
	id := e.Owner() + " " + e.Token
	m, now := mark{at: e.At, kind: e.Kind}, c.told[id]
	switch e.Kind {
	case loadgen.EventKind(oracle.StaleWriteRefused), loadgen.EventKind(oracle.StaleWriteAccepted):
	case loadgen.Renewed:
		now.until = e.At.Add(lock.TTL)
	case loadgen.Counted:
		m.label = strconv.Itoa(e.Depth)
	case loadgen.Acquired:
		mode := map[bool]string{true: "R", false: "W"}[e.Shared]
		m.label, now.until = map[loadgen.Kind]string{loadgen.RW: mode, loadgen.Reentrant: "1"}[lock.Kind], e.Deadline
		if lock.Fence {
			m.label = strconv.FormatInt(e.Fence, 10)
		}
	default:
		return
	}
	if c.told == nil || len(c.told) > toldKept {
		c.told = make(map[string]told)
	}
	now.label, now.marks = cmp.Or(m.label, now.label), append(now.marks, m)
	c.told[id] = now
}

// lanesBlock draws the past of the first key in at most h lines, one for each client, and what the client does now.
func (p *loadPage) lanesBlock(s *state, w, h int) []string {
	const names, words = 10, 17
	t, g, key := s.screen.theme, s.screen.glyphs, s.run.scenario.Keys.Prefix+"1"
	began, now := cmp.Or(s.run.metrics.Began, s.now), s.now
	if !s.run.metrics.Running {
		now = began.Add(s.run.metrics.Elapsed)
	}
	v := timeWindow{began, later(began.Add(max(s.run.scenario.Duration, time.Second)), now), max(1, w-names-words-2)} // the whole run
	all := []string{s.ruleOf(w, s.privacy.key(key), s.sentence("exact", "| renewed", g.Behind+" lease", g.Dashed+" waits"))}
	past := v // up to now: cells of the same width
	past.w = max(0, min(v.w, int(v.cell(now))))
	past.to = v.from.Add(v.to.Sub(v.from) * time.Duration(past.w) / time.Duration(v.w))
	n := s.timeline.lane(ofLoad(key), nil, now)
	if n == nil {
		n = new(lane)
	}
	rows, _ := n.swimlanes(past, max(1, h-2))
	slices.SortFunc(rows, func(a, b *swimlane) int { return keyspace.CompareNames(a.client, b.client) })
	for _, one := range rows {
		st, word := p.doing(s, n, one)
		l := widget.NewLine(w).Pad(widget.Style{}, 1).Put(t.text, g.Fit(s.privacy.owner(one.client), names)).Put(st, g.Fit(word, words))
		g.Strip(l, widget.Style{}, v.w, append(one.draw(t, g, past, nil), p.markSpans(s, n, one, v, now)...))
		all = append(all, l.String())
	}
	return append(all, p.lanesAxis(s, w, w-v.w-1, v, now))
}

// doing says what a client does with the first key.
func (p *loadPage) doing(s *state, n *lane, one *swimlane) (widget.Style, string) {
	state := s.stateOf(one.client)
	glyph, st := s.look(state)
	word := state.String()
	rw := s.run.scenario.Lock.Kind == loadgen.RW
	switch {
	case state == loadgen.Thinking:
		return st, ""
	case state == loadgen.Queued && rw:
		word = map[bool]string{true: "waits to read", false: "waits to write"}[s.timeline.reads[one.client]]
	}
	for _, h := range n.Holds {
		if h.Lasts() && h.Holder.Name() == one.client {
			switch label := s.timeline.told[h.Holder.ID].label; {
			case rw && state == loadgen.Inside:
				word = map[string]string{"R": "reads", "W": "writes"}[label]
			case s.run.scenario.Lock.Fence:
				word += " #" + label
			case s.run.scenario.Depth > 1:
				word += s.screen.glyphs.Word(" ×" + label)
			}
		}
	}
	return st, glyph + " " + word
}

// markSpans draws what happened during the holds of a client, and until when its leases last.
func (p *loadPage) markSpans(s *state, n *lane, one *swimlane, v timeWindow, now time.Time) (spans []widget.Span) {
	t, g := s.screen.theme, s.screen.glyphs
	label := func(at time.Time, text string, st widget.Style) {
		x := math.Floor(v.cell(at)) - 1
		for _, r := range text {
			x++
			spans = append(spans, widget.Span{From: x, To: x + 1, Label: string(r), On: st})
		}
	}
	for _, h := range one.holds {
		_, look := t.ofOwner(h.letter)
		told := s.timeline.told[h.Holder.ID]
		until := told.until
		for _, m := range told.marks {
			glyph, st := s.look(m.kind)
			switch m.kind {
			case loadgen.Renewed:
				glyph, st = "|", look.letter
			case loadgen.Acquired, loadgen.Counted:
				if glyph, st = m.label, look.letter; glyph == "" {
					glyph, st = g.Across[8], look.fill
				}
			}
			label(m.at, glyph, st)
		}
		switch {
		case h.Lasts() && s.stateOf(one.client) == loadgen.Dead: // during its acquire
			label(h.begin(), g.Dead, t.bad)
		case h.Lasts() && until.After(now):
			spans = append(spans, widget.Span{From: v.cell(now), To: v.cell(until), Fill: look.fill, Kind: widget.Behind})
		case diedIn(h.Hold):
			for _, next := range n.Holds { // the server may have ended the lease a little earlier
				if !h.Shared && next.From.At.After(h.end()) {
					until = earlier(until, next.From.At)
				}
			}
			spans = append(spans, widget.Span{From: v.cell(h.end()), To: v.cell(until), Fill: t.bad, Kind: widget.Behind})
			label(h.end(), g.Dead, t.bad)
		}
	}
	return spans
}

// lanesAxis draws the seconds since the begin of the run below the lanes, and the faults where they began.
func (p *loadPage) lanesAxis(s *state, w, edge int, v timeWindow, now time.Time) string {
	var all []word
	if s.run.metrics.Running {
		all = append(all, word{int(v.cell(now)), s.screen.glyphs.Up + "now", s.screen.theme.strong})
	}
	all = append(all, s.faultWords(v, 0)...)
	every := max(2*time.Second, v.to.Sub(v.from)/10).Round(time.Second)
	for at := v.from; at.Before(v.to); at = at.Add(every) {
		all = append(all, word{int(v.cell(at)), fmt.Sprintf("%g s", at.Sub(v.from).Seconds()), s.screen.theme.dim})
	}
	l := widget.NewLine(w)
	putWords(l, edge, all)
	return l.String()
}

// word is a text at a cell of an axis.
type word struct {
	at   int
	text string
	st   widget.Style
}

// putWords draws words from a cell of a line on. Of those that collide, it draws the first one.
func putWords(l *widget.Line, edge int, all []word) {
	var kept []word
	for _, x := range all {
		if x.at >= 0 && !slices.ContainsFunc(kept, func(y word) bool { return x.at <= y.at+widget.Width(y.text) && y.at <= x.at+widget.Width(x.text) }) {
			kept = append(kept, x)
		}
	}
	slices.SortFunc(kept, func(a, b word) int { return a.at - b.at })
	for _, x := range kept {
		l.PadTo(widget.Style{}, edge+x.at).Put(x.st, x.text)
	}
}

// faultWords returns the faults in a window on the local clock, each where it began, at least at a cell, and without
// its name where that collides.
func (s *state) faultWords(v timeWindow, least int) (all []word) {
	for _, x := range s.run.faults {
		if at := max(least, int(v.cell(x.from))); v.shows(x.from, x.to) {
			all = append(all, word{at, s.screen.glyphs.Alert + string(x.kind), s.screen.theme.warn}, word{at, s.screen.glyphs.Alert, s.screen.theme.warn})
		}
	}
	return all
}
