package tui

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"locktop/internal/humanize"
	"locktop/keyspace"
	"locktop/keyspace/contention"
	"locktop/keyspace/holds"
	"locktop/tui/widget"
)

// swimlanesShown is the maximum number of clients of a lock that have a swimlane.
const swimlanesShown = 8

// swimlane is the part of one client in the lane of a lock.
type swimlane struct {
	client   string // "" = waiters without a name
	holds    []drawn
	waits    []holds.Wait
	overlaps []overlap
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
		if v.shows(h.begin(), h.end()) {
			one := of(h.Holder.Name())
			one.holds, one.busy = append(one.holds, h), one.busy+h.until(v.to).Sub(later(h.begin(), v.from))
			for _, o := range n.overlaps {
				if !o.to.Before(h.begin()) && !o.from.After(h.until(v.to)) {
					one.overlaps = append(one.overlaps, o)
				}
			}
		}
	}
	for _, w := range n.waitsIn(v) {
		name := w.Waiter
		if label, _, found := strings.Cut(name, "~"); found && byClient[label] != nil { // the token of a known client
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
		if h.End.Kind == keyspace.Expired && v.shows(h.end(), h.end()) {
			spans = append(spans, widget.Span{From: v.cell(h.end()), To: v.cell(h.end()) + 1, Label: g.Cross, On: t.bad})
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
		g.Strip(l, widget.Style{}, v.w, append(slices.Clip(behind), one.draw(t, g, v, contended)...))
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
	if c.Source == contention.Asked {
		text = fmt.Sprintf("on average %.2f clients wait, at least", c.Blocked)
	}
	if c.Worst == "" {
		return text
	}
	return fmt.Sprintf("%s; %.0f%% due to %s", text, 100*c.WorstShare, s.privacy.owner(c.Worst))
}
