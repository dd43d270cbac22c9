package tui

import (
	"cmp"
	"slices"
	"time"

	"locktop/keyspace"
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

// spans returns the spans of a lane in drawing order: waits, holds, overlaps.
func (n *lane) spans(t theme, v timeWindow) []widget.Span {
	if n == nil {
		return nil
	}
	spans := n.waits(t, v)
	for i := range n.holds {
		s := &n.holds[i]
		if !v.shows(s.from, s.to) {
			continue
		}
		letter, look := t.ofOwner(s.letter)
		kind := widget.Solid
		if s.shared {
			kind = widget.Shared
		}
		spans = append(spans, widget.Span{From: v.cell(s.from), To: v.cell(s.until(v.to)), Label: letter, On: look.letter, Fill: look.fill, Kind: kind})
		for _, w := range n.waitedFor(s.from, s.until(v.to)) {
			spans = append(spans, widget.Span{From: v.cell(w.from), To: v.cell(w.to), Fill: t.warn, Kind: kind})
		}
	}
	for _, c := range n.overlaps {
		if v.shows(c.from, c.to) {
			spans = append(spans, widget.Span{From: v.cell(c.from), To: v.cell(c.to), Fill: t.alarm, Kind: widget.Clash})
		}
	}
	return spans
}

// until returns the end of a hold, at most now.
func (s *timelineHold) until(now time.Time) time.Time {
	if s.to.IsZero() || s.to.After(now) {
		return now
	}
	return s.to
}

// waits returns the times with waiters. Holds are drawn over them.
func (n *lane) waits(t theme, v timeWindow) []widget.Span {
	var spans []widget.Span
	for i, q := range n.queue {
		end := v.to
		if i+1 < len(n.queue) {
			end = n.queue[i+1].at
		}
		if q.n > 0 && v.shows(q.at, end) {
			spans = append(spans, widget.Span{From: v.cell(q.at), To: v.cell(end), Fill: t.warn, Kind: widget.Empty})
		}
	}
	return spans
}

// waitedFor returns the parts of the time from from to to with waiters.
func (n *lane) waitedFor(from, to time.Time) (parts []timeWindow) {
	first, _ := slices.BinarySearchFunc(n.queue, from, func(q waiterCount, at time.Time) int { return q.at.Compare(at) })
	for i := max(0, first-1); i < len(n.queue) && n.queue[i].at.Before(to); i++ {
		if n.queue[i].n == 0 {
			continue
		}
		part := timeWindow{from: n.queue[i].at, to: to}
		if part.from.Before(from) {
			part.from = from
		}
		if i+1 < len(n.queue) && n.queue[i+1].at.Before(to) {
			part.to = n.queue[i+1].at
		}
		if part.to.After(part.from) {
			parts = append(parts, part)
		}
	}
	return parts
}

// overlap is a time in which two clients held an exclusive lock.
type overlap struct {
	from, to time.Time
}

// lane returns the lane of a lock, or nil, and the window on the lane's clock: the local clock
// for the load's lanes, the server's for others.
func (s *state) lane(id keyspace.ID, v timeWindow) (*lane, timeWindow) {
	n := s.timeline.of(id)
	if n == nil {
		if l, known := s.current().lock(id); known {
			n = s.timeline.found(&l, s.current().snap.At)
		}
	}
	if n != nil && n.exact {
		v.from, v.to = v.from.Add(-s.current().offset), v.to.Add(-s.current().offset)
	}
	return n, v
}

// strip draws the past of a lock.
func (s *state) strip(l *widget.Line, id keyspace.ID, v timeWindow) {
	n, v := s.lane(id, v)
	var behind []widget.Span
	if n != nil && n.exact {
		behind = s.faultBands(v)
	}
	s.screen.glyphs.Strip(l, widget.Style{}, v.w, append(behind, n.spans(s.screen.theme, v)...))
}

// faultBands returns the times of active faults, to be drawn behind a lane. v is on the local
// clock.
func (s *state) faultBands(v timeWindow) []widget.Span {
	var spans []widget.Span
	for _, x := range s.run.faults {
		if to := cmp.Or(x.to, v.to); v.shows(x.from, to) {
			spans = append(spans, widget.Span{From: v.cell(x.from), To: v.cell(to), Fill: s.screen.theme.band, Kind: widget.Behind})
		}
	}
	return spans
}

func (s *state) lastMinute(w int) timeWindow {
	now := s.clock()
	return timeWindow{now.Add(-time.Minute), now, w}
}
