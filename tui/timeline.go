package tui

import (
	"cmp"
	"hash/fnv"
	"io"
	"iter"
	"slices"
	"strings"
	"time"

	"locktop/keyspace"
	"locktop/keyspace/holds"
	"locktop/loadgen"
	"locktop/loadgen/oracle"
	"locktop/tui/widget"
)

// historyKept is the part of the past that can be seen again, as long as a History keeps snapshots.
const historyKept = 10 * time.Minute

// timeline has the past of each lock: as the snapshots show it and, for the keys of a load, as its
// clients report it. Most of 200,000 locks have none of their own: [moment.lane] takes it from the snapshot.
type timeline struct {
	sampled  holds.Ledger            // on the clocks of the servers
	exact    holds.Ledger            // of the keys of the load, on the local clock
	overlaps map[string][]timeWindow // by key: two clients held it, as the oracle of the load has found
	told     map[string]told         // of the holds of the first key of the load
	reads    map[string]bool         // by client of the load: its newest attempt was for reading
	owners   map[string]int          // numbers by owner, in order of appearance
	renamed  time.Time               // when the owners got new numbers
}

// lane is the past of one lock, as it is drawn.
type lane struct {
	*holds.Account
	exact    bool // from the load's events and on the local clock; otherwise sampled from snapshots
	labelled bool // each token begins with the name of its client
	overlaps []timeWindow
	number   func(*holds.Hold) int // of its owner
}

// add records a new snapshot.
func (c *timeline) add(change keyspace.Delta, events []keyspace.Event) {
	for i := range events {
		c.owner(events[i].Holder.ID)
		c.sampled.Event(&events[i])
	}
	for _, l := range change.Locks {
		for _, v := range l.Votes {
			c.owner(v.Token)
		}
	}
	c.sampled.State(change)
	if len(c.owners) >= maxOwners && change.At.Sub(c.renamed) > historyKept/10 { // restart the letters
		c.owners, c.renamed = nil, change.At
	}
}

// ofLoad returns the identity of a key of the load, which is known by its name only.
func ofLoad(key string) keyspace.ID { return keyspace.ID{Key: key} }

// reported reports whether the load has reported the past of a key.
func (c *timeline) reported(key string) bool { return c.exact.Has(ofLoad(key)) }

// lane returns the past of a lock as the load reports it, else as the snapshots show it. now is a read of
// the lock at a time, nil if it does not exist.
func (c *timeline) lane(id keyspace.ID, now *keyspace.Lock, at time.Time) *lane {
	if c.reported(id.Key) {
		return &lane{Account: c.exact.Of(ofLoad(id.Key), nil, at), exact: true, overlaps: c.overlaps[id.Key], number: func(h *holds.Hold) int { return c.numberOf(h.Holder.Label) }}
	}
	if now == nil && !c.sampled.Has(id) {
		return nil
	}
	return &lane{Account: c.sampled.Of(id, now, at), number: func(h *holds.Hold) int { return c.numberOf(h.Holder.ID) }}
}

// each calls yield with each lock that has a past.
func (c *timeline) each(yield func(keyspace.ID, *lane) bool) {
	for id := range c.sampled.Locks {
		if !c.reported(id.Key) && !yield(id, c.lane(id, nil, time.Time{})) {
			return
		}
	}
	for id := range c.exact.Locks {
		if !yield(id, c.lane(id, nil, time.Time{})) {
			return
		}
	}
}

// apply records events of the load with a lock. newRun discards the past of the run before. Only a key that is
// marked has marks.
func (c *timeline) apply(events []loadgen.Event, newRun bool, lock loadgen.Lock, marked string) {
	several := lock.Limit() > 1
	if newRun || c.overlaps == nil {
		c.exact, c.overlaps, c.told, c.reads = holds.Ledger{}, make(map[string][]timeWindow), nil, make(map[string]bool)
	}
	for i := range events {
		e := &events[i]
		if e.Key == "" {
			continue
		}
		c.owner(e.Owner())
		id, at := ofLoad(e.Key), e.At
		holder := keyspace.Holder{ID: e.Owner() + " " + e.Token, Label: e.Owner()} // some unsound kinds of lock give one token to several clients
		if e.Key == marked {
			c.mark(e, lock)
		}
		switch e.Kind {
		case loadgen.Arrived:
			c.reads[e.Owner()] = e.Shared
			c.exact.Wait(id, e.Owner(), at)
		case loadgen.TimedOut, loadgen.Refused, loadgen.Failed:
			c.exact.Leave(id, e.Owner(), at)
			if e.Token != "" { // the release has failed, and the client has left
				c.exact.End(id, holder.ID, at, keyspace.Released)
			}
		case loadgen.Acquired:
			c.exact.Leave(id, e.Owner(), at)
			c.exact.Begin(id, holder, e.Shared || several, at)
		case loadgen.Released:
			c.exact.End(id, holder.ID, at, keyspace.Released)
		case loadgen.Expired, loadgen.Lost:
			c.exact.End(id, holder.ID, at, keyspace.Expired)
		case loadgen.Abandoned:
			if e.Token != "" {
				c.exact.End(id, holder.ID, at, keyspace.Vanished)
				continue
			}
			c.exact.Leave(id, e.Owner(), at) // the client crashed during the acquire; its key stays
			c.exact.Begin(id, holder, false, at)
		case loadgen.EventKind(oracle.Overlap):
			c.overlaps[e.Key] = append(c.overlaps[e.Key], timeWindow{from: at, to: at.Add(e.Took)})
		}
	}
}

