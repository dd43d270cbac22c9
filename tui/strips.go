package tui

import (
	"time"

	"locktop/keyspace"
	"locktop/tui/widget"
)

// window is the time that a strip shows, in so many cells.
type window struct {
	from, to time.Time
	w        int
}

// cell is where a moment stands, in cells from the left edge.
func (v window) cell(at time.Time) float64 {
	return float64(at.Sub(v.from)) / float64(v.to.Sub(v.from)) * float64(v.w)
}

// shows reports whether any of a time is in the window.
func (v window) shows(from, to time.Time) bool {
	return from.Before(v.to) && (to.IsZero() || to.After(v.from))
}

// spans are what there is to draw of a lane, the most important last: free with
// waiters, held, held by two who must not.
func (n *lane) spans(t theme, v window) []widget.Span {
	if n == nil {
		return nil
	}
	spans := n.waits(t, v)
	for i := range n.stretches {
		s := &n.stretches[i]
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
	for _, c := range n.clashes(v.to) {
		if v.shows(c.from, c.to) {
			spans = append(spans, widget.Span{From: v.cell(c.from), To: v.cell(c.to), Fill: t.alarm, Kind: widget.Clash})
		}
	}
	return spans
}

// until is the end of a hold, now if it goes on.
func (s *stretch) until(now time.Time) time.Time {
	if s.to.IsZero() || s.to.After(now) {
		return now
	}
	return s.to
}

// waits are the times in which somebody waited. Holds are drawn over them.
func (n *lane) waits(t theme, v window) []widget.Span {
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

// clash is a time in which two held a lock that only one may hold.
type clash struct {
	from, to time.Time
	a, b     string // their names
}

// clashes are those of a lane, by their beginning. Only a lane from those who
// held the lock can have any: at the server, a lock has the holders it has.
func (n *lane) clashes(now time.Time) []clash {
	var all []clash
	if !n.exact {
		return nil
	}
	for i := range n.stretches {
		a := &n.stretches[i]
		for j := i + 1; j < len(n.stretches); j++ {
			b := &n.stretches[j]
			if !b.from.Before(a.until(now)) {
				break
			}
			end := a.until(now)
			if e := b.until(now); e.Before(end) {
				end = e
			}
			if a.who != b.who && (a.mode != keyspace.Read || b.mode != keyspace.Read) && b.from.Before(end) {
				all = append(all, clash{b.from, end, a.name, b.name})
			}
		}
	}
	return all
}

// strip draws the past of a lock in w cells.
func (s *state) strip(l *widget.Line, id keyspace.ID, v window) {
	s.glyphs.Strip(l, widget.Style{}, v.w, s.chronicle.lanes[id].spans(s.theme, v))
}

// past60 is the last minute.
func (s *state) past60(w int) window {
	now := s.clock()
	return window{now.Add(-time.Minute), now, w}
}
