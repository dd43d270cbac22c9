package tui

import (
	"cmp"
	"maps"
	"slices"
	"sort"
	"strings"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"locktop/internal/humanize"
	"locktop/keyspace"
	"locktop/tui/widget"
)

// viewModel is a snapshot with everything derived from it. It is immutable.
type viewModel struct {
	snap     keyspace.Snapshot
	since    time.Time      // of the previous snapshot; zero = there is none
	change   keyspace.Delta // from the previous snapshot
	events   []keyspace.Event
	review   *keyspace.Review                  // of this snapshot, or of an earlier one with the same locks
	locks    []*keyspace.Lock                  // of the review, the most severe first
	all      []keyspace.Finding                // of the locks, then of the servers
	findings []keyspace.Finding                // those of all that are not snoozed
	snoozed  []keyspace.Finding                // those of all that are snoozed
	worst    map[keyspace.ID]keyspace.Severity // of each lock with a finding
	offset   time.Duration                     // server's clock minus local clock
	owners   *ownerships                       // of the lock drawn last; nil = not searched yet
}

// What a check of all locks has shown stays valid for derivedEach per lock, from derivedLeast to
// derivedMost, but for the locks that change: a check of more locks takes longer.
const (
	derivedEach  = 200 * time.Microsecond
	derivedLeast = time.Second
	derivedMost  = 10 * time.Second
)

// derivedFor returns how long a check of a number of locks stays valid.
func derivedFor(locks int) time.Duration {
	return min(max(time.Duration(locks)*derivedEach, derivedLeast), derivedMost)
}

// newViewModel derives the view model of a snapshot taken at local time at. before is the
// previous view model, or nil.
func newViewModel(snap keyspace.Snapshot, at time.Time, before *viewModel) *viewModel {
	first := before == nil
	if first {
		before = &viewModel{review: new(keyspace.Review)}
	}
	p := &viewModel{snap: snap, offset: snap.ClockAhead(at), since: before.snap.At, change: keyspace.DeltaOf(before.snap, snap), events: snap.Events}
	switch {
	case snap.Watch.Mode == "": // no watch follows the locks
		p.events = p.change.Diff(before.snap)
	case first: // earlier events, and an event for each current holder
		p.events = append(slices.Clip(snap.Events), unreported(snap.Events, p.change.Diff(before.snap))...)
	}
	switch {
	case first, snap.At.Sub(before.review.CheckedAt) >= derivedFor(len(snap.Locks)):
		p.review = before.review.Next(snap, true)
	case p.change.Empty():
		p.review, p.locks, p.worst, p.all, p.findings, p.snoozed = before.review, before.locks, before.worst, before.all, before.findings, before.snoozed
		return p
	default:
		p.review = before.review.Next(snap, false)
	}
	p.all = append(slices.Clip(p.review.Findings), keyspace.ServerFindings(p.snap)...)
	p.findings = p.all
	p.rank()
	return p
}

// unreported returns the events without those whose lock and holder are in reported.
func unreported(reported, events []keyspace.Event) []keyspace.Event {
	type hold struct {
		lock   keyspace.ID
		holder string
	}
	known := make(map[hold]bool, len(reported))
	for i := range reported {
		known[hold{reported[i].Lock.ID(), reported[i].Holder.ID}] = true
	}
	return slices.DeleteFunc(events, func(e keyspace.Event) bool { return known[hold{e.Lock.ID(), e.Holder.ID}] })
}

// rank orders the locks by severity.
func (p *viewModel) rank() {
	p.locks = p.review.Order(p.findings)
	p.worst = make(map[keyspace.ID]keyspace.Severity, len(p.findings))
	for _, f := range p.findings {
		p.worst[f.Lock] = max(p.worst[f.Lock], f.Severity)
	}
}

// findingsOn returns those of all findings that are on one lock.
func findingsOn(id keyspace.ID, all []keyspace.Finding) []keyspace.Finding {
	var found []keyspace.Finding
	for _, f := range all {
		if f.Lock.OnAnyNode() == id.OnAnyNode() {
			found = append(found, f)
		}
	}
	return found
}