// maxOwners is the number of owners with a number of their own.
const maxOwners = 10_000

// owner assigns a number to an owner.
func (c *timeline) owner(id string) {
	if c.owners == nil {
		c.owners = make(map[string]int)
	}
	if _, known := c.owners[id]; id != "" && !known && len(c.owners) < maxOwners {
		c.owners[id] = len(c.owners)
	}
}

// numberOf returns the number of an owner. Owners without a number of their own have one that few
// others have.
func (c *timeline) numberOf(id string) int {
	if n, known := c.owners[id]; known {
		return n
	}
	h := fnv.New32a()
	_, _ = io.WriteString(h, id)
	return maxOwners + int(h.Sum32())
}

// drawn is a hold with the number of its letter and colour in its lane.
type drawn struct {
	*holds.Hold
	owner, letter int
}

// until returns the end of a hold, at most now.
func (s drawn) until(now time.Time) time.Time { return keyspace.Earliest(s.Until(now), now) }

// drawn returns the holds of the lane with their letters.
func (n *lane) drawn() []drawn {
	all, last := make([]drawn, 0, len(n.Holds)), make([]drawn, 0, len(letters)) // of each letter, the latest last
	for _, h := range n.Holds {
		d := drawn{Hold: h, owner: n.number(h)}
		d.letter = letterOf(d.owner, last)
		last = append(slices.DeleteFunc(last, func(x drawn) bool { return x.letter == d.letter }), d)
		all = append(all, d)
	}
	return all
}

// letterOf returns the number of an owner's letter in a lane: the letter that the owner has in other lanes, unless
// another owner of this lane has it. If all letters are taken, it is that of the owner seen least recently.
func letterOf(owner int, last []drawn) int {
	if i := slices.IndexFunc(last, func(x drawn) bool { return x.owner == owner }); i >= 0 {
		return last[i].letter
	}
	if len(last) == len(letters) {
		return last[0].letter
	}
	letter := owner % len(letters)
	for slices.ContainsFunc(last, func(x drawn) bool { return x.letter == letter }) {
		letter = (letter + 1) % len(letters)
	}
	return letter
}

// holder returns the name of the current holder, "" if the lock is free.
func (n *lane) holder() string {
	if k := len(n.Holds); k > 0 && n.Holds[k-1].Lasts() {
		return n.Holds[k-1].Holder.Name()
	}
	return ""
}

// names returns the name of each hold's owner.
func (n *lane) names() []string {
	return mapped(n.Holds, func(h *holds.Hold) string { return h.Holder.Name() })
}

// readers returns the names of the clients with current shared holds.
func (n *lane) readers() (names []string) {
	for _, h := range n.Holds {
		if h.Shared && h.Lasts() {
			names = append(names, h.Holder.Name())
		}
	}
	slices.SortFunc(names, keyspace.CompareNames)
	return names
}

// busy returns the fraction of a window in which the lock was held. With dead, a hold whose client died lasts
// until the next one begins.
func (n *lane) busy(v timeWindow, dead bool) float64 {
	var held time.Duration
	end := v.from // end of the time counted so far
	for i, h := range n.Holds {
		a, b := keyspace.Later(h.From.At, end), keyspace.Earliest(h.Until(v.to), v.to)
		if dead && h.End.Kind == keyspace.Vanished {
			if b = v.to; i+1 < len(n.Holds) {
				b = keyspace.Earliest(n.Holds[i+1].From.At, b)
			}
		}
		if b.After(a) {
			held += b.Sub(a)
			end = b
		}
	}
	return float64(held) / float64(v.to.Sub(v.from))
}

// timeWindow is a time span; that of a strip is w cells wide.
type timeWindow struct {
	from, to time.Time
	w        int
}

// cell returns the position of a moment, in cells from the left edge.
func (v timeWindow) cell(at time.Time) float64 {
	return float64(at.Sub(v.from)) / float64(v.to.Sub(v.from)) * float64(v.w)
}

// shows reports whether a time span overlaps the window. A zero to is open-ended.
func (v timeWindow) shows(from, to time.Time) bool {
	return from.Before(v.to) && (to.IsZero() || to.After(v.from))
}

