package tui

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"locktop/keyspace"
	"locktop/keyspace/holds"
	"locktop/loadgen"
	"locktop/loadgen/oracle"
	"locktop/tui/widget"
)

// mark is what happened to a hold at a moment, as its client reports it.
type mark struct {
	at    time.Time
	kind  loadgen.EventKind
	label string    // its count, or its fencing number
	until time.Time // the lease, from then on; zero = as before
}

// marksKept is the number of holds that have marks.
const marksKept = 1024

// mark records what happened to a hold of the key that scenes show. lock is the lock of the load.
func (c *timeline) mark(e *loadgen.Event, lock loadgen.Lock) {
	m := mark{at: e.At, kind: e.Kind, until: e.Deadline}
	switch {
	case e.Kind == loadgen.Renewed:
		m.until = e.At.Add(lock.TTL)
	case e.Kind == loadgen.Counted:
		m.label = strconv.Itoa(e.Depth)
	case e.Kind != loadgen.Acquired:
	case lock.Kind == loadgen.RW:
		m.label = map[bool]string{true: "R", false: "W"}[e.Shared]
	case lock.Kind == loadgen.Reentrant:
		m.label = "1"
	case lock.Fence && e.Fence > 0:
		m.label = strconv.FormatInt(e.Fence, 10)
	}
	if c.marks == nil || len(c.marks) > marksKept {
		c.marks = make(map[string][]mark)
	}
	id := e.Owner() + " " + e.Token
	c.marks[id] = append(c.marks[id], m)
}

// label returns the count or the fencing number of a hold, as it was last reported.
func (c *timeline) label(id string) string {
	marks := c.marks[id]
	for i := len(marks) - 1; i >= 0; i-- {
		if marks[i].label != "" {
			return marks[i].label
		}
	}
	return ""
}

// lease returns the end of the lease of a hold, as it was last set; zero = unknown.
func (c *timeline) lease(id string) (until time.Time) {
	for _, m := range c.marks[id] {
		until = later(until, m.until)
	}
	return until
}

// sceneWindow returns the time that the lanes show: the whole of a short run, else from a while ago to a moment ahead
// in which the leases end. now is the present in it.
func (s *state) sceneWindow(w int) (v timeWindow, now time.Time) {
	m := s.run.metrics
	now = s.now
	if !m.Running {
		now = m.Began.Add(m.Elapsed)
	}
	if planned := s.run.scenario.Duration; !m.Began.IsZero() && planned > 0 && planned <= 20*time.Second {
		return timeWindow{m.Began, m.Began.Add(planned), w}, now
	}
	return timeWindow{now.Add(-8 * time.Second), now.Add(2 * time.Second), w}, now
}

// lanesBlock draws the past of the first key in at most h lines, one for each client, and what the client does now.
func (s *state) lanesBlock(w, h int) []string {
	const names, words = 10, 16
	t, g, key := s.screen.theme, s.screen.glyphs, s.run.scenario.Keys.Prefix+"1"
	v, now := s.sceneWindow(max(1, w-names-words-2))
	all := []string{s.ruleOf(w, s.redactKey(key), s.sentence("exact", "| renewed", g.Behind+" lease", g.Dashed+" waits"))}
	past := v // up to now: cells of the same width
	past.w = max(0, min(v.w, int(v.cell(now))))
	past.to = v.from.Add(v.to.Sub(v.from) * time.Duration(past.w) / time.Duration(v.w))
	n := &lane{exact: true, number: func(*holds.Hold) int { return 0 }}
	if s.timeline.reported(key) {
		n = s.timeline.lane(ofLoad(key), nil, now)
	}
	rows, _ := n.swimlanes(past, max(1, h-2))
	if clients := len(s.run.metrics.Clients.States); clients <= h-2 { // all of them
		for i := range clients {
			name := oracle.ClientLabel(i + 1)
			if !slices.ContainsFunc(rows, func(one *swimlane) bool { return one.client == name }) {
				rows = append(rows, &swimlane{client: name})
			}
		}
	}
	slices.SortFunc(rows, func(a, b *swimlane) int { return keyspace.CompareNames(a.client, b.client) })
	for _, one := range rows {
		st, word := s.doing(n, one)
		l := widget.NewLine(w).Pad(widget.Style{}, 1).Put(t.text, g.Fit(s.redactOwner(one.client), names)).Put(st, g.Fit(word, words))
		g.Strip(l, widget.Style{}, v.w, append(one.draw(t, g, past, nil), s.markSpans(n, one, v, now)...))
		all = append(all, l.String())
	}
	return append(all, s.lanesAxis(w, w-v.w-1, v, now))
}

