package tui

import "locktop/tui/widget"

// segment is a part of a line. Its text must be escaped by widget.Plain.
type segment struct {
	style    widget.Style
	text     string // "" hides the segment
	priority int    // 0 always stays; of the others, the highest is dropped first
	flex     int    // minimum width in cells, if the text may be shortened; 0 if not
	tight    bool   // followed by one blank instead of segmentGap
}

// gap returns the number of blanks after the segment.
func (p segment) gap() int {
	if p.tight {
		return 1
	}
	return segmentGap
}

// segmentGap is the number of blanks between two segments.
const segmentGap = 2

func (p segment) min() int {
	n := widget.Width(p.text)
	if p.flex > 0 {
		n = min(n, p.flex)
	}
	return n
}

// layoutLine draws segments at the left and right edges of a line except for its last cell. It
// drops segments that do not fit by priority. Flexible segments belong to the left.
func layoutLine(l *widget.Line, g widget.Glyphs, left, right []segment) {
	const edge = 1
	room := l.Rest() - edge + segmentGap
	limit := lastPriority(left, right)
	for limit > 0 && needs(left, limit)+needs(right, limit) > room {
		limit--
	}
	spare := max(0, room-needs(left, limit)-needs(right, limit))
	for _, p := range left {
		spare = put(l, g, p, limit, spare)
	}
	l.Skip(widget.Style{}, l.Rest()-edge+segmentGap-needs(right, limit))
	for _, p := range right {
		spare = put(l, g, p, limit, spare)
	}
}

// put draws a segment with its gap, and returns the remaining spare cells.
func put(l *widget.Line, g widget.Glyphs, p segment, limit, spare int) int {
	if p.text == "" || p.priority > limit {
		return spare
	}
	more := min(spare, widget.Width(p.text)-p.min())
	l.Put(p.style, g.FitEnd(p.text, p.min()+more)).Skip(widget.Style{}, p.gap())
	return spare - more
}

// needs returns the minimum width of the segments up to priority limit, with gaps.
func needs(side []segment, limit int) int {
	n := 0
	for _, p := range side {
		if p.text != "" && p.priority <= limit {
			n += p.min() + p.gap()
		}
	}
	return n
}

func lastPriority(sides ...[]segment) int {
	n := 0
	for _, side := range sides {
		for _, p := range side {
			n = max(n, p.priority)
		}
	}
	return n
}
