package tui

import (
	"cmp"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strings"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"locktop/internal/humanize"
	"locktop/keyspace"
	"locktop/keyspace/holds"
	"locktop/tui/widget"
)

// lockPage shows all details of one lock. The page scrolls.
type lockPage struct {
	id   keyspace.ID
	last keyspace.Lock // last known state
	seen time.Time     // time of last, on the server's clock
	gone bool          // the lock does not exist now
	top  int           // first visible line

	tells bool // the story is shown instead of the details
	told  story
}

func (p *lockPage) subject(*state) (keyspace.Lock, bool) { return p.last, true }

func (p *lockPage) act(s *state, a action) tea.Cmd {
	if a == snooze {
		found := findingsOn(p.id, s.current().findings)
		if len(found) == 0 {
			found = findingsOn(p.id, s.current().snoozed)
		}
		s.toggleSnooze(found)
	}
	if a == enter {
		p.openConnected(s)
	}
	if a == tellStory {
		p.tells, p.top = !p.tells, 0
	}
	if steps, ok := stride(a, len(p.text(s, s.screen.w)), s.frame().body); ok {
		p.scroll(s, steps)
	}
	return nil
}

// arrange finds the lock in the current snapshot. For a lock that is gone, it uses the last known
// state, from the page or from a later event.
func (p *lockPage) arrange(s *state) {
	l, ok := s.current().lock(p.id)
	p.gone = !ok
	if ok {
		p.last, p.seen = l, s.clock()
		return
	}
	for _, e := range s.latest(p.id, 1) {
		if e.At.After(p.seen) {
			p.last, p.seen = e.Lock, e.At
		}
	}
}

func (p *lockPage) scroll(s *state, steps int) {
	p.top = scrolled(p.top+steps, len(p.text(s, s.screen.w)), s.frame().body)
}

func (p *lockPage) summary(s *state, l *widget.Line) {
	v := p.lock(s)
	glyph, style, word := v.look()
	if p.gone {
		glyph, style, word = s.screen.glyphs.Ring, s.screen.theme.dim, "not held now"
	}
	layoutLine(l, s.screen.glyphs, []segment{
		{style: style, text: glyph + " " + word},
		{style: s.screen.theme.strong, text: s.privacy.key(p.last.Key), flex: 16},
	}, []segment{{style: s.screen.theme.dim, text: s.keymap.named("{back} back"), priority: 2}})
}

// lock returns the lock with the time of its state.
func (p *lockPage) lock(s *state) lockView {
	if p.gone && !p.seen.IsZero() {
		return lockView{Lock: &p.last, now: p.seen, state: s}
	}
	return s.viewOf(&p.last)
}

func (p *lockPage) view(s *state, w, h int) []string {
	all := p.text(s, w)
	top := scrolled(p.top, len(all), h)
	return all[top:min(len(all), top+h)]
}

// text returns all lines of the page.
func (p *lockPage) text(s *state, w int) []string {
	if p.tells {
		return p.storyBlock(s, w)
	}
	v := p.lock(s)
	lines := p.nowBlock(v, w)
	lines = append(lines, p.findingsBlock(s, w)...)
	lines = append(lines, p.stuckBlock(v, w)...)
	lines = append(lines, p.lastMinuteBlock(s, w)...)
	lines = append(lines, s.raw.block(s, p.id, w)...)
	lines = append(lines, p.holdStatsBlock(s, w)...)
	lines = append(lines, p.eventsBlock(s, w)...)
	return append(lines, p.commandBlock(s, w)...)
}

// commandBlock draws a command for copying. The command changes the lock only if the lock is
// unchanged.
func (p *lockPage) commandBlock(s *state, w int) []string {
	if s.privacy.on || len(s.config.Formats) == 0 {
		return nil
	}
	if wake := keyspace.WakeCommand(s.config.Formats, p.last, s.clock(), s.config.RedisCLI...); wake != "" {
		return append([]string{s.ruleOf(w, "command to wake the next waiter", s.keymap.named("{copy} to copy"))}, s.wrapAnywhere(w, margin, s.screen.theme.text, wake)...)
	}
	if len(p.last.Holders) == 0 {
		return nil
	}
	act, word := keyspace.ForceRelease, "command for an exact release, only of this hold"
	if p.last.Endless() && !p.last.NoExtend {
		act, word = keyspace.Expire, "command to set a deadline"
	}
	lines := []string{s.ruleOf(w, word, s.keymap.named("{copy} to copy"))}
	command, why := s.config.exactCommand(act, p.last, defaultTTL)
	if why != "" {
		return append(lines, s.item(w, "", s.screen.theme.dim, why))
	}
	return append(lines, s.wrapAnywhere(w, margin, s.screen.theme.text, command)...) // Plain would double its backslashes
}

