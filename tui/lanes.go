package tui

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"locktop/internal/humanize"
	"locktop/keyspace"
	"locktop/keyspace/contention"
	"locktop/keyspace/holds"
	"locktop/loadgen"
	"locktop/loadgen/oracle"
	"locktop/tui/widget"
)

// swimlanesShown is the maximum number of clients of a lock that have a swimlane.
const swimlanesShown = 8

// swimlane is the part of one client in the lane of a lock.
type swimlane struct {
	client   string // "" = waiters without a name
	holds    []drawn
	waits    []holds.Wait
	overlaps []timeWindow
	busy     time.Duration // how long it held or waited
}

// swimlanes returns a lane for each client that held a lock, or waited for it, in a window: those
// that did so for the longest time, the holder first and the others in the order of their names; at most a number of them.
func (n *lane) swimlanes(v timeWindow, most int) (all []*swimlane, more int) {
	byClient := make(map[string]*swimlane)
	of := func(client string) *swimlane {
		if byClient[client] == nil {
			byClient[client] = &swimlane{client: client}
		}
		return byClient[client]
	}
	for _, h := range n.drawn() {
		if v.shows(h.From.At, h.To.At) {
			one := of(h.Holder.Name())
			one.holds, one.busy = append(one.holds, h), one.busy+h.until(v.to).Sub(keyspace.Later(h.From.At, v.from))
			for _, o := range n.overlaps {
				if !o.to.Before(h.From.At) && !o.from.After(h.until(v.to)) {
					one.overlaps = append(one.overlaps, o)
				}
			}
		}
	}
	for _, w := range n.waitsIn(v) {
		name := w.Waiter
		if label, _, found := strings.Cut(name, "~"); found && (n.labelled || byClient[label] != nil) { // the token of a known client
			name = label
		}
		one := of(name)
		one.waits, one.busy = append(one.waits, w), one.busy+w.To.At.Sub(w.From.At)
	}
	holderFirst := func(a, b *swimlane) int {
		rank := func(one *swimlane) int {
			if k := len(one.holds); k > 0 && one.holds[k-1].Lasts() {
				return 1
			}
			return 0
		}
		return rank(b) - rank(a)
	}
	all = slices.SortedFunc(maps.Values(byClient), func(a, b *swimlane) int {
		return cmp.Or(holderFirst(a, b), cmp.Compare(b.busy, a.busy), strings.Compare(a.client, b.client))
	})
	more = max(0, len(all)-most)
	all = all[:len(all)-more]
	slices.SortFunc(all, func(a, b *swimlane) int {
		return cmp.Or(holderFirst(a, b), keyspace.CompareNames(a.client, b.client))
	})
	return all, more
}

// draw returns the spans of a swimlane, with a cross where a lease expired.
func (one *swimlane) draw(t theme, g widget.Glyphs, v timeWindow, contended []timeWindow) []widget.Span {
	spans := spansOf(t, v, joined(one.waits), one.holds, contended, one.overlaps)
	for _, h := range one.holds {
		if h.End.Kind == keyspace.Expired && v.shows(h.To.At, h.To.At) {
			spans = append(spans, widget.Span{From: v.cell(h.To.At), To: v.cell(h.To.At) + 1, Label: g.Cross, On: t.bad})
		}
	}
	return spans
}

// lastMinuteBlock draws the last 60 s: how long clients waited and for whom, and a swimlane for each client.
func (p *lockPage) lastMinuteBlock(s *state, w int) []string {
	g, t := s.screen.glyphs, s.screen.theme
	origin := "sampled"
	if s.timeline.reported(p.id.Key) {
		origin = "exact"
	}
	lines := []string{s.ruleOf(w, "last 60 s", origin)}
	m := s.moment()
	var sum contention.Sum
	sum.Add(m.lastMinuteOf(p.id))
	if c := sum.Class(0, ""); c.Source != "" {
		lines = append(lines, s.items(w, "blocked", t.warn, blockedSentence(s, &c), 2)...)
	}
	names := min(24, max(8, w/4))
	n, v := m.lane(p.id, m.lastMinute(max(1, w-margin-names-2)))
	var all []*swimlane
	more := 0
	if n != nil {
		all, more = n.swimlanes(v, swimlanesShown)
	}
	if len(all) == 0 {
		return append(lines, s.item(w, "", t.dim, "no hold was seen in this time"))
	}
	behind, contended := s.run.bands(n, v, t.band), n.contended(v)
	for _, one := range all {
		name := s.privacy.owner(one.client)
		if name == "" {
			name = "waiters"
		}
		l := widget.NewLine(w).Pad(widget.Style{}, margin).Put(t.text, g.Fit(name, names)).Pad(widget.Style{}, 1)
		g.Strip(l, v.w, append(slices.Clip(behind), one.draw(t, g, v, contended)...))
		lines = append(lines, l.String())
	}
	if more > 0 {
		lines = append(lines, s.item(w, "", t.dim, "and "+humanize.Plural(more, "more client")))
	}
	return append(lines, s.signs(w, sign{t.text, g.Across[8], "holds"}, sign{t.warn, g.Contended, "holds while others wait"}, sign{t.warn, g.Dashed, "waits"}, sign{t.bad, g.Cross, "expired"}))
}

