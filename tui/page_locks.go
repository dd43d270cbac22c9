package tui

import (
	"fmt"
	"slices"
	"strings"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"locktop/internal/humanize"
	"locktop/keyspace"
	"locktop/keyspace/contention"
	"locktop/tui/widget"
)

// locksPage is the table of all locks, with a preview of the selected one.
type locksPage struct {
	list[keyspace.ID] // without keys: follow finds the selected lock

	rows   []lockRow // in display order
	filter filter

	sort     int // index of the sort column, or bySeverity
	reversed bool
	wide     bool   // with more columns
	group    string // one of groups

	unknown bool // there may be waiters that the formats of the locks do not show
	hide    bool // hide the preview
	waiting waiting
	plan    func() waiting // computes it anew; nil = not necessary
	summing bool           // it is computed

	last keyspace.Lock                 // last known state of the selected lock
	seen time.Time                     // time of last, on the server's clock
	gone bool                          // it is not among the rows now
	tags map[keyspace.ID]keyspace.Lock // with only the tagged holds

	keyWidth, ownerWidth int       // maximum widths of keys and owners so far, because columns only grow
	deep                 bool      // an owner has entered a lock more than once so far
	measured             time.Time // of the snapshot that they come from; zero = none
	hidden               bool      // their names were hidden
}

// Groups of the locks.
const (
	noGroup = "none"
	byOwner = "owner" // rows of locks, with a heading for each owner
	byClass = "class" // a row for each class of locks
)

// groups lists the values of locksPage.group as :group names them, in the order in which a key changes them.
func groups() []string { return []string{byOwner, byClass, noGroup} }

// lockRow is a lock, which stands for its class if the rows are grouped by class, or the heading
// of an owner's locks.
type lockRow struct {
	lock    *keyspace.Lock
	class   *contention.Class // nil if the rows are not grouped by class
	heading *ownerGroup       // nil in the row of a lock
}

func (p *locksPage) act(s *state, a action) tea.Cmd {
	if p.navigate(a) {
		if p.n == 0 {
			s.reject("no locks to move among")
		}
		return nil
	}
	switch a {
	case enter:
		if _, ok := p.subject(s); ok {
			s.openLock(p.last)
			return nil
		}
		s.reject("no lock to open")
	case tag:
		p.tagIt(s)
	case faster:
		s.setPace(s.refresher.every / 2)
	case slower:
		s.setPace(s.refresher.every * 2)
	case sortMenu:
		s.dialog = p.sortMenu()
	case invert:
		p.reversed = !p.reversed
		p.arrange(s)
	case search:
		p.openFilter(s)
	case nextMatch, lastMatch, back:
		if a == back && p.filter.text == "" && len(p.tags) > 0 {
			clear(p.tags)
			p.arrange(s)
		} else {
			p.filter.onKey(s, a, p)
		}
	case groupOwners:
		p.groupBy(cycle(groups(), p.group, 1))
		p.arrange(s)
		s.notify("order: " + p.orderText())
	case wide:
		if p.wide = !p.wide; p.sort >= len(p.columns()) {
			p.sort, p.reversed = bySeverity, false
		}
		p.arrange(s)
	case preview:
		p.togglePreview(s)
	}
	return nil
}

func (p *locksPage) subject(*state) (keyspace.Lock, bool) { return p.last, p.chosen != (keyspace.ID{}) }

// reset resets selection, tags and widths for another target.
func (p *locksPage) reset() {
	p.keyWidth, p.ownerWidth, p.deep, p.measured = 0, 0, false, time.Time{}
	p.moved, p.chosen, p.last, p.tags = false, keyspace.ID{}, keyspace.Lock{}, map[keyspace.ID]keyspace.Lock{}
}

// tagIt toggles the tag of the selected lock's holds and selects the next lock.
func (p *locksPage) tagIt(s *state) {
	if len(p.rows) == 0 || p.gone || p.group == byClass {
		s.reject("no lock to tag")
		return
	}
	switch {
	case p.tagged(p.chosen):
		delete(p.tags, p.chosen)
	case len(p.last.Holders) > 0:
		p.tags[p.chosen] = p.last
	default:
		s.reject("nobody holds it: there is nothing to act on")
	}
	p.scroll(s, 1)
}

// tagged reports whether a lock has a tag.
func (p *locksPage) tagged(id keyspace.ID) bool { _, has := p.tags[id]; return has }

// untag removes the tags of holds that have ended.
func (p *locksPage) untag(model *viewModel) {
	for id, was := range p.tags {
		now, _ := model.lock(id)
		if held, goesOn := now.Still(was.Holders); goesOn {
			p.tags[id] = held
		} else {
			delete(p.tags, id)
		}
	}
}