// nowBlock draws the holders and the waiters.
func (p *lockPage) nowBlock(v lockView, w int) []string {
	s := v.state
	kind := s.sentence(widget.Plain(v.Format), string(v.Kind), v.Confidence.String())
	lines := []string{s.ruleOf(w, "now", kind)}
	if p.gone {
		lines = append(lines, p.ended(s, w))
	} else {
		lines = append(lines, v.timeLeft(w))
	}
	lines = append(lines, v.holders(w, holdersListed, 3)...)
	lines = append(lines, v.queue(w)...)
	lines = append(lines, s.items(w, "so far", s.screen.theme.text, v.details(), 3)...)
	for i, why := range v.Evidence {
		lines = append(lines, s.items(w, []string{"evidence", ""}[min(i, 1)], s.screen.theme.dim, widget.Plain(why), 3)...)
	}
	return lines
}

// ended says how and when the last hold of a lock that is gone ended, as far as it is known.
func (p *lockPage) ended(s *state, w int) string {
	how := ""
	for _, e := range s.latest(p.id, eventsListed) {
		if e.Kind.Ends() {
			how = fmt.Sprintf(", %s %s ago", e.Kind, humanize.Duration(s.clock().Sub(e.Ended())))
			break
		}
	}
	return s.item(w, "state", s.screen.theme.dim, s.screen.glyphs.Ring+" not held now"+how+"; below as last seen")
}

// Maximum numbers of listed holders, waiters and events.
const (
	holdersListed = 8
	waitersListed = 10
	eventsListed  = 20
)

// timeLeft draws the remaining TTL.
func (v lockView) timeLeft(w int) string {
	s := v.state
	l := widget.NewLine(w).Pad(widget.Style{}, margin).Put(s.screen.theme.dim, "time left").PadTo(widget.Style{}, margin+10)
	rest, ok := v.TTL(v.now)
	switch {
	case len(v.Holders) == 0:
		return l.Put(s.screen.theme.dim, s.screen.glyphs.None).String()
	case !ok:
		return l.Put(s.screen.theme.bad, "never expires").String()
	case v.State(v.now) == keyspace.Lapsed:
		return l.Put(s.screen.theme.warn, "its deadline passed "+humanize.Left(-rest)+" ago").String()
	}
	l.Put(v.urgency(s.screen.theme.text), s.screen.glyphs.Fit(humanize.Left(rest), 9))
	const wide = 40
	l.Put(v.urgency(s.screen.theme.calm), s.screen.glyphs.Fit(s.screen.glyphs.Bar(v.remaining(), min(wide, l.Rest()-1)), min(wide, l.Rest()-1)))
	return l.String()
}

// queue draws one waiter per line, in the order of service if it is known.
func (v lockView) queue(w int) []string {
	s := v.state
	n := v.WaiterCount()
	if n == 0 || len(v.Waiters) == 0 {
		return s.items(w, "waiting", s.screen.theme.dim, v.waiters(), 3)
	}
	label := "waiting"
	var lines []string
	for i := range v.Waiters[:min(len(v.Waiters), waitersListed)] {
		waiter := &v.Waiters[i]
		since := ""
		if age := waiter.Age(v.now); age.Duration > 0 {
			since = "for " + s.ageText(age)
		}
		style := s.screen.theme.warn
		if dead := waiter.DeadFor(v.now); dead > 0 {
			since, style = "has not answered for "+humanize.Duration(dead), s.screen.theme.bad
		}
		named := waiterAsHolder(*waiter)
		process, _ := v.process(&named)
		text := fmt.Sprintf("%2d  %s", i+1, s.sentence(s.waiterName(v.Lock, waiter), process, string(waiter.Mode), since))
		lines = append(lines, s.item(w, label, style, text))
		label = ""
	}
	if n > waitersListed {
		lines = append(lines, s.item(w, "", s.screen.theme.dim, fmt.Sprintf("and %s more", humanize.Count(n-waitersListed))))
	}
	return lines
}

