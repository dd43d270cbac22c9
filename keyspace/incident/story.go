package incident

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"locktop/internal/humanize"
	"locktop/keyspace"
	"locktop/keyspace/holds"
)

// stories returns the incidents of a lock.
func (b *Builder) stories(t *track) []Story {
	var all []Story
	faulty := time.Duration(0)
	for _, g := range groups(b.found(t)) {
		s := b.story(t, &g)
		faulty += s.Blocked
		all = append(all, s)
	}
	if s, ok := b.contention(t); ok && faulty < s.Blocked/2 {
		all = append(all, s)
	}
	return all
}

// story explains one incident.
func (b *Builder) story(t *track, g *group) Story {
	main := g.main()
	s := Story{Lock: t.id, Format: t.format, Cause: main.cause, From: g.From, To: g.To, Usual: t.usual(), cycle: main.cycle}
	if main.early() && g.early() >= repeatedly || main.cause == TTLTooShort && !t.released {
		s.quiet = onPurpose
	}
	s.Blocked, s.Clients, s.AtMost = g.cost()
	s.Ongoing = slices.ContainsFunc(g.faults, func(f fault) bool {
		return f.cycle == nil && f.hold.Lasts() || (f.cycle != nil || f.cause == SlowHandOff) && f.To.Equal(b.last)
	})
	w := writer{b: b, t: t, s: &s, g: g}
	s.Headline = causes()[main.cause].says(&w, main) + w.freeAfter(main) + w.price()
	s.Lines = w.lines()
	s.Unknown = w.unknown(main)
	s.Next = causes()[main.cause].next(&w, main)
	return s
}

// contention says that clients always wait for a lock, although nothing failed.
func (b *Builder) contention(t *track) (Story, bool) {
	seen := t.seen.To.Sub(t.seen.From)
	usual := t.usual()
	if seen < 30*time.Second || !usual.known() || t.waited.Any < seen*9/10 || t.heldFor < seen*8/10 {
		return Story{}, false
	}
	s := Story{Lock: t.id, Format: t.format, Cause: Contended, quiet: onlyContended, From: t.seen.From, To: t.seen.To, Usual: usual, Blocked: t.waited.Total, Clients: t.waited.Most}
	mean := float64(t.waited.Total) / float64(seen)
	s.Headline = fmt.Sprintf("%s is only contended: nothing failed. It was held for %d %% of %s, and %.1f clients waited on average.",
		t.id.Key, min(100, int64(100*t.heldFor/seen)), long(seen), mean)
	text := fmt.Sprintf("%s until %s: half of them were over in %s, 99 %% in %s", humanize.Plural(t.ended, "hold"), clock(t.seen.To), long(usual.P50), long(usual.P99))
	if n := len(t.sorted) - usual.Holds; n > 0 {
		text += fmt.Sprintf(", without the %d longest", n)
	}
	s.Lines = []Line{{At: t.seen.From, Text: text}}
	s.Next = "Make the holds shorter, or use several locks instead of one: by customer or by order, for example. A longer TTL or another retry interval does not help."
	return s, true
}

// writer writes the sentences of a story.
type writer struct {
	b *Builder
	t *track
	s *Story
	g *group
}

// name returns the name of a holder as it is short enough for a sentence.
func name(text string) string {
	const most = 40
	if r := []rune(text); len(r) > most {
		return string(r[:16]) + "…"
	}
	return text
}

// freeAfter says until when nobody took the lock after a fault.
func (w *writer) freeAfter(main *fault) string {
	if f := &w.g.faults[len(w.g.faults)-1]; f.cause == SlowHandOff && main.cause != SlowHandOff && main.repeats() == "" {
		return fmt.Sprintf(" Then nobody took it until %s.", clock(f.To))
	}
	return ""
}

// held returns until when the hold or the deadlock of a fault lasted.
func (w *writer) held(f *fault) string {
	if f.hold.Lasts() && (f.cycle == nil || f.To.Equal(w.b.last)) {
		return "the last frame at " + clock(w.b.last)
	}
	return clock(f.To) + map[bool]string{true: " at the latest"}[f.hold.To.Grade == holds.Between]
}

// lasted returns how long a hold lasted, or has lasted up to a time.
func (t *track) lasted(h *holds.Hold, now time.Time) string {
	d := long(h.Until(now).Sub(began(h)))
	switch {
	case t.vague(h):
		return "at most " + d
	case !begun(h) || !h.Lasts() && h.To.Grade != holds.Exact:
		return "at least " + d
	}
	return d
}

