package tui

import (
	"fmt"
	"maps"
	"slices"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"locktop/internal/humanize"
	"locktop/keyspace"
	"locktop/tui/widget"
)

// findingsPage lists the findings, the most severe first, with their remedies.
type findingsPage struct {
	list[findingID]
	filter filter
	rows   []findingRow
	opened map[string]bool // unfolded kinds of findings
}

// findingRow is a finding, or several of one kind, represented by the first.
type findingRow struct {
	keyspace.Finding
	many    int // number of folded findings; 0 for a single finding
	snoozed bool
}

// foldFrom is the number of findings of one kind from which they share a row.
const foldFrom = 5

// findingID identifies a finding.
type findingID struct {
	id     string
	lock   keyspace.ID
	server string
}

func (p *findingsPage) act(s *state, a action) tea.Cmd {
	if p.navigate(a) || p.filter.onKey(s, a, p) {
		return nil
	}
	switch a {
	case snooze:
		row := p.row
		s.toggleSnooze(p.selected(s))
		p.moved = true
		p.arrange(s)
		p.choose(row) // the next finding
	case enter:
		p.open(s)
	}
	return nil
}

// open folds or unfolds the selected kind, or opens the lock of the selected finding.
func (p *findingsPage) open(s *state) {
	l, ok := p.subject(s)
	switch {
	case ok:
		s.openLock(l)
	case len(p.rows) > 0 && p.rows[p.row].many > 0:
		p.opened[p.rows[p.row].ID] = !p.opened[p.rows[p.row].ID]
		p.moved = true
		p.arrange(s)
	case len(p.rows) > 0 && p.rows[p.row].Lock == (keyspace.ID{}):
		s.reject(s.keymap.named("this is about a server; {nodes} shows them"))
	default:
		s.reject("no finding to open the lock of")
	}
}

// selected returns the findings of the selected row.
func (p *findingsPage) selected(s *state) []keyspace.Finding {
	if len(p.rows) == 0 {
		return nil
	}
	row := p.rows[p.row]
	if row.many == 0 {
		return []keyspace.Finding{row.Finding}
	}
	all := s.current().findings
	if row.snoozed {
		all = s.current().snoozed
	}
	return slices.DeleteFunc(p.matching(all), func(f keyspace.Finding) bool { return f.ID != row.ID })
}

func (p *findingsPage) subject(s *state) (keyspace.Lock, bool) {
	if len(p.rows) == 0 || p.rows[p.row].many > 0 {
		return keyspace.Lock{}, false
	}
	id := p.rows[p.row].Lock
	return s.current().lock(id)
}

func (p *findingsPage) arrange(s *state) {
	p.rows, p.filter.found, p.filter.all = p.rows[:0], 0, len(s.current().all)
	p.fold(p.matching(s.current().findings), false)
	p.fold(p.matching(s.current().snoozed), true)
	if !p.moved {
		p.toFirst()
	}
	p.set(mapped(p.rows, findingRow.key), p.height(s))
}

// matching returns the findings that match the filter.
func (p *findingsPage) matching(all []keyspace.Finding) []keyspace.Finding {
	return slices.DeleteFunc(slices.Clone(all), func(f keyspace.Finding) bool {
		return p.filter.active() && p.filter.any(f.ID, f.Severity.String(), f.Text, f.Lock.Key) == p.filter.invert
	})
}

// fold appends rows for the findings: the most severe kinds first, each kind together.
func (p *findingsPage) fold(found []keyspace.Finding, asleep bool) {
	p.filter.found += len(found)
	kinds := map[string][]keyspace.Finding{}
	var order []keyspace.Finding // the first finding of each kind
	for _, f := range found {
		if kinds[f.ID] == nil {
			order = append(order, f)
		}
		kinds[f.ID] = append(kinds[f.ID], f)
	}
	slices.SortStableFunc(order, func(a, b keyspace.Finding) int { return int(b.Severity) - int(a.Severity) })
	for _, first := range order {
		kind := kinds[first.ID]
		if len(kind) >= foldFrom {
			p.rows = append(p.rows, findingRow{first, len(kind), asleep})
		}
		if len(kind) < foldFrom || p.opened[first.ID] {
			for _, f := range kind {
				p.rows = append(p.rows, findingRow{f, 0, asleep})
			}
		}
	}
}