// findingsBlock draws the findings on the lock and their remedies.
func (p *lockPage) findingsBlock(s *state, w int) []string {
	found, asleep := findingsOn(p.id, s.current().findings), findingsOn(p.id, s.current().snoozed)
	if len(found)+len(asleep) == 0 {
		return nil
	}
	lines := []string{s.ruleOf(w, "findings", humanize.Plural(len(found), "finding"))}
	for _, f := range found {
		glyph, style := s.look(f.Severity)
		for i, text := range s.screen.glyphs.Wrap(s.redactText(p.last.ID(), f.Text), w-margin-13, 4) {
			if i > 0 {
				glyph = " "
			}
			lines = append(lines, s.item(w, []string{widget.Plain(f.Severity.String()), ""}[min(i, 1)], style, glyph+" "+text))
		}
		for i, text := range s.screen.glyphs.Wrap(s.redactText(p.last.ID(), s.keymap.remedy(f)), w-margin-13, 8) {
			lines = append(lines, s.item(w, []string{"remedy", ""}[min(i, 1)], s.screen.theme.text, "  "+text))
		}
	}
	for _, f := range asleep {
		lines = append(lines, s.item(w, widget.Plain(f.Severity.String()), s.screen.theme.dim, "  "+s.snoozes.text(&f, s.now)+": "+s.redactText(p.last.ID(), f.Text)))
	}
	return lines
}

// eventsBlock draws the newest events of the lock.
func (p *lockPage) eventsBlock(s *state, w int) []string {
	lines := []string{s.ruleOf(w, "events", "newest first")}
	for _, e := range s.latest(p.id, eventsListed) {
		l := widget.NewLine(w).Pad(widget.Style{}, margin)
		s.event(l, e, 0)
		lines = append(lines, l.String())
	}
	if len(lines) == 1 {
		lines = append(lines, widget.NewLine(w).Pad(widget.Style{}, margin).Put(s.screen.theme.dim, "none since start").String())
	}
	return append(lines, strings.Repeat(" ", w))
}

// event draws an event: time, kind, key in keys cells, and client. It leaves the last cell of
// the line free.
func (s *state) event(l *widget.Line, e *keyspace.Event, keys int) {
	glyph, st := s.look(e.Kind)
	l.Put(s.screen.theme.dim, e.At.Local().Format("15:04:05.0")).Pad(widget.Style{}, 2)
	l.Put(st, s.screen.glyphs.Fit(glyph+" "+string(e.Kind), 15)).Pad(widget.Style{}, 1)
	if keys > 0 {
		l.Put(s.screen.theme.strong, s.screen.glyphs.Fit(s.privacy.key(e.Lock.Key), keys)).Pad(widget.Style{}, 2)
	}
	client := s.privacy.owner(clientOf(e))
	if e.Waiter.ID != "" {
		client = s.waiterName(&e.Lock, &e.Waiter)
	}
	owner := eventOwner
	if keys == 0 && l.Rest() < 2*eventOwner {
		owner = eventOwner / 2
	}
	l.Put(s.screen.theme.text, s.screen.glyphs.Fit(client, min(owner, max(0, l.Rest()-1)))).Pad(widget.Style{}, 1)
	l.Put(s.screen.theme.dim, s.screen.glyphs.FitEnd(s.details(e), max(0, l.Rest()-1)))
}

// clientOf returns the name of the client of an event; "" if it is about none.
func clientOf(e *keyspace.Event) string { return cmp.Or(e.Waiter.ID, e.Holder.Name()) }

// waiterName returns the name of a waiter for display. On a lock of the load it is that of a process, because the
// clients of one process wait together.
func (s *state) waiterName(l *keyspace.Lock, w *keyspace.Waiter) string {
	if process, _, found := strings.Cut(w.ID, "~"); found && s.ofLoad(l.Key) {
		return "load " + s.privacy.owner(process)
	}
	return s.privacy.owner(w.ID)
}

// ofLoad reports whether a key belongs to the load of this screen.
func (s *state) ofLoad(key string) bool {
	prefix := s.run.scenario.Keys.Prefix
	return s.run.load != nil && prefix != "" && strings.HasPrefix(key, prefix)
}

// eventOwner is the width of the client's name in an event.
const eventOwner = 22