// spansOf returns the spans of a strip in drawing order: waits, holds, overlaps. The holds have the
// colour of waiting in the contended parts of the window.
func spansOf(t theme, v timeWindow, waits []timeWindow, shown []drawn, contended []timeWindow, overlaps []timeWindow) []widget.Span {
	var spans []widget.Span
	for _, w := range waits { // holds are drawn over them
		spans = append(spans, widget.Span{From: v.cell(w.from), To: v.cell(w.to), Fill: t.warn, Kind: widget.Empty})
	}
	for _, s := range shown {
		if !v.shows(s.From.At, s.To.At) {
			continue
		}
		letter, look := t.ofOwner(s.letter)
		kind := widget.Solid
		if s.Shared {
			kind = widget.Shared
		}
		to := s.until(v.to)
		spans = append(spans, widget.Span{From: v.cell(s.From.At), To: v.cell(to), Label: letter, On: look.letter, Fill: look.fill, Kind: kind})
		first, _ := slices.BinarySearchFunc(contended, s.From.At, func(w timeWindow, at time.Time) int { return w.to.Compare(at) })
		for k := first; k < len(contended) && contended[k].from.Before(to); k++ {
			from, until := keyspace.Later(contended[k].from, s.From.At), keyspace.Earliest(contended[k].to, to)
			spans = append(spans, widget.Span{From: v.cell(from), To: v.cell(until), Fill: t.warn, Kind: widget.Contended})
		}
	}
	for _, c := range overlaps {
		if v.shows(c.from, c.to) {
			spans = append(spans, widget.Span{From: v.cell(c.from), To: v.cell(c.to), Fill: t.alarm, Kind: widget.Clash})
		}
	}
	return spans
}

// lane returns the lane of a lock, or nil, and the window on the lane's clock: the local clock
// for the load's lanes, the server's for others.
func (m moment) lane(id keyspace.ID, v timeWindow) (*lane, timeWindow) {
	var now *keyspace.Lock
	if l, known := m.model.lock(id); known {
		now = &l
	}
	n := m.timeline.lane(id, now, m.model.snap.At)
	return n, m.onClockOf(n, v)
}

// onClockOf returns a window on the clock of a lane.
func (m moment) onClockOf(n *lane, v timeWindow) timeWindow {
	if n != nil && n.exact {
		v.from, v.to = v.from.Add(-m.model.offset), v.to.Add(-m.model.offset)
	}
	return v
}

// strip draws the past of a lock.
func (s *state) strip(l *widget.Line, id keyspace.ID, v timeWindow) {
	n, v := s.moment().lane(id, v)
	var spans []widget.Span
	if n != nil {
		contended := n.contended(v)
		spans = append(s.run.bands(n, v, s.screen.theme.band), spansOf(s.screen.theme, v, contended, n.drawn(), contended, n.overlaps)...)
	}
	s.screen.glyphs.Strip(l, v.w, spans)
}

// bands returns the times of active faults, to be drawn behind an exact lane.
func (f *loadState) bands(n *lane, v timeWindow, band widget.Style) (spans []widget.Span) {
	if !n.exact {
		return nil
	}
	for _, x := range f.faults {
		if to := cmp.Or(x.to, v.to); v.shows(x.from, to) {
			spans = append(spans, widget.Span{From: v.cell(x.from), To: v.cell(to), Fill: band, Kind: widget.Behind})
		}
	}
	return spans
}

func (m moment) lastMinute(w int) timeWindow {
	return timeWindow{m.now.Add(-time.Minute), m.now, w}
}

// parts calls yield with the part of each wait that is in a window.
func (n *lane) parts(v timeWindow) iter.Seq[holds.Wait] {
	return func(yield func(holds.Wait) bool) {
		for w := range n.Waits {
			if part, ok := w.In(v.from, v.to); ok && !yield(part) {
				return
			}
		}
	}
}

// waiters returns the number of current waiters.
func (n *lane) waiters() (clients int) {
	for w := range n.Waits {
		if w.Lasts() {
			clients += w.Clients
		}
	}
	return clients
}

// waitsIn returns the parts of the waits that are in a window, in the order of their begin.
func (n *lane) waitsIn(v timeWindow) []holds.Wait {
	return slices.SortedFunc(n.parts(v), func(a, b holds.Wait) int {
		return cmp.Or(a.From.At.Compare(b.From.At), strings.Compare(a.Waiter, b.Waiter))
	})
}

// contended returns the parts of a window with waiters, in order.
func (n *lane) contended(v timeWindow) []timeWindow { return joined(n.waitsIn(v)) }

// joined returns the times of waits, in order, without overlaps.
func joined(waits []holds.Wait) (parts []timeWindow) {
	for _, w := range waits {
		if i := len(parts) - 1; i >= 0 && !w.From.At.After(parts[i].to) {
			parts[i].to = keyspace.Later(parts[i].to, w.To.At)
			continue
		}
		parts = append(parts, timeWindow{from: w.From.At, to: w.To.At})
	}
	return parts
}
