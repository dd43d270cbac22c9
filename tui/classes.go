package tui

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"locktop/internal/humanize"
	"locktop/keyspace"
	"locktop/keyspace/contention"
	"locktop/tui/widget"
)

// exact is the rung of the lanes of a load: its own clients have reported their waits.
const exact contention.Rung = "exact"

// past returns the holds and the waits of a lock in a window, of which the lane knows the part
// that is whole.
func (n *lane) past(v timeWindow) contention.Past {
	v.from = later(v.from, n.whole)
	p := contention.Past{Rung: contention.Asked, Period: v.to.Sub(v.from)}
	if p.Period <= 0 {
		return p
	}
	p.Held = n.busy(v.from, v.to)
	for _, w := range n.waitsIn(v) {
		if !w.asked {
			p.Rung = contention.Stored
		}
		p.Waits = append(p.Waits, contention.Wait{Waiter: w.client, From: w.from, Until: w.to, N: w.n, AtLeast: w.from.Equal(v.from) || w.to.Equal(v.to)})
	}
	if n.exact {
		p.Rung = exact
	}
	if len(p.Waits) == 0 {
		return p
	}
	var inside []*timelineHold
	for i := range n.holds {
		h := &n.holds[i]
		inside = slices.DeleteFunc(inside, func(x *timelineHold) bool { return !x.shared || !x.until(h.from).Equal(h.from) })
		inside = append(inside, h)
		names := mapped(inside, func(x *timelineHold) string { return x.name })
		p.Holds = append(p.Holds, contention.Hold{At: h.from, Tokens: names})
	}
	return p
}

// lastMinuteOf returns the past of a lock in the last minute, or since the watch began.
func (s *state) lastMinuteOf(id keyspace.ID) contention.Past {
	v := s.lastMinute(1)
	began, _ := s.history.Span()
	if v.from = later(v.from, began); s.timeline.exact[id.Key] != nil {
		v.from = v.to.Add(-time.Minute) // the lane knows when the load began
	}
	n, v := s.lane(id, v)
	if n == nil {
		return contention.Past{}
	}
	return n.past(v)
}

// each calls yield with each lane that is made, but of several of one lock only with that which [timeline.of] prefers.
func (c *timeline) each(yield func(keyspace.ID, *lane) bool) {
	for id, n := range c.lanes {
		if c.exact[id.Key] == nil && !yield(id, n) {
			return
		}
	}
	for key, n := range c.exact {
		if !yield(keyspace.ID{Key: key}, n) {
			return
		}
	}
}

// mostBlocked returns the lock for which clients waited most in the last minute, with its
// figures. Its rung is "" if no client waited.
func (s *state) mostBlocked() (worst keyspace.ID, figures contention.Class) {
	var most time.Duration
	for id, n := range s.timeline.each {
		_, v := s.lane(id, s.lastMinute(1))
		var sum time.Duration
		for w := range n.parts(v) {
			sum += time.Duration(w.n) * w.to.Sub(w.from)
		}
		if sum > most || sum == most && sum > 0 && id.Compare(worst) < 0 {
			worst, most = id, sum
		}
	}
	var sum contention.Sum
	sum.Add(s.lastMinuteOf(worst))
	return worst, sum.Class(0, "")
}

// waiting is what the locks page says of the waiting in the last minute. Computing it takes longer for
// more locks.
type waiting struct {
	at      time.Time // when it was computed; zero = not for these locks
	filter  string    // by which the locks were chosen
	most    keyspace.ID
	figures contention.Class                  // of that lock
	rows    []lockRow                         // grouped by class, those with the most waiting first
	classes map[keyspace.ID]*contention.Class // that of each row, by its lock
}