// click selects a row or sorts by a column.
func (p *locksPage) click(s *state, x, line int) (again bool) {
	if s.frame().compact {
		line++ // there are no titles
	}
	if column := p.layout(s, p.tableWidth(s)).At(x - margin); line == 0 && column >= 0 && p.columns()[column].less != nil {
		p.sortBy(s, column)
	}
	was := p.gone
	return p.list.click(s, x, line) && !was
}

// openFilter opens the prompt for the filter.
func (p *locksPage) openFilter(s *state) {
	d := p.filter.prompt(s, p)
	change := d.typed
	d.typed = func(text string) {
		change(text)
		if p.gone && len(p.rows) > 0 { // prefer a match to a lock that is gone
			p.choose(0)
		}
	}
	d.finish = func(string) (dialog, tea.Cmd) {
		p.moved = p.moved || len(p.rows) > 0 // keep the selection when the filter is cleared
		return nil, nil
	}
	s.dialog = d
}

// groupBy groups the locks. The columns of classes differ from those of locks, so the order of
// one is not that of the other.
func (p *locksPage) groupBy(group string) {
	if (group == byClass) != (p.group == byClass) {
		p.sort, p.reversed = bySeverity, false
	}
	p.group = group
}

// orderText describes the sort order.
func (p *locksPage) orderText() string {
	order := "worst first"
	switch {
	case p.sort != bySeverity:
		order = "by " + p.columns()[p.sort].name()
	case p.group == byClass:
		order = "by blocked"
	}
	switch p.group {
	case byOwner:
		order = "by owner, then " + order
	case byClass:
		order = "classes " + order
	}
	return order
}

// arrange updates the rows after a new snapshot and after a change of filter or order. The
// selection stays on its lock.
func (p *locksPage) arrange(s *state) {
	model := s.current()
	about := map[keyspace.ID]string{}
	filtered := p.filter.active()
	if filtered {
		for i := range model.findings {
			id := model.findings[i].Lock
			about[id] += " finding " + model.findings[i].ID
		}
	}
	p.measure(s)
	if s.paused == nil {
		p.untag(model)
	}
	p.rows = p.rows[:0]
	for _, l := range model.locks {
		if !filtered || p.filter.lock(l, model.snap.At, about[l.ID()]) {
			p.rows = append(p.rows, lockRow{lock: l})
		}
	}
	p.filter.found, p.filter.all = len(p.rows), len(model.locks)
	p.unknown = slices.ContainsFunc(model.locks, func(l *keyspace.Lock) bool { return s.viewOf(l).hidesWaiters() })
	p.planSums(s)
	if p.group == byClass {
		p.rows = p.classRows(s)
	}
	p.sortRows(s)
	if p.group == byOwner {
		p.rows = model.groupByOwner(p.rows)
	}
	p.n, p.h = len(p.rows), p.height(s)
	p.heading = func(row int) bool { return p.rows[row].heading != nil }
	p.onMove = func() {
		p.last, p.seen, p.gone = *p.rows[p.row].lock, s.clock(), false
		p.chosen = p.last.ID().OnAnyNode()
	}
	p.follow(s)
	p.reveal()
}

// measure updates the widths of keys and owners. They never shrink, so after one snapshot
// the next one needs only its changed locks.
func (p *locksPage) measure(s *state) {
	model := s.current()
	locks := model.snap.Locks
	if p.hidden == s.privacy.on && !p.measured.IsZero() {
		switch {
		case p.measured.Equal(model.snap.At):
			return
		case p.measured.Equal(model.since):
			locks = model.change.Locks
		}
	}
	p.measured, p.hidden = model.snap.At, s.privacy.on
	for i := range locks {
		p.deep = p.deep || locks[i].Depth() > 1
		p.keyWidth = max(p.keyWidth, widget.Width(s.privacy.key(locks[i].Key)))
		p.ownerWidth = max(p.ownerWidth, widget.Width(lockView{Lock: locks[i], state: s}.owner()))
	}
}

// sortRows sorts the rows. Locks with equal values stay in order of severity.
func (p *locksPage) sortRows(s *state) {
	model := s.current()
	if p.sort != bySeverity {
		less := p.columns()[p.sort].less
		of := func(r lockRow) lockView { return lockView{r.lock, model.snap.At, s, r.class} }
		slices.SortStableFunc(p.rows, func(a, b lockRow) int { return less(of(a), of(b)) })
	}
	if p.reversed {
		slices.Reverse(p.rows)
	}
}