// lock returns a lock of the snapshot, on whichever node it is.
func (p *viewModel) lock(id keyspace.ID) (keyspace.Lock, bool) {
	for locks := p.snap.Locks; len(locks) > 0; { // those of one node after those of another
		id.Node = locks[0].Node
		i, found := keyspace.FindLock(locks, id)
		if found {
			return *locks[i], true
		}
		locks = locks[i:]
		next := sort.Search(len(locks), func(i int) bool { return locks[i].Node > id.Node })
		locks = locks[next:]
	}
	return keyspace.Lock{}, false
}

// withSnoozes returns the view model with the snoozed findings moved from findings to snoozed.
func (p *viewModel) withSnoozes(s *state) *viewModel {
	maps.DeleteFunc(s.snoozes.until, func(_ findingID, until time.Time) bool { return !s.now.Before(until) })
	if len(s.snoozes.until) == 0 && len(p.snoozed) == 0 {
		return p
	}
	q := *p
	q.findings, q.snoozed = nil, nil
	for _, f := range p.all {
		if _, asleep := s.snoozes.until[idOf(&f)]; asleep {
			q.snoozed = append(q.snoozed, f)
		} else {
			q.findings = append(q.findings, f)
		}
	}
	q.rank()
	return &q
}

// onSnapshot makes the view model that arrived at a local time the newest, and updates the open page if
// something has changed. jump is the number of seeks before its request.
func (a *app) onSnapshot(m *viewModel, at time.Time, err error, jump int) tea.Cmd {
	if jump != a.seekCount { // the answer is older than the last seek
		a.refresher.busy, a.refresher.next = false, a.now
		return nil
	}
	a.refresher.end(at, err)
	if err != nil {
		return nil
	}
	if a.seekSeen != a.seekCount {
		a.resetReplay()
	}
	a.apply(m)
	a.locks().measure(&a.state) // with each snapshot, because it then looks only at the locks that have changed
	if len(m.events) > 0 || !m.change.Empty() || m.review.CheckedAt.Equal(m.snap.At) {
		a.page().arrange(&a.state)
	}
	return a.notifyCritical()
}

// apply makes p the newest view model and adds it to the history.
func (s *state) apply(p *viewModel) {
	s.live = p.withSnoozes(s)
	snap := p.snap
	snap.Events = p.events // without a watch, they come from the difference to the previous snapshot
	s.history.Add(snap, p.change, p.since)
	s.log.add(p.events, p.snap.Locks)
	s.timeline.add(p.change, p.events)
	if len(s.config.Scenes) > 0 {
		s.tellExpiry(p.events)
	}
	s.run.faultLog.onSnapshot(p.snap.At.Add(-p.offset), p.locks)
}

// ownerships is what the holders of a lock have to do with other locks. A search through
// 10,000 locks takes as long as the rest of a frame.
type ownerships struct {
	lock  keyspace.ID
	names []string           // of the first ownersShown holders of lock
	holds [][]*keyspace.Lock // the other locks of each
	chain keyspace.Chain
	drawn bool // a frame shows it
}

// ownersShown is the maximum number of holders of a lock whose other locks are shown.
const ownersShown = 3

// namesListed is the maximum number of keys listed per owner.
const namesListed = 6

// ownerships searches once per view model and lock, unless the view model is made with it.
func (v lockView) ownerships() *ownerships {
	model := v.state.current()
	if model.owners == nil || model.owners.lock != v.ID() {
		model.owners = model.searchOwnerships(v.Lock, nil)
	}
	model.owners.drawn = true
	return model.owners
}

// searchOwnerships searches all locks for those that the holders of a lock hold and wait for.
// before are the ownerships of the previous view model, or nil: what has not changed since is
// not searched again.
func (p *viewModel) searchOwnerships(l *keyspace.Lock, before *ownerships) *ownerships {
	o := &ownerships{lock: l.ID(), chain: keyspace.ChainOf(p.snap, l)}
	for i := range l.Holders[:min(len(l.Holders), ownersShown)] {
		name := l.Holders[i].Name()
		o.names = append(o.names, name)
		if before != nil && before.lock == o.lock && i < len(before.names) && before.names[i] == name && p.keeps(before.holds[i], name) {
			o.holds = append(o.holds, before.holds[i])
			continue
		}
		var held []*keyspace.Lock // none for libraries that make a new token for each hold
		for _, other := range p.locks {
			if (other.Key != l.Key || other.ID() != l.ID()) && isHeldBy(other, name) {
				held = append(held, other)
			}
		}
		o.holds = append(o.holds, held)
	}
	return o
}