// blockedSentence says how much clients waited, and whose holds are to blame.
func blockedSentence(s *state, c *contention.Class) string {
	text := fmt.Sprintf("on average %.2f clients wait, at most %s", c.Blocked, humanize.Count(c.MostWaiting))
	if c.Source == holds.Asked {
		text = fmt.Sprintf("on average %.2f clients wait, at least", c.Blocked)
	}
	if c.Worst == "" {
		return text
	}
	return fmt.Sprintf("%s; %.0f%% due to %s", text, 100*c.WorstShare, s.privacy.owner(c.Worst))
}

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

// laneKeys returns the keys whose pasts a scene shows: the first one or, if clients lock one key after the other, two.
func (p *loadPage) laneKeys(s *state) []string {
	first := s.run.scenario.Keys.Prefix + "1"
	if s.run.scenario.Lock.Kind == loadgen.Nested {
		return []string{first, s.run.scenario.Keys.Prefix + "2"}
	}
	return []string{first}
}

// laneOf returns the past of a key of a scene. The clients of nested locks report only complete holds: who has one
// key of several, the servers say.
func (s *state) laneOf(key string, now time.Time) *lane {
	none := &lane{Account: new(holds.Account)}
	if s.run.scenario.Lock.Kind != loadgen.Nested {
		return cmp.Or(s.timeline.lane(ofLoad(key), nil, now), none)
	}
	for id := range s.timeline.sampled.Locks {
		if id.Key == key {
			return &lane{Account: s.timeline.sampled.Of(id, nil, now), labelled: true, number: func(h *holds.Hold) int { return s.timeline.numberOf(h.Holder.Name()) }}
		}
	}
	return none
}

// lanesBlock draws the past of the keys in at most h lines, one for each client, and what the client does now.
func (p *loadPage) lanesBlock(s *state, w, h int) []string {
	const names, words = 10, 17
	t, g := s.screen.theme, s.screen.glyphs
	began, now := cmp.Or(s.run.metrics.Began, s.now), s.now
	if !s.run.metrics.Running {
		now = began.Add(s.run.metrics.Elapsed)
	}
	v := timeWindow{began, keyspace.Later(began.Add(max(s.run.scenario.Duration, time.Second)), now), max(1, w-names-words-2)} // the whole run
	past := v                                                                                                                  // up to now: cells of the same width
	past.w = max(0, min(v.w, int(v.cell(now))))
	past.to = v.from.Add(v.to.Sub(v.from) * time.Duration(past.w) / time.Duration(v.w))
	var all []string
	keys := p.laneKeys(s)
	for _, key := range keys {
		n, origin := s.laneOf(key, now), "sampled"
		if n.exact {
			origin = "exact"
		}
		all = append(all, s.ruleOf(w, s.privacy.key(key), s.sentence(origin, "| renewed", g.Behind+" lease", g.Dashed+" waits")))
		rows, _ := n.swimlanes(past, max(1, (h-1)/len(keys)-1))
		slices.SortFunc(rows, func(a, b *swimlane) int { return keyspace.CompareNames(a.client, b.client) })
		for _, one := range rows {
			st, word := p.doing(s, n, one)
			l := widget.NewLine(w).Pad(widget.Style{}, 1).Put(t.text, g.Fit(s.privacy.owner(one.client), names)).Put(st, g.Fit(word, words))
			g.Strip(l, v.w, append(one.draw(t, g, past, nil), p.markSpans(s, n, one, v, now)...))
			all = append(all, l.String())
		}
	}
	return append(all, p.lanesAxis(s, w, w-v.w-1, v, now))
}

// doing says what a client does with a key.
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
			if state == loadgen.Queued { // for another key
				glyph, st = s.look(loadgen.Inside)
				word = loadgen.Inside.String()
			}
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
			label(h.From.At, g.Dead, t.bad)
		case h.Lasts() && until.After(now):
			spans = append(spans, widget.Span{From: v.cell(now), To: v.cell(until), Fill: look.fill, Kind: widget.Behind})
		case diedIn(h.Hold):
			for _, next := range n.Holds { // the server may have ended the lease a little earlier
				if at := next.From.At; !h.Shared && at.After(h.To.At) && at.Before(until) {
					until = at
				}
			}
			spans = append(spans, widget.Span{From: v.cell(h.To.At), To: v.cell(until), Fill: t.bad, Kind: widget.Behind})
			label(h.To.At, g.Dead, t.bad)
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
