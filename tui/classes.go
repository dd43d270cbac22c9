package tui

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"locktop/internal/humanize"
	"locktop/keyspace"
	"locktop/keyspace/contention"
	"locktop/keyspace/holds"
	"locktop/tui/widget"
)

// past returns the holds and the waits of a lock in a window, of which the lane knows the part
// that is whole.
func (n *lane) past(v timeWindow) contention.Past {
	v.from = keyspace.Later(v.from, n.Whole)
	p := contention.Past{Source: holds.Asked, Period: v.to.Sub(v.from)}
	if p.Period <= 0 {
		return p
	}
	p.Held = n.busy(v, false)
	p.Waits = n.waitsIn(v)
	if i := slices.IndexFunc(p.Waits, func(w holds.Wait) bool { return w.Source != holds.Asked }); i >= 0 {
		p.Source = p.Waits[i].Source
	}
	if n.exact {
		p.Source = holds.Own // its own clients have reported their waits
	}
	if len(p.Waits) == 0 {
		return p
	}
	var inside []*holds.Hold
	for _, h := range n.Holds {
		at := h.From.At
		inside = slices.DeleteFunc(inside, func(x *holds.Hold) bool { return !x.Shared || x.Until(at).Before(at) })
		inside = append(inside, h)
		p.Holds = append(p.Holds, contention.Hold{At: at, Holders: mapped(inside, func(x *holds.Hold) keyspace.Holder { return keyspace.Holder{ID: x.Holder.Name()} })})
	}
	return p
}

// lastMinuteOf returns the past of a lock in the last minute, or since the watch began.
func (m moment) lastMinuteOf(id keyspace.ID) contention.Past {
	l, known := m.model.lock(id)
	if known && !m.timeline.sampled.Has(id) && !m.timeline.reported(id.Key) {
		return m.quietMinute(&l)
	}
	n := m.timeline.lane(id, nil, time.Time{})
	if n == nil {
		return contention.Past{}
	}
	return n.past(m.minuteOf(n))
}

// minuteOf returns the last minute on the clock of a lane, as far as the watch knows it.
func (m moment) minuteOf(n *lane) timeWindow {
	v := m.lastMinute(1)
	if !n.exact { // else the lane knows when the load began
		v.from = keyspace.Later(v.from, m.watched)
	}
	return m.onClockOf(n, v)
}

// quietMinute returns the past of a lock to which nothing has happened, in the last minute. It allocates
// nothing: most of 200,000 locks are such.
func (m moment) quietMinute(l *keyspace.Lock) contention.Past {
	v := m.lastMinute(1)
	v.from = keyspace.Later(keyspace.Later(v.from, m.watched), m.timeline.sampled.Whole())
	p := contention.Past{Source: holds.Asked, Period: v.to.Sub(v.from)}
	if p.Period > 0 && len(l.Holders) > 0 {
		at := m.model.snap.At
		p.Held = float64(max(0, v.to.Sub(keyspace.Later(v.from, at.Add(-max(0, l.Age(at).Duration)))))) / float64(p.Period)
	}
	return p
}

// mostBlocked returns the lock for which clients waited most in the last minute, with its
// figures: one that blocks a client now, if there is one. Its source is "" if no client waited.
func (m moment) mostBlocked() (worst keyspace.ID, figures contention.Class, blocks bool) {
	var most time.Duration
	for id, n := range m.timeline.each {
		var sum time.Duration
		for w := range n.parts(m.onClockOf(n, m.lastMinute(1))) {
			length, _ := w.Length()
			sum += time.Duration(w.Clients) * length
		}
		now := sum > 0 && n.holder() != "" && n.waiters() > 0
		if now && !blocks || now == blocks && (sum > most || sum == most && sum > 0 && id.Compare(worst) < 0) {
			worst, most, blocks = id, sum, now
		}
	}
	var sum contention.Sum
	sum.Add(m.lastMinuteOf(worst))
	return worst, sum.Class(0, ""), blocks
}

// waiting is what the locks page says of the waiting in the last minute.
type waiting struct {
	known   bool      // it was computed
	at      time.Time // for which it was computed
	filter  string    // by which the locks were chosen
	most    keyspace.ID
	figures contention.Class // of that lock
	blocks  bool             // a client waits for it now; else nobody waits for a held lock
	rows    []lockRow        // grouped by class, those with the most waiting first; nil = they are not grouped by class
}