// keeps reports whether an owner still holds the same few locks as before the last change.
func (p *viewModel) keeps(held []*keyspace.Lock, name string) bool {
	if len(held) > namesListed {
		return false
	}
	has := func(id keyspace.ID) bool {
		return slices.ContainsFunc(held, func(l *keyspace.Lock) bool { return l.Key == id.Key && l.ID() == id })
	}
	return !slices.ContainsFunc(p.change.Gone, has) &&
		!slices.ContainsFunc(p.change.Locks, func(l *keyspace.Lock) bool { return isHeldBy(l, name) || has(l.ID()) })
}

// isHeldBy reports whether an owner is a holder of a lock.
func isHeldBy(l *keyspace.Lock, name string) bool {
	return slices.ContainsFunc(l.Holders, func(h keyspace.Holder) bool { return h.Name() == name })
}

// listed joins the first most names of all entries, and counts the other entries.
func listed(names []string, most, all int) string {
	names = names[:min(len(names), most)]
	text := strings.Join(names, ", ")
	if more := all - len(names); more > 0 {
		text += " and " + humanize.Count(more) + " more"
	}
	return text
}

// ownerGroup is the heading of an owner's locks on the locks page.
type ownerGroup struct {
	name   string // of the owner; "" for the locks of several owners, and for free locks
	text   string // instead of the fields below, if the group has no owner
	rows   []lockRow
	shares []*keyspace.Lock // locks that it holds with another owner, which has their row
	waits  []*keyspace.Lock // locks that it waits for
	behind map[string]bool  // owners that it waits for
	blocks int              // number of owners that wait for it, also behind others
	rival  string           // its next owner in a deadlock; or ""
	known  bool             // the deadlock is certain
}

// groupByOwner returns the rows with a heading for each owner that holds several locks,
// waits for one, or blocks another owner. The locks of all other owners follow under one heading, then the free locks.
// Deadlocks come first, then owners that block others; else groups stay in the order of
// their first row. It finds no groups for libraries that make a
// new token for each hold.
func (p *viewModel) groupByOwner(rows []lockRow) []lockRow {
	single, free := &ownerGroup{}, &ownerGroup{}
	var groups []*ownerGroup
	byName := map[string]*ownerGroup{}
	for _, row := range rows {
		l := row.lock
		if len(l.Holders) == 0 {
			free.rows = append(free.rows, row)
			continue
		}
		name := l.Holders[0].Name()
		if byName[name] == nil {
			byName[name] = &ownerGroup{name: name, behind: map[string]bool{}}
			groups = append(groups, byName[name])
		}
		byName[name].rows = append(byName[name].rows, row)
	}
	p.relate(byName)
	slices.SortStableFunc(groups, func(a, b *ownerGroup) int { return cmp.Compare(b.urgency(), a.urgency()) })
	var grouped []lockRow
	for _, g := range groups {
		if len(g.rows)+len(g.shares)+len(g.waits)+g.blocks < 2 {
			single.rows = append(single.rows, g.rows...)
			continue
		}
		grouped = append(append(grouped, lockRow{heading: g}), g.rows...)
	}
	single.text = humanize.Plural(len(single.rows), "owner") + " with one lock each"
	free.text = humanize.Plural(len(free.rows), "lock") + " without a holder"
	for _, g := range []*ownerGroup{single, free} {
		if len(g.rows) > 0 {
			grouped = append(append(grouped, lockRow{heading: g}), g.rows...)
		}
	}
	return grouped
}