// follow finds the row of the selected lock. If the lock is gone, the selection waits for it,
// because short holds make a lock appear and disappear.
func (p *locksPage) follow(s *state) {
	if !p.moved && len(p.rows) > 0 {
		p.choose(0)
		return
	}
	class := keyspace.ClassOf(p.chosen.Key)
	chosen := func(r lockRow) bool {
		if c := r.class; c != nil {
			return c.Name == class && c.DB == p.chosen.DB
		}
		return r.heading == nil && r.lock.ID().OnAnyNode() == p.chosen
	}
	row := p.row
	if row >= len(p.rows) || !chosen(p.rows[row]) { // mostly it has not moved
		row = slices.IndexFunc(p.rows, chosen)
	}
	if row >= 0 {
		p.choose(row)
		return
	}
	p.row = max(0, min(p.row, len(p.rows)-1))
	p.gone = true
	_, filtered := s.current().lock(p.chosen)
	if len(p.rows) > 0 && (filtered || p.chosen == (keyspace.ID{})) {
		p.choose(p.row)
	}
}

// summary draws the counts of locks and waiters, and the findings.
func (p *locksPage) summary(s *state, l *widget.Line) {
	t, model := s.screen.theme, s.current()
	if s.live == nil {
		l.Put(t.dim, "scanning "+s.screen.glyphs.Ellipsis)
		return
	}
	soFar := model.snap.SoFar() != ""
	found := s.atLeast(!soFar && !model.snap.Complete, humanize.Plural(len(model.locks), "lock"))
	if soFar {
		found += " so far"
	}
	parts := []segment{
		{style: t.strong, text: found},
		{style: t.text, text: p.waitersText(s, model) + " waiting", priority: 2},
		{style: t.warn, text: p.mostText(s), priority: 3, flex: 40},
	}
	parts = append(parts, p.findings(s, model)...)
	parts = append(parts, segment{style: t.dim, text: some(len(model.snoozed), "snoozed"), priority: 4})
	if len(model.snap.Problems) > 0 {
		parts = append(parts, segment{style: t.warn, text: "not all is seen: see Nodes", priority: 1})
	}
	layoutLine(l, s.screen.glyphs, parts, []segment{
		p.filter.segment(s),
		{style: t.key, text: some(len(p.tags), "tagged"), priority: 2},
		{style: t.dim, text: "sorted " + p.orderText(), priority: 5},
		{style: t.dim, text: model.snap.NotShown(), priority: 6},
	})
}

// waitersText returns the number of waiters, a lower bound if locks may hide theirs; "?" if none is seen then.
func (p *locksPage) waitersText(s *state, model *viewModel) string {
	hidden := p.unknown || !model.snap.Complete
	if model.review.Waiters == 0 && hidden {
		return "?"
	}
	return s.atLeast(hidden || model.review.AtLeast, humanize.Count(model.review.Waiters))
}

// mostText names the lock with the most waiting, and the holder that is to blame for most of it.
func (p *locksPage) mostText(s *state) string {
	if p.waiting.figures.Worst == "" {
		return ""
	}
	when := ""
	if !p.waiting.blocks {
		when = "last minute: "
	}
	return fmt.Sprintf("%smost waiting for %s, because of %s (%.0f%%)", when, s.privacy.key(p.waiting.most.Key), s.privacy.owner(p.waiting.figures.Worst), 100*p.waiting.figures.WorstShare)
}

// some returns a number with a word; "" for 0.
func some(n int, word string) string {
	if n == 0 {
		return ""
	}
	return humanize.Count(n) + " " + word
}

// noFindings says that there are none, as far as that is known.
func (s *state) noFindings() segment {
	dim := segment{style: s.screen.theme.dim, priority: 3}
	switch snap := &s.current().snap; {
	case snap.At.IsZero():
		dim.text = "findings are not known yet"
	case s.playback == nil && s.refresher.stale():
		dim.text = "no findings before the connection was lost"
	case !snap.Scanned():
		return segment{style: s.screen.theme.warn, text: "no findings " + snap.SoFar(), priority: 3}
	case !snap.Complete:
		dim.text = "no findings in what was read"
	default:
		return segment{style: s.screen.theme.good, text: s.screen.glyphs.Check + " no findings", priority: 3}
	}
	return dim
}

// findings returns the segments for the worst findings, the most severe first.
func (p *locksPage) findings(s *state, model *viewModel) []segment {
	if len(model.findings) == 0 {
		return []segment{s.noFindings()}
	}
	worst := slices.Clone(model.findings)
	slices.SortStableFunc(worst, func(a, b keyspace.Finding) int { return int(b.Severity) - int(a.Severity) })
	text := ""
	for i, f := range worst[:min(len(worst), 3)] {
		if i > 0 {
			text += " " + s.screen.glyphs.Between + " "
		}
		text += s.subjectOf(f) + ": " + s.redactText(f.Lock, f.Text)
	}
	glyph, style := s.look(worst[0].Severity)
	return []segment{
		{style: style, text: strings.TrimSpace(glyph + " " + humanize.Plural(len(worst), "finding") + " " + model.snap.SoFar())},
		{style: s.screen.theme.text, text: text, priority: 4, flex: 30},
	}
}
