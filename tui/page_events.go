package tui

import (
	"slices"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"locktop/internal/humanize"
	"locktop/keyspace"
	"locktop/tui/widget"
)

// eventsPage lists the events, newest first.
type eventsPage struct {
	list[int] // by the number of the event
	filter    filter
}

func (p *eventsPage) act(s *state, a action) tea.Cmd {
	if p.navigate(a) || p.filter.onKey(s, a, p) {
		return nil
	}
	if l, ok := p.subject(s); a == enter && ok {
		s.openLock(l)
	} else if a == enter {
		s.reject("no event to open the lock of")
	}
	return nil
}

func (p *eventsPage) subject(s *state) (keyspace.Lock, bool) {
	if len(p.keys) == 0 {
		return keyspace.Lock{}, false
	}
	return *s.past()[p.index(s, p.row)].lock, true
}

// index returns the index of a row's event in the log.
func (p *eventsPage) index(s *state, row int) int { return p.keys[row] - s.log.number(0) }

// event returns the event of a row.
func (p *eventsPage) event(s *state, row int) *keyspace.Event {
	return s.past()[p.index(s, row)].event()
}

// arrange updates the rows. A selected first row stays selected, so that the newest event stays
// visible.
func (p *eventsPage) arrange(s *state) {
	if p.row == 0 {
		p.toFirst()
	}
	past, keys := s.past(), p.keys[:0]
	for i := len(past) - 1; i >= 0; i-- {
		if f := &p.filter; f.active() {
			if e := past[i].event(); f.any(string(e.Kind), e.Lock.Key, e.Lock.Format, e.Holder.Name(), e.Waiter.ID) == f.invert {
				continue
			}
		}
		keys = append(keys, s.log.number(i))
	}
	p.filter.found, p.filter.all = len(keys), len(past)
	p.set(keys, max(0, s.frame().body-1))
}

func (p *eventsPage) summary(s *state, l *widget.Line) {
	counts := map[keyspace.EventKind]int{}
	for _, e := range s.past() {
		counts[e.kind]++
	}
	parts := []segment{{style: s.screen.theme.strong, text: humanize.Plural(len(s.past()), "event")}}
	for i, k := range []keyspace.EventKind{keyspace.Expired, keyspace.Stolen, keyspace.Replaced, keyspace.Lost, keyspace.Acquired, keyspace.Released, keyspace.Renewed} {
		glyph, st := s.look(k)
		if counts[k] > 0 {
			parts = append(parts, segment{style: st, text: glyph + " " + humanize.Count(counts[k]) + " " + string(k), priority: 2 + i})
		}
	}
	layoutLine(l, s.screen.glyphs, parts, []segment{p.filter.segment(s)})
}

func (p *eventsPage) view(s *state, w, h int) []string {
	keys := min(40, max(12, w*3/10))
	head := widget.NewLine(w).Pad(widget.Style{}, margin)
	g := s.screen.glyphs
	head.Put(s.screen.theme.head, g.Fit("TIME", 12)+g.Fit("EVENT", 16)+g.Fit("LOCK", keys+2)+g.Fit("WHO", eventOwner))
	lines := []string{head.String()}
	if len(p.keys) == 0 {
		text := "nothing has happened yet"
		if p.filter.active() {
			text = s.keymap.named("no event matches the filter; {back} clears it")
		}
		lines = append(lines, s.paragraph(w, "", text)...)
	}
	lines = append(lines, p.lines(w, h-1, func(l *widget.Line, row int) {
		s.pointer(l, row == p.row)
		s.event(l, p.event(s, row), keys)
		s.scrollBar(l, row, p.top, h-1, len(p.keys))
	})...)
	return lines
}

// maxEvents is the number of events that an eventLog keeps when it discards old ones.
const maxEvents = 5000

// eventLog keeps the newest events of the locks, oldest first. The zero value is empty.
type eventLog struct {
	events []loggedEvent
	total  int                   // including discarded events
	byLock map[keyspace.ID][]int // numbers of the events of each lock
}

// loggedEvent is an event in a log. Most events of a quiet server tell that a lock appeared: they have no more than what
// the snapshot says of the lock, and take a tenth of the memory of others.
type loggedEvent struct {
	at   time.Time
	kind keyspace.EventKind
	lock *keyspace.Lock  // after the change
	full *keyspace.Event // nil if the event is only about the first holder of the lock
}

// logged returns an event for a log. locks are those of the snapshot with the event.
func logged(e *keyspace.Event, locks []*keyspace.Lock) loggedEvent {
	if i, known := keyspace.FindLock(locks, e.Lock.ID()); known && e.Kind == keyspace.Discovered {
		if l := locks[i]; len(l.Holders) == 1 && l.Holders[0] == e.Holder && keyspace.SameLock(l, &e.Lock) {
			return loggedEvent{e.At, e.Kind, l, nil}
		}
	}
	full := *e
	return loggedEvent{e.At, e.Kind, &full.Lock, &full}
}

// event returns the complete event.
func (e *loggedEvent) event() *keyspace.Event {
	if e.full != nil {
		return e.full
	}
	return &keyspace.Event{At: e.at, Kind: e.kind, Lock: *e.lock, Holder: e.lock.Holders[0]}
}

// add adds the events of a snapshot with these locks.
func (j *eventLog) add(events []keyspace.Event, locks []*keyspace.Lock) {
	if old := len(j.events); old+len(events) > 2*maxEvents {
		j.discard(min(old, old+len(events)-maxEvents))
	}
	if j.byLock == nil {
		j.byLock = make(map[keyspace.ID][]int)
	}
	for i := range events {
		id := events[i].Lock.ID().OnAnyNode()
		j.events, j.byLock[id] = append(j.events, logged(&events[i], locks)), append(j.byLock[id], j.total)
		j.total++
	}
}

// discard discards the oldest n events, in place: a copy of all with each snapshot would be most of
// what a screen of a busy server allocates.
func (j *eventLog) discard(n int) {
	for i := range n {
		id := j.events[i].lock.ID().OnAnyNode()
		if rest := j.byLock[id][1:]; len(rest) > 0 {
			j.byLock[id] = rest
		} else {
			delete(j.byLock, id)
		}
	}
	j.events = slices.Delete(j.events, 0, n)
}

// latest returns the newest events of a lock up to the shown moment, newest first, at most most.
func (s *state) latest(id keyspace.ID, most int) (events []*keyspace.Event) {
	past := s.past()
	for _, number := range slices.Backward(s.log.byLock[id.OnAnyNode()]) {
		if i := number - s.log.number(0); len(events) == most {
			break
		} else if i < len(past) {
			events = append(events, past[i].event())
		}
	}
	return events
}

// number returns the number of the event at index i, counted from the first event ever. Indexes
// into [state.past] are valid.
func (j *eventLog) number(i int) int { return j.total - len(j.events) + i }
