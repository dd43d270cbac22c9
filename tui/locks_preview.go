package tui

import (
	"fmt"
	"strings"
	"time"

	"locktop/internal/humanize"
	"locktop/keyspace"
	"locktop/tui/widget"
)

// preview draws the selected lock in a few lines.
func (p *locksPage) preview(s *state, w int) []string {
	if p.chosen == (keyspace.ID{}) {
		return []string{s.ruleOf(w, "", "")}
	}
	page := p.lockPage()
	v := page.lock(s)
	kind := s.sentence(widget.Plain(v.Format), string(v.Kind), v.Confidence.String())
	lines := []string{s.ruleOf(w, s.redactKey(v.Key), kind)}
	if p.gone {
		lines = append(lines, page.ended(s, w))
	}
	lines = append(lines, v.holders(w, 3, 1)...)
	lines = append(lines, s.item(w, "waiting", s.screen.theme.text, v.waiters()))
	lines = append(lines, s.item(w, "so far", s.screen.theme.text, v.details()))
	for _, f := range s.current().findingsFor(v.ID()) {
		glyph, style := s.ofSeverity(f.Severity)
		lines = append(lines, s.item(w, "finding", style, glyph+" "+s.redactText(p.last.ID(), f.Text)))
		lines = append(lines, s.items(w, "remedy", s.screen.theme.text, s.redactText(p.last.ID(), f.Remedy), 2)...)
	}
	return lines[:min(len(lines), s.previewLines())]
}

// holders draws the first most holders, each in at most lines lines.
func (v lockView) holders(w, most, lines int) []string {
	s := v.state
	if len(v.Holders) == 0 {
		return []string{s.item(w, "holder", s.screen.theme.dim, "nobody")}
	}
	var all []string
	for i := range v.Holders[:min(len(v.Holders), most)] {
		text := v.holder(&v.Holders[i])
		if more := len(v.Holders) - most; more > 0 && i == most-1 {
			text += fmt.Sprintf("  and %s more", humanize.Count(more))
		}
		all = append(all, s.items(w, "holder", s.screen.theme.strong, text, lines)...)
	}
	return all
}

func (v lockView) holder(h *keyspace.Holder) string {
	s := v.state
	name := s.redactOwner(h.Name())
	depth := ""
	if h.Count > 1 {
		depth = fmt.Sprintf("%s%d", s.screen.glyphs.Times, h.Count)
	}
	held := ""
	switch age := h.Age(v.now); {
	case age.AtLeast && age.Duration >= time.Second:
		held = "held for " + age.String()
	case !h.Since.IsZero():
		held = fmt.Sprintf("held %s, since %s", age, h.Since.Local().Format("15:04:05"))
	}
	token := ""
	if h.Label != "" && h.Label != h.ID {
		token = s.redactOwner(h.ID)
	}
	return s.sentence(name, depth, string(h.Mode), held, v.until(h.Expires), token)
}

// until describes the remaining TTL of a hold.
func (v lockView) until(expires time.Time) string {
	if expires.IsZero() {
		return "never expires"
	}
	if v.State(v.now) == keyspace.Lapsed && expires.Before(v.now) {
		return "passed " + humanize.Left(v.now.Sub(expires)) + " ago"
	}
	text := humanize.Left(expires.Sub(v.now)) + " left"
	if lease := v.state.leases[v.ID().OnAnyNode()]; lease.known && expires.Equal(lease.expires) {
		text += " of " + humanize.Setting(lease.length)
	}
	return text
}

// waiters names the first waiters.
func (v lockView) waiters() string {
	const most = 4
	n := v.WaiterCount()
	switch {
	case n == 0 && v.blocked() > 0:
		return "not recorded by this lock type; " + humanize.Plural(v.blocked(), "client") + " of the server wait in BLPOP or the like"
	case n == 0 && v.hidesWaiters():
		return "not recorded by this lock type"
	case n == 0:
		return "none"
	case len(v.Waiters) == 0:
		return humanize.Count(n) + " whose names it does not show"
	}
	var names []string
	shown := min(len(v.Waiters), most)
	for i := range v.Waiters[:shown] {
		waiter := &v.Waiters[i]
		name := v.state.waiterName(v.Lock, waiter)
		if age := waiter.Age(v.now); age.Duration > 0 {
			name += " (" + v.state.ageText(age) + ")"
		}
		names = append(names, name)
	}
	text := strings.Join(names, ", ")
	if n > shown {
		text += fmt.Sprintf(" and %s more", humanize.Count(n-shown))
	}
	return text
}

// details describes the permits, the renewals, the fence and the location of the lock.
func (v lockView) details() string {
	s := v.state
	renewed := "renewed: not since locktop started"
	if v.Renewals > 0 {
		renewed = fmt.Sprintf("renewed %s%s, last %s ago", humanize.Count(v.Renewals), s.screen.glyphs.Times, humanize.Duration(v.now.Sub(v.Renewed)))
	}
	fence := ""
	if v.Fence != 0 {
		fence = "fence " + humanize.Count(v.Fence)
	}
	at := fmt.Sprintf("database %d", v.DB)
	switch {
	case len(v.Votes) > 0:
		at = fmt.Sprintf("%d of %s", v.HolderVotes(), humanize.Plural(len(v.Votes), "node"))
	case v.Node != "":
		at = s.redactAddr(v.Node) + " " + at
	}
	return s.sentence(v.PermitsInUse(), renewed, fence, at)
}