// doing says what a client does with the first key.
func (s *state) doing(n *lane, one *swimlane) (widget.Style, string) {
	state := s.stateOf(one.client)
	glyph, st := s.look(state)
	word := state.String()
	var inside *holds.Hold
	for _, h := range n.Holds {
		if h.Lasts() && h.Holder.Name() == one.client {
			inside = h
		}
	}
	rw := s.run.scenario.Lock.Kind == loadgen.RW
	switch {
	case state == loadgen.Thinking:
		return st, ""
	case state == loadgen.Queued && rw:
		word = map[bool]string{true: "waits to read", false: "waits to write"}[s.timeline.reads[one.client]]
	case state == loadgen.Inside && inside != nil && rw:
		word = map[bool]string{true: "reads", false: "writes"}[inside.Shared]
	case state == loadgen.Inside && inside != nil && s.run.scenario.Depth > 1:
		word += s.screen.glyphs.Word(" ×" + s.timeline.label(inside.Holder.ID))
	case inside != nil && s.run.scenario.Lock.Fence:
		word += " #" + s.timeline.label(inside.Holder.ID)
	}
	return st, glyph + " " + word
}

// markSpans draws what happened during the holds of a client, and until when its leases last.
func (s *state) markSpans(n *lane, one *swimlane, v timeWindow, now time.Time) (spans []widget.Span) {
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
		until := s.timeline.lease(h.Holder.ID)
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
		for _, m := range s.timeline.marks[h.Holder.ID] {
			glyph, st := s.look(m.kind)
			switch {
			case m.kind == loadgen.Renewed:
				label(m.at, "|", look.letter)
			case m.kind == loadgen.Acquired || m.kind == loadgen.Counted:
				label(m.at, cmp.Or(m.label, g.Across[8]), map[bool]widget.Style{true: look.letter, false: look.fill}[m.label != ""])
			default:
				label(m.at, glyph, st)
			}
		}
	}
	return spans
}

// lanesAxis draws the seconds since the begin of the run below the lanes, and the faults where they began.
func (s *state) lanesAxis(w, edge int, v timeWindow, now time.Time) string {
	t := s.screen.theme
	type word struct {
		at   int
		text string
		st   widget.Style
	}
	var all []word
	if s.run.metrics.Running {
		all = append(all, word{int(v.cell(now)), s.screen.glyphs.Up + "now", t.strong})
	}
	for _, x := range s.run.faults {
		if v.shows(x.from, x.to) {
			at := max(0, int(v.cell(x.from)))
			all = append(all, word{at, s.screen.glyphs.Alert + string(x.kind), t.warn}, word{at, s.screen.glyphs.Alert, t.warn})
		}
	}
	began := cmp.Or(s.run.metrics.Began, v.from)
	for at := began.Add(v.from.Sub(began).Truncate(2 * time.Second)); at.Before(v.to); at = at.Add(2 * time.Second) {
		if !at.Before(v.from) {
			all = append(all, word{int(v.cell(at)), fmt.Sprintf("%g s", at.Sub(began).Seconds()), t.dim})
		}
	}
	var kept []word // the first ones of all that collide
	for _, x := range all {
		if !slices.ContainsFunc(kept, func(y word) bool { return x.at <= y.at+widget.Width(y.text) && y.at <= x.at+widget.Width(x.text) }) {
			kept = append(kept, x)
		}
	}
	slices.SortFunc(kept, func(a, b word) int { return a.at - b.at })
	l := widget.NewLine(w)
	for _, x := range kept {
		l.PadTo(widget.Style{}, edge+x.at).Put(x.st, x.text)
	}
	return l.String()
}
