package tui

import (
	"fmt"
	"time"

	"locktop/internal/humanize"
	"locktop/keyspace"
	"locktop/tui/widget"
)

// previewHeight returns the height of the preview, of h lines: it takes those that the rows leave free.
func (p *locksPage) previewHeight(s *state, h int) int {
	least := 8
	if s.screen.h < 28 {
		least = 7
	}
	free := h - len(p.rows)
	if free <= least {
		return least
	}
	return max(least, min(free, len(p.preview(s, s.screen.w, free))))
}

// height returns the number of visible rows.
func (p *locksPage) height(s *state) int {
	h := s.frame().body
	if s.frame().compact {
		return h
	}
	h-- // the titles
	if p.previews(s) && !p.beside(s) {
		h -= p.previewHeight(s, h)
	}
	return max(0, h)
}

// roomForPreview is the window height in lines from which the preview is available.
const roomForPreview = 22

// previews reports whether the preview is visible.
func (p *locksPage) previews(s *state) bool {
	return !p.hide && !s.frame().compact && s.screen.h >= roomForPreview
}

// besideFrom is the window width from which the selected lock is beside the table. besideWidth
// is the width of the lock there.
const (
	besideFrom  = 160
	besideWidth = 56
)

// beside reports whether the full details of the selected lock are beside the table instead of
// a preview below it. A wide table leaves no room for them.
func (p *locksPage) beside(s *state) bool {
	return p.previews(s) && s.screen.w >= besideFrom && !p.wide
}

// tableWidth returns the width of the table.
func (p *locksPage) tableWidth(s *state) int {
	if p.beside(s) {
		return s.screen.w - besideWidth
	}
	return s.screen.w
}

func (p *locksPage) togglePreview(s *state) {
	if s.frame().compact || s.screen.h < roomForPreview {
		s.reject(fmt.Sprintf("no room for a preview: it takes 60 columns and %d lines", roomForPreview))
		return
	}
	p.hide = !p.hide
	p.arrange(s)
}

func (p *locksPage) view(s *state, w, h int) []string {
	if s.frame().compact {
		return p.compactRows(s, w, h)
	}
	if p.beside(s) {
		table := p.table(s, p.tableWidth(s), p.height(s))
		return widget.JoinHorizontal(table, p.tableWidth(s), p.inspector(s, besideWidth-2, h), besideWidth-2)
	}
	lines := p.table(s, w, p.height(s))
	if p.previews(s) {
		lines = append(lines, p.preview(s, w, h-len(lines))...)
	}
	return lines
}

// lockPage returns the selected lock as a lockPage.
func (p *locksPage) lockPage() lockPage {
	return lockPage{id: p.chosen, last: p.last, seen: p.seen, gone: p.gone}
}

// inspector draws the selected lock as lockPage does, in h lines of w cells.
func (p *locksPage) inspector(s *state, w, h int) []string {
	if p.chosen == (keyspace.ID{}) {
		return nil
	}
	page := p.lockPage()
	lines := append([]string{s.ruleOf(w, s.privacy.key(p.last.Key), "")}, page.text(s, w)...)
	return lines[:min(h, len(lines))]
}

// compactRows draws one line per lock for a small window.
func (p *locksPage) compactRows(s *state, w, h int) []string {
	if len(p.rows) == 0 {
		return p.empty(s, nil, w, h-1)
	}
	return p.lines(w, h, func(l *widget.Line, row int) {
		if heading := p.rows[row].heading; heading != nil {
			heading.draw(s, l)
			return
		}
		v := s.viewOf(p.rows[row].lock)
		name := s.privacy.key(v.Key)
		if c := p.rows[row].class; c != nil {
			name = s.privacy.key(c.Name)
		}
		v.compact(l, name, row == p.row && !p.gone)
	})
}

// compact draws a lock in one line: the cursor, its worst finding or its state, its name, owner and TTL.
func (v lockView) compact(l *widget.Line, name string, selected bool) {
	s := v.state
	glyph, style := s.look(v.State(v.now))
	if severity, found := s.current().worst[v.ID()]; found {
		glyph, style = s.look(severity)
	}
	ttl := ttlCell(v, 0)
	text, key, cursor := s.screen.theme.text, s.screen.theme.strong, s.cursor(selected)
	if selected {
		text, key, style, ttl.Style = s.screen.theme.row, s.screen.theme.row, s.screen.theme.row, s.screen.theme.row
	}
	w := l.Rest()
	if w < 20 {
		cursor = ""
	}
	l.Put(text, cursor).Put(style, glyph).Pad(text, 1)
	owner := 0
	if w >= 36 {
		owner = 12
	}
	room := l.Rest() - owner - widget.Width(ttl.Text) - 2
	if room < 1 {
		l.Put(key, s.screen.glyphs.Fit(name, l.Rest()))
		return
	}
	l.Put(key, s.screen.glyphs.Fit(name, room)).Pad(text, 1)
	l.Put(text, s.screen.glyphs.Fit(v.owner(), owner)).Pad(text, 1)
	l.Put(ttl.Style, ttl.Text)
}

