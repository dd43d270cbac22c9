package widget

import (
	"math"
	"strings"
)

// Span is a stretch of a strip.
type Span struct {
	From, To float64 // in cells from the left edge; parts outside of the strip are cut off
	Label    string  // one glyph for its first cell, "" for none
	On       Style   // of the label
	Fill     Style
	Kind     Filling
}

// Filling is what a span is made of.
type Filling uint8

// The fillings.
const (
	Solid  Filling = iota
	Shared         // several at once
	Empty          // nothing, though something could be
	Clash          // several at once, and there must not be
	Behind         // a time that stands out
)

// Strip draws spans in w cells. Where spans meet in a cell, the later one in the
// list wins; but a label is not overwritten by what merely goes on, other than by a
// clash, which must be seen at any zoom.
func (g Glyphs) Strip(l *Line, blank Style, w int, spans []Span) {
	cells := make([]Cell, max(w, 0))
	labelled := make([]bool, len(cells))
	for _, s := range spans {
		from, to := int(math.Floor(s.From)), int(math.Ceil(s.To))
		for x := max(from, 0); x < min(to, len(cells)); x++ {
			switch {
			case x == max(from, 0) && s.Label != "":
				cells[x], labelled[x] = Cell{s.On, s.Label}, true
			case labelled[x] && s.Kind != Clash:
			case x == to-1:
				cells[x] = Cell{s.Fill, g.end(s)}
			default:
				cells[x] = Cell{s.Fill, g.filling(s.Kind)}
			}
		}
	}
	put(l, blank, cells)
}

// put appends cells as runs.
func put(l *Line, blank Style, cells []Cell) {
	var run strings.Builder
	for i := 0; i < len(cells); {
		st := cells[i].Style
		if cells[i].Text == "" {
			st = blank
		}
		for ; i < len(cells); i++ {
			text, style := cells[i].Text, cells[i].Style
			if text == "" {
				text, style = " ", blank
			}
			if style != st {
				break
			}
			run.WriteString(text)
		}
		l.Put(st, run.String())
		run.Reset()
	}
}

func (g Glyphs) filling(k Filling) string {
	switch k {
	case Shared:
		return g.Shared
	case Empty:
		return g.Dashed
	case Clash:
		return g.Clash
	case Behind:
		return g.Behind
	default:
		return g.Across[8]
	}
}

// end is the last cell of a span, which it may fill in part only.
func (g Glyphs) end(s Span) string {
	part := int(math.Round(8 * (s.To - math.Floor(s.To))))
	if s.Kind != Solid || part == 0 || g.Across[part] == " " {
		return g.filling(s.Kind)
	}
	return g.Across[part]
}
