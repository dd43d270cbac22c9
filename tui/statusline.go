package tui

import "locktop/tui/widget"

// segment is a piece of a line: text that has been made plain, and what is to
// become of it where there is no room.
type segment struct {
	style    widget.Style
	text     string // "" is no part at all
	priority int    // 0 stays; of the rest, the highest goes first
	flex     int    // may be shortened to so many cells; 0: it may not
	tight    bool   // one blank behind it is enough
}

// gap is the number of blanks behind a part.
func (p segment) gap() int {
	if p.tight {
		return 1
	}
	return segmentGap
}

// segmentGap is the number of blanks between two parts.
const segmentGap = 2

func (p segment) min() int {
	n := widget.Width(p.text)
	if p.flex > 0 {
		n = min(n, p.flex)
	}
	return n
}

// layoutLine fills a line but for its last cell with parts at the left and at the
// right edge, as many as fit by their rank. Flexible parts stand at the left.
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

// put draws one part, with the blanks behind it, and returns the cells that
// remain to be spared.
func put(l *widget.Line, g widget.Glyphs, p segment, limit, spare int) int {
	if p.text == "" || p.priority > limit {
		return spare
	}
	more := min(spare, widget.Width(p.text)-p.min())
	l.Put(p.style, g.FitEnd(p.text, p.min()+more)).Skip(widget.Style{}, p.gap())
	return spare - more
}

// needs is the number of cells that a side takes at least, with the blanks
// behind each part.
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