func (f findingRow) key() findingID {
	if f.many > 0 {
		return findingID{id: "all " + f.ID}
	}
	return idOf(&f.Finding)
}

// remedyLines is the height of the remedy below the list, in lines.
const remedyLines = 6

// height returns the number of visible rows.
func (p *findingsPage) height(s *state) int {
	h := s.frame().body - 1
	if p.roomForRemedy(s) {
		h -= remedyLines
	}
	return max(0, h)
}

func (p *findingsPage) roomForRemedy(s *state) bool { return s.frame().body >= 2*remedyLines }

func (p *findingsPage) summary(s *state, l *widget.Line) {
	found := s.current().findings
	if len(s.current().all) == 0 {
		none := s.noFindings()
		l.Put(none.style, none.text)
		return
	}
	var counts [keyspace.Critical + 1]int
	for _, f := range found {
		counts[f.Severity]++
	}
	parts := []segment{{style: s.screen.theme.strong, text: humanize.Plural(len(found), "finding")}}
	for _, v := range []keyspace.Severity{keyspace.Critical, keyspace.Warning, keyspace.Info} {
		text := humanize.Count(counts[v]) + " " + v.String()
		if v == keyspace.Warning {
			text = humanize.Plural(counts[v], v.String())
		}
		if glyph, st := s.look(v); counts[v] > 0 {
			parts = append(parts, segment{style: st, text: glyph + " " + text, priority: 2})
		}
	}
	parts = append(parts, segment{style: s.screen.theme.dim, text: some(len(s.current().snoozed), "snoozed"), priority: 2})
	layoutLine(l, s.screen.glyphs, parts, []segment{p.filter.segment(s)})
}

func (p *findingsPage) view(s *state, w, h int) []string {
	keys := min(36, max(10, w/4))
	head := widget.NewLine(w).Pad(widget.Style{}, margin).Put(s.screen.theme.head, s.screen.glyphs.Fit("LOCK", keys+4)+"FINDING")
	lines := []string{head.String()}
	if len(p.rows) == 0 {
		text := s.noFindings().text
		if p.filter.active() && len(s.current().all) > 0 {
			text = s.keymap.named("no finding matches the filter; {back} clears it")
		}
		lines = append(lines, s.paragraph(w, "", text)...)
	}
	n := p.height(s)
	lines = append(lines, p.lines(w, n, func(l *widget.Line, row int) {
		p.drawRow(s, l, row, keys)
		s.scrollBar(l, row, p.top, n, len(p.rows))
	})...)
	if p.roomForRemedy(s) && len(p.rows) > 0 {
		lines = append(filled(lines, w, n+1), p.remedy(s, w)...)
	}
	return lines
}

// drawRow draws a finding: severity, lock and text.
func (p *findingsPage) drawRow(s *state, l *widget.Line, row, keys int) {
	f := &p.rows[row]
	glyph, st := s.look(f.Severity)
	selected := row == p.row
	key, text := s.screen.theme.strong, s.screen.theme.text
	says := s.redactText(f.Lock, f.Text)
	if f.snoozed {
		key, text, st = s.screen.theme.dim, s.screen.theme.dim, s.screen.theme.dim
		says = s.snoozes.text(&f.Finding, s.now) + ": " + says
	}
	if selected {
		key, text, st = s.screen.theme.row, s.screen.theme.row, s.screen.theme.row
	}
	l.Put(text, s.cursor(selected)).Put(st, glyph).Pad(text, 1)
	about := s.subjectOf(f.Finding)
	if f.many > 0 {
		sign := s.screen.glyphs.Play
		if p.opened[f.ID] {
			sign = s.screen.glyphs.Down
		}
		says = "such as " + about + ": " + says
		about = sign + " " + humanize.Count(f.many) + " " + s.screen.glyphs.Times + " " + f.ID
	}
	l.Put(key, s.screen.glyphs.Fit(about, keys)).Pad(key, 4)
	l.Put(text, s.screen.glyphs.FitEnd(says, max(0, l.Rest()-1)))
}

