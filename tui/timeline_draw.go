package tui

import (
	"cmp"
	"iter"
	"slices"
	"strings"
	"time"

	"locktop/keyspace"
	"locktop/keyspace/holds"
	"locktop/tui/widget"
)

// timeWindow is the time span of a strip, w cells wide.
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
func spansOf(t theme, v timeWindow, waits []timeWindow, shown []drawn, contended []timeWindow, overlaps []overlap) []widget.Span {
	var spans []widget.Span
	for _, w := range waits { // holds are drawn over them
		spans = append(spans, widget.Span{From: v.cell(w.from), To: v.cell(w.to), Fill: t.warn, Kind: widget.Empty})
	}
	for _, s := range shown {
		if !v.shows(s.begin(), s.end()) {
			continue
		}
		letter, look := t.ofOwner(s.letter)
		kind := widget.Solid
		if s.Shared {
			kind = widget.Shared
		}
		to := s.until(v.to)
		spans = append(spans, widget.Span{From: v.cell(s.begin()), To: v.cell(to), Label: letter, On: look.letter, Fill: look.fill, Kind: kind})
		first, _ := slices.BinarySearchFunc(contended, s.begin(), func(w timeWindow, at time.Time) int { return w.to.Compare(at) })
		for k := first; k < len(contended) && contended[k].from.Before(to); k++ {
			from, until := later(contended[k].from, s.begin()), earlier(contended[k].to, to)
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
	s.screen.glyphs.Strip(l, widget.Style{}, v.w, spans)
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
			parts[i].to = later(parts[i].to, w.To.At)
			continue
		}
		parts = append(parts, timeWindow{from: w.From.At, to: w.To.At})
	}
	return parts
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