// planSums plans to compute the waiting anew if it is old, or was computed for other locks. That takes
// longer for more locks, so a copy is computed beside the screen; see [app.startSums].
func (p *locksPage) planSums(s *state) {
	if p.summing || p.shows(&p.waiting) && s.clock().Sub(p.waiting.at).Abs() < derivedFor(max(s.timeline.sampled.Len(), len(s.current().locks))) {
		return
	}
	var locks []*keyspace.Lock
	if p.group == byClass {
		locks = mapped(p.rows, func(r lockRow) *keyspace.Lock { return r.lock })
	}
	m, grouped, filter := s.moment().clone(), p.group == byClass, p.filter
	p.plan = func() waiting {
		w := waiting{known: true, at: m.now, filter: filter.text}
		w.most, w.figures, w.blocks = m.mostBlocked()
		if grouped {
			w.groupByClass(m, append(locks, m.recent(&filter)...))
		}
		return w
	}
}

// shows reports whether the waiting was computed for the filter and the groups of the page.
func (p *locksPage) shows(w *waiting) bool {
	return w.known && w.filter == p.filter.text && (w.rows != nil) == (p.group == byClass)
}

// startSums starts what planSums has planned. The next sums wait until onSums.
func (a *app) startSums() tea.Cmd {
	p := a.locks()
	plan := p.plan
	if p.plan = nil; plan == nil {
		return nil
	}
	p.summing = true
	return sumWaiting(plan, a.seekCount)
}

// onSums shows the waiting, unless the view is another one by now.
func (a *app) onSums(w waiting, jump int) {
	p := a.locks()
	if p.summing = false; p.shows(&w) && jump == a.seekCount {
		p.waiting = w
	}
	if a.place() == onLocks {
		p.arrange(&a.state)
	}
}

// moment is what is known of all locks at a time, with their past.
type moment struct {
	model    *viewModel
	now      time.Time // server's time
	timeline *timeline
	watched  time.Time // since when the locks are watched
}

// moment returns the moment on the screen.
func (s *state) moment() moment {
	began, _ := s.history.Span()
	return moment{s.current(), s.clock(), &s.timeline, began}
}

// clone copies what changes, for another goroutine.
func (m moment) clone() moment {
	m.timeline = &timeline{sampled: *m.timeline.sampled.Clone(), exact: *m.timeline.exact.Clone()}
	return m
}

// groupByClass makes one row for each class of locks. The lock of a row is that with the most waiting,
// or else the first one.
func (w *waiting) groupByClass(m moment, locks []*keyspace.Lock) {
	type class struct {
		sum   contention.Sum
		lock  *keyspace.Lock
		worst float64
	}
	classes := make(map[keyspace.ID]*class) // by the name as the key
	var order []keyspace.ID
	for _, l := range locks {
		id := keyspace.ID{DB: l.DB, Key: keyspace.ClassOf(l.Key)}
		c := classes[id]
		if c == nil {
			c = &class{lock: l}
			classes[id], order = c, append(order, id)
		}
		past := m.lastMinuteOf(l.ID())
		if rate := past.PerSecond(); rate > c.worst {
			c.worst, c.lock = rate, l
		}
		c.sum.Add(past)
	}
	w.rows = make([]lockRow, len(order))
	for i, id := range order {
		sum := classes[id].sum.Class(id.DB, id.Key)
		w.rows[i] = lockRow{lock: classes[id].lock, class: &sum}
	}
	slices.SortStableFunc(w.rows, func(a, b lockRow) int { return cmp.Compare(b.class.Blocked, a.class.Blocked) })
}

// recent returns the locks that do not exist now, but were held or waited for in the last minute,
// in the order of their names. Only their names are known.
func (m moment) recent(f *filter) (all []*keyspace.Lock) {
	there := make(map[keyspace.ID]bool, len(m.model.locks))
	for _, l := range m.model.locks {
		there[l.ID().OnAnyNode()] = true
		if m.timeline.reported(l.Key) {
			there[ofLoad(l.Key)] = true
		}
	}
	for id, n := range m.timeline.each {
		if there[id] || !f.lane(id.Key, n.names) {
			continue
		}
		if last, lasts := n.Last(); lasts || last.After(m.onClockOf(n, m.lastMinute(1)).from) {
			all = append(all, &keyspace.Lock{Key: id.Key, DB: id.DB})
		}
	}
	slices.SortFunc(all, func(a, b *keyspace.Lock) int { return a.ID().Compare(b.ID()) })
	return all
}