// update computes the waiting anew if it is old, or was computed for other locks.
func (w *waiting) update(s *state, p *locksPage) {
	now := s.clock()
	if w.filter == p.filter.text && now.Sub(w.at).Abs() < derivedFor(max(len(s.timeline.lanes), len(s.current().locks))) {
		return
	}
	*w = waiting{at: now, filter: p.filter.text}
	w.most, w.figures = s.mostBlocked()
	if p.group == byClass {
		w.groupByClass(s, append(mapped(p.rows, func(r lockRow) *keyspace.Lock { return r.lock }), p.recent(s)...))
	}
}

// groupByClass makes one row for each class of locks. The lock of a row is that with the most waiting,
// or else the first one.
func (w *waiting) groupByClass(s *state, locks []*keyspace.Lock) {
	type classID struct {
		db   int
		name string
	}
	type class struct {
		sum   contention.Sum
		lock  *keyspace.Lock
		worst float64
	}
	classes := make(map[classID]*class)
	var order []classID
	for _, l := range locks {
		id := classID{l.DB, keyspace.ClassOf(l.Key)}
		c := classes[id]
		if c == nil {
			c = &class{lock: l}
			classes[id], order = c, append(order, id)
		}
		past := s.lastMinuteOf(l.ID().OnAnyNode())
		if rate := past.PerSecond(); rate > c.worst {
			c.worst, c.lock = rate, l
		}
		c.sum.Add(past)
	}
	w.classes = make(map[keyspace.ID]*contention.Class)
	for _, id := range order {
		sum := classes[id].sum.Class(id.db, id.name)
		w.classes[classes[id].lock.ID().OnAnyNode()] = &sum
		w.rows = append(w.rows, lockRow{lock: classes[id].lock})
	}
	blocked := func(r lockRow) float64 { return w.classes[r.lock.ID().OnAnyNode()].Blocked }
	slices.SortStableFunc(w.rows, func(a, b lockRow) int { return cmp.Compare(blocked(b), blocked(a)) })
}

// recent returns the locks that do not exist now, but were held or waited for in the last minute,
// in the order of their names.
func (p *locksPage) recent(s *state) (all []*keyspace.Lock) {
	since, past := s.lastMinute(1), s.past()
	there := make(map[keyspace.ID]bool, len(s.current().locks))
	for _, l := range s.current().locks {
		there[l.ID().OnAnyNode()] = true
		if s.timeline.exact[l.Key] != nil {
			there[keyspace.ID{Key: l.Key}] = true
		}
	}
	for id, n := range s.timeline.each {
		if _, v := s.lane(id, since); !there[id] && n.lastSeen().After(v.from) && p.filter.lane(id.Key, n.owners) {
			there[id] = true
			l := keyspace.Lock{Key: id.Key, DB: id.DB}
			for _, i := range s.log.latest(id, len(past), 1) {
				l = past[i].Lock
				l.Holders, l.Waiters, l.Waiting = nil, nil, 0
			}
			all = append(all, &l)
		}
	}
	slices.SortFunc(all, func(a, b *keyspace.Lock) int { return a.ID().Compare(b.ID()) })
	return all
}

// classOf returns the class of a row's lock if the rows are grouped by class, else nil.
func (p *locksPage) classOf(l *keyspace.Lock) *contention.Class {
	if p.group != byClass || l == nil {
		return nil
	}
	return p.waiting.classes[l.ID().OnAnyNode()]
}