// preview draws the selected lock in at most n lines: first its holders, and what to do about its findings.
func (p *locksPage) preview(s *state, w, n int) []string {
	if p.chosen == (keyspace.ID{}) {
		return []string{s.ruleOf(w, "", "")}
	}
	page := p.lockPage()
	v := page.lock(s)
	kind := s.sentence(widget.Plain(v.Format), string(v.Kind), v.Confidence.String())
	lines := []string{s.ruleOf(w, s.privacy.key(v.Key), kind)}
	if p.gone {
		lines = append(lines, page.ended(s, w))
	}
	found := findingsOn(v.ID(), s.current().findings)
	most, long := 3, 3
	if len(found) > 0 && s.frame().body-len(p.rows) < 14 { // room for all that the first finding says to do
		most, long = 1, 1
	}
	lines = append(lines, v.holders(w, most, 1)...)
	more := []string{s.item(w, "waiting", s.screen.theme.text, v.waiters()), s.item(w, "so far", s.screen.theme.text, v.details())}
	for _, f := range found {
		glyph, style := s.look(f.Severity)
		lines = append(lines, s.items(w, "finding", style, glyph+" "+s.redactText(p.last.ID(), f.Text), long)...)
		lines = append(lines, s.items(w, "remedy", s.screen.theme.text, s.redactText(p.last.ID(), s.keymap.remedy(f)), 4)...)
		lines, more = append(lines, more...), nil
	}
	lines = append(lines, more...)
	return lines[:min(len(lines), n)]
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
	name := s.privacy.owner(h.Name())
	depth := ""
	if h.Depth > 1 {
		depth = fmt.Sprintf("%s%d", s.screen.glyphs.Times, h.Depth)
	}
	held := ""
	switch age := h.Age(v.now); {
	case age.Wide(), age.AtLeast && age.Duration >= time.Second:
		held = "held for " + age.String()
	case !h.Since.IsZero() && !age.AtLeast:
		held = fmt.Sprintf("held %s, since %s", age, h.Since.Local().Format("15:04:05"))
	}
	token := ""
	if h.Label != "" && h.Label != h.ID {
		token = s.privacy.owner(h.ID)
	}
	process, closed := v.process(h)
	if closed {
		process = "its connection " + process
	}
	return s.sentence(name, process, depth, string(h.Mode), held, v.until(h.Expires), token)
}

// until describes the remaining TTL of a hold.
func (v lockView) until(expires time.Time) string {
	if expires.IsZero() {
		return "never expires"
	}
	if v.State(v.now) == keyspace.Lapsed && expires.Before(v.now) {
		return "passed " + humanize.Left(v.now.Sub(expires)) + " ago"
	}
	if !expires.After(v.ReadAt) && expires.Before(v.Expires) {
		return "its lease is over"
	}
	text := humanize.Left(expires.Sub(v.now)) + " left"
	if full, watched := v.FullTTL(); watched && expires.Equal(v.Expires) && readsPromptly(v.state.current().snap.Watch) {
		text += " of " + humanize.Setting(full)
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
		return "not recorded by this lock type" + v.requests()
	case n == 0:
		return "none"
	case len(v.Waiters) == 0:
		return humanize.Count(n) + " whose names it does not show"
	}
	names := mapped(v.Waiters[:min(len(v.Waiters), most)], func(w keyspace.Waiter) string {
		name := v.state.waiterName(v.Lock, &w)
		if age := w.Age(v.now); age.Duration > 0 {
			name += " (" + v.state.ageText(age) + ")"
		}
		return name
	})
	return listed(names, most, n)
}

// requests says when another client asked for the lock, or why that cannot be seen.
func (v lockView) requests() string {
	if text := v.AskedText(v.now); text != "" {
		return "; " + text
	}
	if why := v.node().AskBlind; why != "" && len(v.Holders) > 0 {
		return ", and not seen: " + why
	}
	if len(v.Holders) == 1 && keyspace.SharedValue(v.Holders[0].ID) && v.Fence == 0 { // a number with a fence is a field of a hash
		return ", and not seen: the server has one idle time for all keys with this value"
	}
	return ""
}

// details describes the permits, the renewals, the fence and the location of the lock.
func (v lockView) details() string {
	s := v.state
	renewed := ""
	if since := s.moment().watched; !since.IsZero() {
		renewed = "not renewed since " + since.Local().Format(time.TimeOnly)
	}
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
		at = s.privacy.addr(v.Node) + " " + at
	}
	return s.sentence(v.PermitsInUse(), renewed, fence, at)
}
