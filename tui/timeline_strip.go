package tui

import (
	"time"

	"locktop/keyspace"
	"locktop/tui/widget"
)

// timeWindow is the time that a strip shows, in so many cells.
type timeWindow struct {
	from, to time.Time
	w        int
}

// cell is where a moment stands, in cells from the left edge.
func (v timeWindow) cell(at time.Time) float64 {
	return float64(at.Sub(v.from)) / float64(v.to.Sub(v.from)) * float64(v.w)
}

// shows reports whether any of a time is in the window.
func (v timeWindow) shows(from, to time.Time) bool {
	return from.Before(v.to) && (to.IsZero() || to.After(v.from))
}

// spans are what there is to draw of a lane, the most important last: free with
// waiters, held, held by two who must not.
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
		letter, look := t.ofOwner(s.owner)
		kind := widget.Solid
		if s.mode == keyspace.Read {
			kind = widget.Shared
		}
		spans = append(spans, widget.Span{From: v.cell(s.from), To: v.cell(s.until(v.to)), Label: letter, On: look.letter, Fill: look.fill, Kind: kind})
	}
	for _, c := range n.overlaps {
		if v.shows(c.from, c.to) {
			spans = append(spans, widget.Span{From: v.cell(c.from), To: v.cell(c.to), Fill: t.alarm, Kind: widget.Clash})
		}
	}
	return spans
}

// until is the end of a hold, now if it goes on.
func (s *timelineHold) until(now time.Time) time.Time {
	if s.to.IsZero() || s.to.After(now) {
		return now
	}
	return s.to
}

// waits are the times in which somebody waited. Holds are drawn over them.
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

// overlap is a time in which two held a lock that only one may hold.
type overlap struct {
	from, to time.Time
	what     string // more about it, in a sentence
}

// lane is what is known of a lock, and the window to see it through: lanes of
// the load are on our clock, all others on the server's.
func (s *state) lane(id keyspace.ID, v timeWindow) (*lane, timeWindow) {
	n := s.chronicle.of(id)
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
	s.glyphs.Strip(l, widget.Style{}, v.w, append(behind, n.spans(s.theme, v)...))
}

// faultBands are the times in which something was wrong with the load, behind the
// lanes; v is a window on our clock.
func (s *state) faultBands(v timeWindow) []widget.Span {
	var spans []widget.Span
	for _, x := range s.faults {
		to := x.to
		if to.IsZero() {
			to = v.to
		}
		if v.shows(x.from, to) {
			spans = append(spans, widget.Span{From: v.cell(x.from), To: v.cell(to), Fill: s.theme.band, Kind: widget.Behind})
		}
	}
	return spans
}

// lastMinute is the last minute.
func (s *state) lastMinute(w int) timeWindow {
	now := s.clock()
	return timeWindow{now.Add(-time.Minute), now, w}
}