// classColumns returns the columns of the table of classes. Those of waiting are empty for a class without any.
func (p *locksPage) classColumns() []column {
	text := func(show func(s *state, c *contention.Class) string) func(lockView, int) widget.Cell {
		return func(v lockView, _ int) widget.Cell { return v.cell(show(v.state, p.classOf(v.Lock))) }
	}
	waiting := func(show func(s *state, c *contention.Class) string) func(lockView, int) widget.Cell {
		return func(v lockView, _ int) widget.Cell {
			c := p.classOf(v.Lock)
			if c.Rung == "" {
				return v.dimCell(v.state.screen.glyphs.None)
			}
			return widget.Cell{Style: v.state.screen.theme.warn, Text: show(v.state, c)}
		}
	}
	most := func(number func(*contention.Class) float64) func(a, b lockView) int {
		return mostFirst(func(v lockView) float64 { return number(p.classOf(v.Lock)) })
	}
	names := func(name func(*contention.Class) string) func(a, b lockView) int {
		return func(a, b lockView) int { return strings.Compare(name(p.classOf(a.Lock)), name(p.classOf(b.Lock))) }
	}
	return []column{
		{widget.Column{Title: "CLASS", Min: 16, Max: 44}, "class", false, func(v lockView, _ int) widget.Cell {
			return widget.Cell{Style: v.state.screen.theme.strong, Text: v.state.redactKey(p.classOf(v.Lock).Name)}
		}, names(func(c *contention.Class) string { return c.Name })},
		{widget.Column{Title: "LOCKS", Min: 6, Priority: 6, Right: true}, "locks", false, text(func(_ *state, c *contention.Class) string {
			return humanize.Count(c.Locks)
		}), most(func(c *contention.Class) float64 { return float64(c.Locks) })},
		{widget.Column{Title: "HELD", Min: 5, Priority: 3, Right: true}, "held", false, text(func(_ *state, c *contention.Class) string {
			return fmt.Sprintf("%.0f%%", 100*c.Held)
		}), most(func(c *contention.Class) float64 { return c.Held })},
		{widget.Column{Title: "WAITERS", Min: 8, Priority: 4, Right: true}, "waiters", false, waiting(func(s *state, c *contention.Class) string {
			return s.atLeast(c.Rung == contention.Asked, humanize.Count(c.MostWaiting))
		}), most(func(c *contention.Class) float64 { return float64(c.MostWaiting) })},
		{widget.Column{Title: "BLOCKED", Min: 10, Right: true}, "blocked", false, waiting(func(s *state, c *contention.Class) string {
			return s.blockedText(c)
		}), most(func(c *contention.Class) float64 { return c.Blocked })},
		{widget.Column{Title: "WORST HOLDER", Min: 14, Max: 30, Priority: 1}, "worst holder", false, waiting(func(s *state, c *contention.Class) string {
			return s.worstHolder(c)
		}), names(func(c *contention.Class) string { return c.Worst })},
		{widget.Column{Title: "WAIT P50", Min: 9, Priority: 7, Right: true}, "wait p50", false, waiting(func(s *state, c *contention.Class) string {
			return s.quantileText(c.Rung, c.P50)
		}), most(func(c *contention.Class) float64 { return float64(c.P50.Duration) })},
		{widget.Column{Title: "P99", Min: 8, Priority: 5, Right: true}, "wait p99", false, waiting(func(s *state, c *contention.Class) string {
			return s.quantileText(c.Rung, c.P99)
		}), most(func(c *contention.Class) float64 { return float64(c.P99.Duration) })},
		{widget.Column{Title: "BY", Min: 6, Priority: 8}, "by", false, text(func(_ *state, c *contention.Class) string {
			return string(c.Rung)
		}), names(func(c *contention.Class) string { return string(c.Rung) })},
	}
}

// atLeast marks a text as a lower bound.
func (s *state) atLeast(bound bool, text string) string {
	if bound {
		return s.screen.glyphs.AtLeast + text
	}
	return text
}

// blockedText returns the seconds of waiting per second.
func (s *state) blockedText(c *contention.Class) string {
	return s.atLeast(c.Rung == contention.Asked, fmt.Sprintf("%.2f s/s", c.Blocked))
}

// worstHolder names the holder that is to blame for most of the waiting, with its share.
func (s *state) worstHolder(c *contention.Class) string {
	if c.Worst == "" {
		return ""
	}
	return fmt.Sprintf("%.0f%% %s", 100*c.WorstShare, s.redactOwner(c.Worst))
}

// quantileText returns a quantile of waits; "" if there is no distribution.
func (s *state) quantileText(r contention.Rung, q contention.Quantile) string {
	if r == contention.Asked {
		return ""
	}
	return s.atLeast(q.AtLeast, humanize.Duration(q.Duration))
}
