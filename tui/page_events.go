package tui

import (
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"locktop/humanize"
	"locktop/keyspace"
	"locktop/tui/widget"
)

// eventsPage lists the events, newest first.
type eventsPage struct {
	cursor cursor[int] // by the number of the event
	filter filter
	rows   []int // indexes into the past, newest first
}

func (p *eventsPage) title() string { return "6 Events" }

func (p *eventsPage) place() pageSet { return onEvents }

func (p *eventsPage) update(s *state, msg tea.Msg) tea.Cmd {
	switch msg := msg.(type) {
	case snapshotMsg, viewChangedMsg, tea.WindowSizeMsg:
		p.arrange(s)
	case wheelMsg:
		p.cursor.choose(p.cursor.row+msg.steps, len(p.rows), p.key(s))
		p.cursor.reveal(len(p.rows), p.height(s))
	case clickMsg:
		p.cursor.choose(p.cursor.top+msg.y-1, len(p.rows), p.key(s))
	case action:
		return p.act(s, msg)
	}
	return nil
}

func (p *eventsPage) act(s *state, a action) tea.Cmd {
	if p.cursor.travel(a, len(p.rows), p.height(s), p.key(s)) {
		return nil
	}
	switch a {
	case search:
		s.dialog = p.ask(s)
	case back:
		if p.filter.text == "" {
			s.reject("nothing to leave: no pause, no filter")
		}
		p.filter = filter{}
		p.arrange(s)
	case enter:
		if l, ok := p.subject(s); ok {
			s.next = openLockMsg{l}
			return nil
		}
		s.reject("no event to open the lock of")
	}
	return nil
}

func (p *eventsPage) subject(s *state) (keyspace.Lock, bool) {
	if len(p.rows) == 0 {
		return keyspace.Lock{}, false
	}
	return s.past()[p.rows[p.cursor.row]].Lock, true
}

func (p *eventsPage) ask(s *state) dialog {
	return p.filter.prompt(func() { p.arrange(s) }, func() string { return humanize.Count(len(p.rows)) + " of " + humanize.Count(len(s.past())) })
}

// arrange updates the rows. A selected first row stays selected, so that the newest event stays
// visible.
func (p *eventsPage) arrange(s *state) {
	past := s.past()
	newest := p.cursor.row == 0
	p.rows = p.rows[:0]
	for i := len(past) - 1; i >= 0; i-- {
		if p.filter.event(&past[i]) {
			p.rows = append(p.rows, i)
		}
	}
	if newest {
		p.cursor.choose(0, len(p.rows), p.key(s))
	}
	p.cursor.follow(len(p.rows), p.key(s))
	p.cursor.reveal(len(p.rows), p.height(s))
}

func (p *eventsPage) key(s *state) func(int) int {
	return func(row int) int { return s.log.number(p.rows[row]) }
}

func (p *eventsPage) height(s *state) int { return max(0, s.frame().body-1) }

func (p *eventsPage) summary(s *state, l *widget.Line) {
	counts := map[keyspace.EventKind]int{}
	for _, e := range s.past() {
		counts[e.Kind]++
	}
	parts := []segment{{style: s.screen.theme.strong, text: humanize.Plural(len(s.past()), "event")}}
	for i, k := range []keyspace.EventKind{keyspace.Expired, keyspace.Stolen, keyspace.Acquired, keyspace.Released, keyspace.Renewed} {
		glyph, st := s.ofEvent(k)
		if counts[k] > 0 {
			parts = append(parts, segment{style: st, text: glyph + " " + humanize.Count(counts[k]) + " " + string(k), priority: 2 + i})
		}
	}
	filtered := ""
	if p.filter.text != "" {
		filtered = "/" + widget.Plain(p.filter.text) + "  " + humanize.Count(len(p.rows)) + " of " + humanize.Count(len(s.past()))
	}
	layoutLine(l, s.screen.glyphs, parts, []segment{{style: s.screen.theme.key, text: filtered, priority: 1}})
}

func (p *eventsPage) view(s *state, w, h int) []string {
	keys := min(40, max(12, w*3/10))
	head := widget.NewLine(w).Skip(widget.Style{}, margin)
	for _, c := range []struct {
		title string
		w     int
	}{{"TIME", 12}, {"EVENT", 16}, {"LOCK", keys + 2}, {"WHO", eventOwner}} {
		head.Put(s.screen.theme.head, s.screen.glyphs.Fit(c.title, c.w))
	}
	lines := []string{head.String()}
	if len(p.rows) == 0 {
		lines = append(lines, s.paragraph(w, "", p.nothing())...)
	}
	past := s.past()
	thumb, end := widget.Thumb(p.cursor.top, h-1, len(p.rows))
	for i := range max(0, min(h-1, len(p.rows)-p.cursor.top)) {
		row := p.cursor.top + i
		l := widget.NewLine(w)
		s.pointer(l, row == p.cursor.row)
		s.event(l, &past[p.rows[row]], keys)
		if i >= thumb && i < end {
			l.To(widget.Style{}, w-1).Put(s.screen.theme.rule, s.screen.glyphs.Thumb)
		}
		lines = append(lines, l.String())
	}
	return lines[:min(h, len(lines))]
}

// nothing says why there are no rows.
func (p *eventsPage) nothing() string {
	if p.filter.active() {
		return "no event matches the filter; Esc clears it"
	}
	return "nothing has happened yet"
}

// maxEvents is the number of events that an eventLog keeps when it discards old ones.
const maxEvents = 5000

// eventLog keeps the newest events of the locks, oldest first. The zero value is empty.
type eventLog struct {
	events []keyspace.Event
	total  int                   // including discarded events
	about  map[keyspace.ID][]int // numbers of the events of each lock
}

func (j *eventLog) add(events []keyspace.Event) {
	j.events = append(j.events, events...)
	j.index(len(j.events) - len(events))
	if len(j.events) > 2*maxEvents {
		j.events = append([]keyspace.Event(nil), j.events[len(j.events)-maxEvents:]...)
		j.about, j.total = nil, j.total-len(j.events)
		j.index(0)
	}
}

// index numbers the events from index from on, and records their locks.
func (j *eventLog) index(from int) {
	if j.about == nil {
		j.about = make(map[keyspace.ID][]int)
	}
	for i := from; i < len(j.events); i++ {
		id := j.events[i].Lock.ID()
		j.about[id] = append(j.about[id], j.total)
		j.total++
	}
}

// latest returns the indexes of the newest events of a lock, newest first, at most most. It
// considers only the first n events.
func (j *eventLog) latest(id keyspace.ID, n, most int) []int {
	var places []int
	numbers := j.about[id]
	for i := len(numbers) - 1; i >= 0 && len(places) < most; i-- {
		if at := numbers[i] - j.number(0); at < n {
			places = append(places, at)
		}
	}
	return places
}

// until returns the events that are not newer than t.
func (j *eventLog) until(t time.Time) []keyspace.Event {
	n := len(j.events)
	for n > 0 && j.events[n-1].At.After(t) {
		n--
	}
	return j.events[:n]
}

// number returns the number of the event at index i, counted from the first event ever. Indexes
// into the result of until are valid.
func (j *eventLog) number(i int) int { return j.total - len(j.events) + i }