// details returns mode, depth, the holder that took the lock, hold time and TTL of an event.
func (s *state) details(e *keyspace.Event) string {
	held, depth, ttl, taken := "", "", "", ""
	if e.Held > 0 {
		held = "held for " + keyspace.Age{Duration: e.Held, AtLeast: e.Holder.Late > 0}.String()
	}
	if e.Holder.Depth > 1 {
		depth = fmt.Sprintf("%s%d", s.screen.glyphs.Times, e.Holder.Depth)
	}
	if rest, ok := e.Lock.TTL(e.At); ok && held == "" && e.Waiter.ID == "" && rest > 0 { // a waiter has no TTL
		ttl = humanize.Left(rest.Round(100*time.Millisecond)) + " left"
	}
	if next, ok := e.TakenBy(); ok {
		verb := "taken by "
		if e.Kind == keyspace.Replaced {
			verb = "then " // there may have been a release
		}
		taken = verb + s.privacy.owner(next.Name())
	}
	return s.sentence(string(e.Holder.Mode), depth, taken, held, ttl, e.MayHave())
}

// holdStatsBlock draws how the known holds of a lock ended, how long they lasted, how long the lock was free between
// two holds, and whose holds they were.
func (p *lockPage) holdStatsBlock(s *state, w int) []string {
	past := s.timeline.sampled.Of(p.id, nil, time.Time{})
	var held, free []time.Duration
	var owners []string // the latest first
	ended, holdsOf := make(map[keyspace.EventKind]int), make(map[string]int)
	for _, h := range slices.Backward(past.Holds) {
		name := h.Holder.Name()
		if _, known := holdsOf[name]; !known {
			owners, holdsOf[name] = append(owners, name), 0
		}
		if h.Lasts() {
			continue
		}
		holdsOf[name]++
		ended[h.End.Kind]++
		if _, most := h.Held(time.Time{}); most > 0 && h.To.Grade == holds.Exact {
			held = append(held, most)
		}
	}
	if len(ended) == 0 {
		return nil
	}
	for from, to := range past.Gaps {
		free = append(free, to.Sub(from))
	}
	kinds := slices.SortedFunc(maps.Keys(ended), func(a, b keyspace.EventKind) int { // the most frequent end first
		return cmp.Or(ended[b]-ended[a], cmp.Compare(a, b))
	})
	since := "since start"
	if !past.Whole.IsZero() {
		since = "in the last " + humanize.Duration(s.clock().Sub(past.Whole))
	}
	lines := []string{s.ruleOf(w, since, s.sentence(mapped(kinds, func(k keyspace.EventKind) string { return humanize.Count(ended[k]) + " " + string(k) })...))}
	lines = append(append(lines, s.durationsLine("held", held, w)...), s.durationsLine("free", free, w)...)
	const most = 4
	names := mapped(owners[:min(len(owners), most)], func(name string) string {
		return fmt.Sprintf("%s %s%d", s.privacy.owner(name), s.screen.glyphs.Times, holdsOf[name])
	})
	return append(lines, s.item(w, "owners", s.screen.theme.text, listed(names, most, len(owners))))
}

// durationsLine draws durations: one column for those below 1 ms and for each power of two, then the percentiles. Without
// durations it draws nothing.
func (s *screen) durationsLine(label string, all []time.Duration, w int) []string {
	if len(all) == 0 {
		return nil
	}
	slices.Sort(all)
	power := func(d time.Duration) int { return bits.Len64(uint64(d.Milliseconds())) }
	quantile := func(q float64) string { return humanize.Duration(all[min(len(all)-1, int(q*float64(len(all))))]) }
	columns := make([]float64, power(all[len(all)-1])-power(all[0])+1)
	for _, d := range all {
		columns[power(d)-power(all[0])]++
	}
	l := widget.NewLine(w).Pad(widget.Style{}, margin).Put(s.theme.dim, label).PadTo(widget.Style{}, margin+10)
	l.Put(s.theme.chart, strings.Join(s.glyphs.Chart(columns, slices.Max(columns), len(columns), 1), "")).Pad(widget.Style{}, 2)
	percentiles := s.sentence(humanize.Count(len(all))+s.glyphs.Times, "p50 "+quantile(0.5), "p99 "+quantile(0.99), "longest "+quantile(1))
	return []string{l.Put(s.theme.text, s.glyphs.FitEnd(percentiles, l.Rest()-1)).String()}
}