// relate adds to each group the locks that its owner shares and waits for.
func (p *viewModel) relate(byName map[string]*ownerGroup) {
	byID := map[string]*ownerGroup{} // by token, and by the label that begins a token of package lock
	for _, l := range p.locks {
		for i, h := range l.Holders {
			g := byName[h.Name()]
			if g == nil {
				continue
			}
			byID[h.ID] = g
			if h.Label != "" {
				byID[h.Label+"~"] = g
			}
			if i > 0 && l.Holders[0].Name() != g.name {
				g.shares = append(g.shares, l)
			}
		}
	}
	for _, l := range p.locks {
		for _, w := range l.Waiters {
			g := byID[w.ID]
			if label, _, found := strings.Cut(w.ID, "~"); g == nil && found {
				g = byID[label+"~"]
			}
			if g == nil {
				continue
			}
			if n := len(g.waits); n == 0 || g.waits[n-1] != l { // it may wait several times
				g.waits = append(g.waits, l)
			}
			for _, h := range l.Holders {
				g.behind[h.Name()] = true
			}
		}
	}
	for _, d := range p.review.Deadlocks {
		for _, w := range d.Waits {
			if g := byName[w.Owner]; g != nil {
				g.rival, g.known = w.For, d.Certain
			}
		}
	}
	countBlocked(byName)
}

// countBlocked sets how many owners wait for each owner, directly or behind others.
func countBlocked(byName map[string]*ownerGroup) {
	waiting := make(map[string][]string) // by the owner that they wait for
	for name, g := range byName {
		for other := range g.behind {
			waiting[other] = append(waiting[other], name)
		}
	}
	for name, g := range byName {
		seen := map[string]bool{name: true}
		for next := waiting[name]; len(next) > 0; {
			one := next[len(next)-1]
			next = next[:len(next)-1]
			if !seen[one] {
				seen[one] = true
				g.blocks++
				next = append(next, waiting[one]...)
			}
		}
	}
}

// urgency orders groups: deadlocks first, then the owners that block most others and do not
// wait themselves.
func (g *ownerGroup) urgency() int {
	switch {
	case g.rival != "" && g.known:
		return 1 << 30
	case g.rival != "":
		return 1 << 29
	case len(g.waits) == 0:
		return g.blocks
	}
	return 0
}

// draw draws the heading, except for its last cell.
func (g *ownerGroup) draw(s *state, l *widget.Line) {
	l.Pad(widget.Style{}, min(1, l.Rest()))
	room := max(0, l.Rest()-1)
	if g.name == "" {
		l.Put(s.screen.theme.head, s.screen.glyphs.Fit(g.text, room))
		return
	}
	holds, style := "holds "+humanize.Plural(len(g.rows)+len(g.shares), "lock"), s.screen.theme.text
	if len(g.shares) > 0 {
		keys := mapped(g.shares, func(l *keyspace.Lock) string { return s.privacy.key(l.Key) })
		holds += ", " + listed(keys, namesListed, len(keys)) + " with others"
	}
	waits, deadlock := "", ""
	if len(g.waits) > 0 {
		names := mapped(g.waits, func(l *keyspace.Lock) string {
			if len(l.Holders) == 0 {
				return s.privacy.key(l.Key)
			}
			return s.privacy.key(l.Key) + ", which " + s.privacy.owner(l.Holders[0].Name()) + " holds"
		})
		waits, style = "waits for "+listed(names, namesListed, len(names)), s.screen.theme.warn
	}
	if g.rival != "" {
		deadlock, style = "deadlock with "+s.privacy.owner(g.rival), s.screen.theme.bad
		if !g.known {
			deadlock, style = "possible "+deadlock, s.screen.theme.warn
		}
	}
	if g.blocks > 0 && g.rival == "" {
		holds = s.sentence(holds, "blocks "+humanize.Plural(g.blocks, "owner"))
	}
	name := s.screen.glyphs.Fit(s.privacy.owner(g.name), min(room, widget.Width(s.privacy.owner(g.name))))
	l.Put(s.screen.theme.head, name).Put(style, s.screen.glyphs.FitEnd("  "+s.sentence(holds, deadlock, waits), max(0, room-widget.Width(name))))
}