// subjectOf names the subject of a finding: a key, or "server".
func (s *state) subjectOf(f keyspace.Finding) string {
	if f.Lock == (keyspace.ID{}) {
		return "server"
	}
	return s.privacy.key(f.Lock.Key)
}

// remedy draws the text and the remedy of the selected finding.
func (p *findingsPage) remedy(s *state, w int) []string {
	f := &p.rows[p.row]
	_, st := s.look(f.Severity)
	lines := append([]string{s.ruleOf(w, "what to do", f.ID)}, s.wrapped(w, margin, st, s.redactText(f.Lock, f.Text), 2)...)
	return append(lines, s.wrapped(w, margin, s.screen.theme.text, s.redactText(f.Lock, s.keymap.remedy(f.Finding)), remedyLines-len(lines))...)
}

// snoozeFor is the default duration of a snooze.
const snoozeFor = time.Hour

// snoozes holds the snoozed findings.
type snoozes struct {
	until  map[findingID]time.Time
	length time.Duration // duration of a snooze
}

func idOf(f *keyspace.Finding) findingID { return findingID{f.ID, f.Lock, f.Server} }

// toggleSnooze snoozes the findings, or wakes them if the first one is snoozed.
func (s *state) toggleSnooze(found []keyspace.Finding) {
	if len(found) == 0 {
		s.reject("no finding to snooze")
		return
	}
	if _, asleep := s.snoozes.until[idOf(&found[0])]; asleep {
		for i := range found {
			delete(s.snoozes.until, idOf(&found[i]))
		}
		s.notify("woken: " + humanize.Plural(len(found), "finding"))
	} else {
		for i := range found {
			s.snoozes.until[idOf(&found[i])] = s.now.Add(s.snoozes.length)
		}
		s.notify("snoozed for " + humanize.Setting(s.snoozes.length) + ": " + humanize.Plural(len(found), "finding") + s.keymap.named("; {snooze} wakes"))
	}
	if s.live != nil {
		s.live = s.live.withSnoozes(s)
	}
	if s.paused != nil {
		s.paused.model = s.paused.model.withSnoozes(s)
	}
}

// text says when the snooze of a finding ends.
func (z *snoozes) text(f *keyspace.Finding, now time.Time) string {
	return "snoozed, back in " + humanize.Duration(z.until[idOf(f)].Sub(now))
}

// alarm notifies the user of new critical findings while the terminal is not in focus.
type alarm struct {
	inFocus bool               // the terminal has reported it; a terminal that reports nothing counts as not in focus
	known   map[findingID]bool // critical findings that the user has been told of, or could see; nil before the first snapshot
	next    time.Time          // no notice before
}

// alarmPause is the least time between two notices: a finding may come and go.
const alarmPause = 10 * time.Second

// notifyCritical notifies the user of the critical findings that are new since the first snapshot. It does not in
// a recording.
func (a *app) notifyCritical() tea.Cmd {
	if a.config.Notifier == nil || a.playback != nil {
		return nil
	}
	m := &a.alarm
	critical := map[findingID]bool{}
	var fresh []keyspace.Finding
	for _, f := range a.live.findings {
		if id := idOf(&f); f.Severity == keyspace.Critical && !critical[id] {
			critical[id] = true
			if !m.known[id] {
				fresh = append(fresh, f)
			}
		}
	}
	if quiet := m.known == nil || m.inFocus; quiet || len(fresh) == 0 || !a.now.Before(m.next) {
		m.known = critical
		if quiet || len(fresh) == 0 {
			return nil
		}
		m.next = a.now.Add(alarmPause)
		return sendNotice(a.config.Notifier, a.alarmText(fresh))
	}
	maps.DeleteFunc(m.known, func(id findingID, _ bool) bool { return !critical[id] }) // told of, and gone meanwhile
	return nil
}

// alarmText describes the first finding and counts the others.
func (a *app) alarmText(fresh []keyspace.Finding) string {
	f := fresh[0]
	text := fmt.Sprintf("%s: %s", a.subjectOf(f), a.redactText(f.Lock, f.Text))
	if more := len(fresh) - 1; more > 0 {
		text += fmt.Sprintf(" (and %d more)", more)
	}
	return text
}
