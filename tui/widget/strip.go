package widget

import (
	"math"
	"strings"
)

// Span is a part of a strip.
type Span struct {
	From, To float64 // in cells from the left edge; parts outside of the strip are cut off
	Label    string  // glyph for the first cell, or ""
	On       Style   // style of the label
	Fill     Style
	Kind     Filling
}

// Filling is the pattern of a span.
type Filling uint8

// The fillings.
const (
	Solid  Filling = iota
	Shared         // several holds
	Empty          // free, with waiters
	Clash          // holds that must not overlap
	Behind         // highlighted time
)

// Strip draws spans in w cells. In a shared cell, the later span wins. Only another label or a
// Clash replaces a label: a Clash must be visible at any zoom.
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

// put appends cells, with one escape sequence per run of a style.
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

// end returns the glyph of the last cell of a span, which may be partly filled.
func (g Glyphs) end(s Span) string {
	part := int(math.Round(8 * (s.To - math.Floor(s.To))))
	if s.Kind != Solid || part == 0 || g.Across[part] == " " {
		return g.filling(s.Kind)
	}
	return g.Across[part]
}