// many says how many faults there are; the cheapest of too many are not kept.
func (w *writer) many(n int, what string) string {
	return map[bool]string{true: "at least "}[len(w.t.faults) >= keptHolds] + humanize.Plural(n, what)
}

// ttl returns the TTL of the hold of a fault.
func (w *writer) ttl(f *fault) time.Duration {
	ttl := f.hold.TTL
	for i := range w.g.faults {
		ttl = cmp.Or(ttl, w.g.faults[i].hold.TTL)
	}
	return cmp.Or(ttl, f.hold.Until(w.b.last).Sub(began(f.hold)).Round(100*time.Millisecond))
}

// price returns what the incident cost, with a blank before it.
func (w *writer) price() string {
	if w.s.Blocked < time.Second {
		return ""
	}
	most, all := map[bool]string{true: "at most "}[w.s.AtMost], map[bool]string{true: " in all"}[w.s.Clients > 1]
	return fmt.Sprintf(" %s waited for %s%s%s.", humanize.Plural(w.s.Clients, "client"), most, long(w.s.Blocked), all)
}

// shown is the number of faults that a story lists one by one.
const shown = 4

// lines returns the moments of the incident.
func (w *writer) lines() []Line {
	told := w.g.faults
	if len(told) > shown+1 {
		told = append(slices.Clone(told[:shown-1]), told[len(told)-1])
	}
	var all []Line
	for i := range told {
		lines := w.tell(&told[i])
		if i > 0 && len(all) > 0 && told[i-1].next != nil && began(told[i-1].next).Equal(lines[0].At) && began(told[i].hold).Equal(lines[0].At) {
			lines = lines[1:] // it is the next holder of the fault before
		}
		all = append(all, lines...)
	}
	if n := len(w.g.faults) - len(told); n > 0 {
		f := w.g.faults[shown-1]
		all = append(all, Line{At: f.From, Text: fmt.Sprintf("and %s more like these until %s", humanize.Count(n), clock(w.g.To))})
	}
	said := make(map[string]bool)
	for _, n := range w.b.notices {
		if !n.At.Before(w.s.From.Add(-nearby)) && !n.At.After(w.s.To.Add(nearby)) {
			if text := strings.TrimPrefix("server "+n.Node+": ", "server : ") + w.noticed(n); !strings.HasSuffix(text, ": ") && !said[text] {
				said[text] = true
				all = append(all, Line{At: n.At, Text: text})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b Line) int { return a.At.Compare(b.At) })
	return slices.CompactFunc(all, func(a, b Line) bool { return a.At.Equal(b.At) && a.Text == b.Text })
}

// noticed returns what a notice says; "" if the story does not need it.
func (w *writer) noticed(n keyspace.Notice) string {
	switch n.Kind {
	case keyspace.RightsChanged, keyspace.WatchModeChanged:
		return ""
	case keyspace.ServerFlushed: // a replica that copies its new master begins with that
		if w.s.Cause == Failover {
			return ""
		}
	case keyspace.ServerLost:
		return "it cannot be read: " + n.Text
	case keyspace.ServerBack:
		return strings.TrimSuffix("it answers again: "+n.Text, ": ")
	}
	return n.Text
}

// tell returns the moments of a fault.
func (w *writer) tell(f *fault) []Line {
	if f.cycle != nil {
		return w.tellDeadlock(f)
	}
	h := f.hold
	if f.cause == SlowHandOff {
		return []Line{{At: f.From, Text: w.endOf(h)}, w.tellFree(f)}
	}
	all := []Line{{At: began(h), Text: w.beginOf(f)}}
	cost, where := f.To.Sub(f.From), strings.TrimSuffix(" "+h.Holder.Addr, " ")
	switch f.cause {
	case HolderGone, NeverExpires:
		all = append(all, Line{At: f.From, Text: "its connection" + where + " had ended", Cost: cost, Note: w.saved(f)})
		if f.atMost {
			all[1].Note = "at most: the lock may have been free earlier"
		}
	case ExpiredConnected, RenewalsStopped:
		seen := map[bool]string{true: "its connection is not known", false: "a connection with its name," + where + ", was not seen to end"}[f.cause == RenewalsStopped]
		what := map[bool]string{true: "its last renewal; ", false: "99 % of the other holds were over after this time; "}[h.Renewals > 0]
		all = append(all, Line{At: f.From, Text: what + seen, Cost: cost, Note: "at most: it may have worked"})
	case Overdue:
		if w.s.Usual.known() {
			all = append(all, Line{At: f.From, Text: "99 % of the other holds were over after this time", Cost: cost})
		}
	}
	if moved := w.moved(h); moved != "" {
		all = append(all, Line{At: h.Moved.At, Text: moved})
	}
	end := Line{At: ended(h, w.b.last), Text: w.endOf(h)}
	if f.cause == Expired && cost > 0 {
		end.Cost, end.Note = cost, "at most: 99 % of the other holds were over earlier"
	}
	all = append(all, end)
	if f.next != nil && !slices.ContainsFunc(w.g.faults, func(g fault) bool { return g.cause == SlowHandOff && g.From.Equal(h.To.At) }) {
		takes := map[bool]string{true: " has it", false: " acquired it"}[f.next.Holder.ID == h.Holder.ID || f.next.Holder.ID == w.t.brought]
		all = append(all, Line{At: began(f.next), Text: nextName(f) + takes + w.overlap(f)})
	}
	return all
}

// overlap says that the former holder may still have worked.
func (w *writer) overlap(f *fault) string {
	h := f.hold
	if nextName(f) == holderOf(f) {
		return " again"
	}
	switch f.cause {
	case HolderGone, NeverExpires, Overdue:
		return ""
	case Expired, TTLTooShort, ExpiredConnected, RenewalsStopped:
		if f.early() {
			return ""
		}
		return ", while " + name(h.Holder.Name()) + " may have worked"
	}
	if h.Holder.Expires.After(began(f.next)) {
		return fmt.Sprintf(": both had a lease until %s, and may have worked at the same time", clock(h.Holder.Expires))
	}
	return ""
}

// nextName returns the name of the next holder; "" if it is not known.
func nextName(f *fault) string {
	if f.next == nil {
		return ""
	}
	return name(f.next.Holder.Name())
}

// beginOf says how a hold began.
func (w *writer) beginOf(f *fault) string {
	h := f.hold
	text := holderOf(f)
	switch {
	case f.again:
		text += " has it again, with the value of the last hold"
	case f.rewritten:
		text += " wrote a new value into it"
	case h.Holder.ID == w.t.brought:
		text += " has it, with the value and the deadline of " + w.t.from
	case !begun(h):
		text += " holds it, and acquired it earlier"
	case w.t.vague(h), h.Holder.Late > together:
		text += " acquired it, at " + clock(h.From.Upto) + " at the latest"
	default:
		text += " acquired it"
	}
	switch m := h.Moved; {
	case h.Holder.ID == w.t.brought: // the rest of it
	case h.First > 0:
		text += ": TTL " + humanize.Setting(h.First)
	case m == nil && h.Holder.Expires.IsZero(), m != nil && m.From.IsZero():
		text += ": no TTL"
	case h.TTL > 0 && h.Renewals == 0 && m == nil:
		text += ": TTL " + humanize.Setting(h.TTL)
	}
	switch {
	case h.Renewals == 1 && begun(h):
		text += ", renewed once, after " + long(interval(h))
	case h.Renewals > 0 && begun(h):
		text += fmt.Sprintf(", renewed %s, every %s", humanize.Times(h.Renewals), long(interval(h)))
	case h.Renewals > 0:
		text += ", renewed " + humanize.Times(h.Renewals)
	case !h.Holder.Expires.IsZero():
		text += ", never renewed"
	}
	if u := w.s.Usual; u.known() {
		text += fmt.Sprintf(" (usual hold %s, p99 %s)", long(u.P50), long(u.P99))
	}
	return text
}

// endOf says how a hold ended.
func (w *writer) endOf(h *holds.Hold) string {
	left := ""
	if d := h.Holder.Expires.Sub(h.To.At); d > 0 {
		left = ", " + long(d) + " before its deadline"
	}
	policy := map[bool]string{true: " (maxmemory-policy " + w.b.policy + ")"}[w.b.policy != ""]
	switch {
	case h.Lasts():
		return "still held at the last frame"
	case h.End.Proof == holds.NoProof:
		return "gone: its end, after " + clock(h.To.At) + ", and the reason were not seen"
	case h.End.Proof == holds.ByMessage:
		return name(h.Holder.Name()) + " released it"
	}
	return map[keyspace.EventKind]string{
		keyspace.Released: "released or deleted" + left, keyspace.Deleted: "deleted without the message of a release" + left, keyspace.Lost: "lost by the server" + left,
		keyspace.Stolen: "taken without a release" + left, keyspace.Replaced: "another client has it; a release was not seen", keyspace.Flushed: "gone with its database" + left,
		keyspace.HandedOver: "handed over", keyspace.Expired: "expired; no release", keyspace.Evicted: "evicted" + policy + left,
	}[h.End.Kind]
}

// tellFree returns the end of a time in which the lock was free.
func (w *writer) tellFree(f *fault) Line {
	l := Line{At: f.To, Cost: f.To.Sub(f.From)}
	waited := humanize.Plural(f.clients, "client") + " waited"
	switch {
	case f.To.Equal(w.b.last):
		l.Text = "still free at the last frame, and " + waited
		return l
	case f.next == nil || began(f.next).After(f.To):
		l.Text = waited + " until now: they gave up, or their holds were too short to be seen"
		return l
	}
	l.Text = nextName(f) + " acquired it: " + waited + " and did not poll earlier"
	l.Note = "a client that is notified of the release acquires it immediately"
	return l
}

// tellDeadlock returns the cycle and its end.
func (w *writer) tellDeadlock(f *fault) []Line {
	var all []Line
	for _, one := range f.cycle.Waits {
		all = append(all, Line{At: f.From, Text: fmt.Sprintf("%s waits for %s, which %s holds", name(one.Owner), one.Lock.Key, name(one.For))})
	}
	last := &all[len(all)-1]
	if last.Cost = f.To.Sub(f.From); !f.cycle.Certain {
		last.Text += "; the deadlock is possible only: an owner may have several threads"
	}
	if f.To.Equal(w.b.last) {
		return append(all, Line{At: f.To, Text: "the deadlock lasts at the last frame"})
	}
	return append(all, Line{At: f.To, Text: "the deadlock was seen for the last time"})
}

// saved says which TTL would have made the incident shorter; "" if none, or none is known.
func (w *writer) saved(f *fault) string {
	h := f.hold
	if h.Lasts() || w.moved(h) != "" || h.End.Kind != keyspace.Expired && !h.Holder.Expires.IsZero() {
		return ""
	}
	ttl, from := time.Duration(0), began(h)
	switch {
	case h.Renewals > 0 && begun(h):
		ttl, from = fitting(3*interval(h)), h.LastRenewal()
	case w.s.Usual.known():
		ttl = fitting(w.s.Usual.P99 * 3 / 2)
	}
	saved := h.To.At.Sub(keyspace.Later(from.Add(ttl), f.From))
	if ttl == 0 || saved < time.Second || !h.Holder.Expires.IsZero() && ttl >= h.TTL {
		return ""
	}
	least := map[bool]string{true: "at least "}[from.Add(ttl).Before(f.From)]
	return fmt.Sprintf("a TTL of %s would have ended it %s%s earlier", humanize.Setting(ttl), least, long(saved))
}

// fitting rounds a TTL up to a number that people use.
func fitting(d time.Duration) time.Duration {
	unit := time.Second
	switch {
	case d > 10*time.Minute:
		unit = time.Minute
	case d > time.Minute:
		unit = 30 * time.Second
	case d > 10*time.Second:
		unit = 5 * time.Second
	}
	return (d + unit - 1).Truncate(unit)
}

// Summaries describes the locks that were seen, in one sentence each, in the order of their
// names.
func (b *Builder) Summaries() []string {
	var all []string
	for _, id := range slices.SortedFunc(maps.Keys(b.locks), keyspace.ID.Compare) {
		t := b.locks[id]
		facts := []string{humanize.Plural(t.ended, "hold") + " ended"}
		if u := t.usual(); u.known() {
			facts[0] += fmt.Sprintf(" (usual hold %s, p99 %s)", long(u.P50), long(u.P99))
		}
		for _, h := range t.Holds {
			if h.Lasts() {
				facts = append(facts, fmt.Sprintf("%s has held it for %s", name(h.Holder.Name()), t.lasted(h, b.last)))
			}
		}
		if t.waited.Most > 0 {
			facts = append(facts, fmt.Sprintf("at least %s waited, %s in all", humanize.Plural(t.waited.Most, "client"), long(t.waited.Total)))
		}
		all = append(all, id.Key+": "+strings.Join(facts, ", ")+".")
	}
	return all
}