// classRows returns the rows of the classes, each with its lock as it is now. A lock that does not
// exist is as it was last seen, without holders and waiters.
func (p *locksPage) classRows(s *state) []lockRow {
	rows := slices.Clone(p.waiting.rows)
	for i, r := range rows {
		l, there := s.current().lock(r.lock.ID())
		if !there {
			l = *r.lock
			for _, e := range s.latest(l.ID(), 1) {
				l = e.Lock
			}
			l.Holders, l.Waiters, l.Waiting = nil, nil, 0
		}
		rows[i].lock = &l
	}
	return rows
}

// classColumns returns the columns of the table of classes. Those of waiting are empty for a class without any.
func classColumns() []column {
	text := func(show func(s *state, c *contention.Class) string) func(lockView, int) widget.Cell {
		return func(v lockView, _ int) widget.Cell { return v.cell(show(v.state, v.class)) }
	}
	waiting := func(show func(s *state, c *contention.Class) string) func(lockView, int) widget.Cell {
		return func(v lockView, _ int) widget.Cell {
			c := v.class
			if c.Source == "" {
				return v.dimCell(v.state.screen.glyphs.None)
			}
			return widget.Cell{Style: v.state.screen.theme.warn, Text: show(v.state, c)}
		}
	}
	most := func(number func(*contention.Class) float64) func(a, b lockView) int {
		return mostFirst(func(v lockView) float64 { return number(v.class) })
	}
	names := func(name func(*contention.Class) string) func(a, b lockView) int {
		return func(a, b lockView) int { return strings.Compare(name(a.class), name(b.class)) }
	}
	return []column{
		{widget.Column{Title: "CLASS", Min: 16, Max: 44}, false, func(v lockView, _ int) widget.Cell {
			return widget.Cell{Style: v.state.screen.theme.strong, Text: v.state.privacy.key(v.class.Name)}
		}, names(func(c *contention.Class) string { return c.Name })},
		{widget.Column{Title: "LOCKS", Min: 6, Priority: 6, Right: true}, false, text(func(_ *state, c *contention.Class) string {
			return humanize.Count(c.Locks)
		}), most(func(c *contention.Class) float64 { return float64(c.Locks) })},
		{widget.Column{Title: "HELD", Min: 5, Priority: 3, Right: true}, false, text(func(_ *state, c *contention.Class) string {
			return fmt.Sprintf("%.0f%%", 100*c.Held)
		}), most(func(c *contention.Class) float64 { return c.Held })},
		{widget.Column{Title: "WAITERS", Min: 8, Priority: 4, Right: true}, false, waiting(func(s *state, c *contention.Class) string {
			return s.atLeast(c.Source == holds.Asked, humanize.Count(c.MostWaiting))
		}), most(func(c *contention.Class) float64 { return float64(c.MostWaiting) })},
		{widget.Column{Title: "BLOCKED", Min: 10, Right: true}, false, waiting(func(s *state, c *contention.Class) string {
			return s.atLeast(c.Source == holds.Asked, fmt.Sprintf("%.2f s/s", c.Blocked))
		}), most(func(c *contention.Class) float64 { return c.Blocked })},
		{widget.Column{Title: "WORST HOLDER", Min: 14, Max: 30, Priority: 1}, false, waiting(func(s *state, c *contention.Class) string {
			if c.Worst == "" {
				return ""
			}
			return fmt.Sprintf("%.0f%% %s", 100*c.WorstShare, s.privacy.owner(c.Worst))
		}), names(func(c *contention.Class) string { return c.Worst })},
		{widget.Column{Title: "WAIT P50", Min: 9, Priority: 7, Right: true}, false, waiting(func(s *state, c *contention.Class) string {
			return s.quantileText(c.Source, c.P50)
		}), most(func(c *contention.Class) float64 { return float64(c.P50.Duration) })},
		{widget.Column{Title: "P99", Min: 8, Priority: 5, Right: true}, false, waiting(func(s *state, c *contention.Class) string {
			return s.quantileText(c.Source, c.P99)
		}), most(func(c *contention.Class) float64 { return float64(c.P99.Duration) })},
		{widget.Column{Title: "KNOWN BY", Min: 8, Priority: 8}, false, text(func(_ *state, c *contention.Class) string {
			return string(c.Source)
		}), names(func(c *contention.Class) string { return string(c.Source) })},
	}
}

// atLeast marks a text as a lower bound.
func (s *screen) atLeast(bound bool, text string) string {
	if bound {
		return s.glyphs.AtLeast + text
	}
	return text
}

// quantileText returns a quantile of waits; "" if there is no distribution.
func (s *screen) quantileText(r holds.Source, q contention.Quantile) string {
	if r == holds.Asked {
		return ""
	}
	return s.atLeast(q.AtLeast, humanize.Duration(q.Duration))
}
