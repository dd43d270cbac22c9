package widget

import (
	"cmp"
	"math"
	"reflect"
	"strings"
)

// Glyphs is a set of characters to draw with. Each glyph is one cell wide. The tags have the glyphs of the sets by their
// names.
type Glyphs struct {
	Ellipsis  string    `block:"…" ascii:"~"`                 // replaces omitted text
	Rule      string    `block:"─" ascii:"-"`                 // horizontal line
	Across    [9]string `block:" ▏▎▍▌▋▊▉█" ascii:"    ---=#"` // from empty to full, filled from the left
	Upward    [9]string `block:" ▁▂▃▄▅▆▇█" ascii:" ...::||#"` // from empty to full, filled from below
	Cursor    string    `block:"▌" ascii:">"`                 // selected row
	Thumb     string    `block:"▐" ascii:"|"`                 // thumb of a scroll bar
	Up        string    `block:"▲" ascii:"^"`                 // directions
	Down      string    `block:"▼" ascii:"v"`                 // directions
	Dot       string    `block:"●" ascii:"*"`                 // full
	Ring      string    `block:"○" ascii:"o"`                 // empty
	Half      string    `block:"◐" ascii:"%"`                 // shared
	Diamond   string    `block:"◆" ascii:"#"`
	Dotted    string    `block:"◌" ascii:"."` // expected
	Alert     string    `block:"▲" ascii:"!"`
	Cross     string    `block:"✗" ascii:"x"`
	Play      string    `block:"▶" ascii:">"` // playing
	Paused    string    `block:"‖" ascii:"="` // paused
	Check     string    `block:"✓" ascii:"+"`
	Frozen    string    `block:"◇" ascii:"="` // client that does not run
	CutOff    string    `block:"⊘" ascii:"/"` // client without a connection
	Shared    string    `block:"▒" ascii:"%"` // fill of shared holds
	Dead      string    `block:"✝" ascii:"+"` // sign of a dead client
	Contended string    `block:"▓" ascii:"&"` // fill of holds while others wait
	Dashed    string    `block:"┄" ascii:"."` // fill of a free lock with waiters
	Clash     string    `block:"!" ascii:"!"` // fill of overlapping holds
	Behind    string    `block:"░" ascii:":"` // fill of a highlighted time
	Between   string    `block:"·" ascii:"|"` // separator in a line
	Point     string    `block:"·" ascii:"."` // at rest
	None      string    `block:"–" ascii:"-"` // no value
	Times     string    `block:"×" ascii:"x"`
	AtLeast   string    `block:"≥" ascii:">"` // prefix of a lower bound
	AtMost    string    `block:"≤" ascii:"<"` // prefix of an upper bound
	Spell     bool      `ascii:"yes"`         // write arrows and the like in ASCII
}

// spelled has what a set with Spell writes instead of arrows and the like.
var spelled = strings.NewReplacer("←", "<", "→", ">", "↑", "Up", "↓", "Down", "…", "..")

// Word returns text with arrows and similar characters replaced for this set.
func (g Glyphs) Word(text string) string {
	if g.Spell {
		return spelled.Replace(text)
	}
	return text
}

// The glyphs of both sets, in blocks and in ASCII.
var blocks, plain = glyphsOf("block"), glyphsOf("ascii")

// glyphsOf returns a set by its name in the tags.
func glyphsOf(name string) (g Glyphs) {
	fields := reflect.ValueOf(&g).Elem()
	for i := range fields.NumField() {
		glyphs := fields.Type().Field(i).Tag.Get(name)
		switch to := fields.Field(i).Addr().Interface().(type) {
		case *string:
			*to = glyphs
		case *[9]string:
			copy(to[:], strings.Split(glyphs, ""))
		case *bool:
			*to = glyphs != ""
		}
	}
	return g
}

// Blocks returns glyphs that every Unicode terminal has.
func Blocks() Glyphs { return blocks }

// ASCII returns glyphs for terminals without Unicode.
func ASCII() Glyphs { return plain }

// GlyphSets lists the names for GlyphsNamed; the first is the default.
func GlyphSets() []string { return []string{"block", "ascii"} }

// GlyphsNamed returns a set by name. It returns the default for a name that it does not know.
func GlyphsNamed(name string) Glyphs {
	if name == "ascii" {
		return ASCII()
	}
	return Blocks()
}

// Bar draws a bar for fraction (0 to 1) of w cells, in eighths of a cell, without trailing
// blanks.
func (g Glyphs) Bar(fraction float64, w int) string {
	n := eighths(fraction, w)
	bar := strings.Repeat(g.Across[8], n/8)
	if n%8 == 0 || g.Across[n%8] == " " {
		return bar
	}
	return bar + g.Across[n%8]
}

// eighths returns fraction of w cells in eighths of a cell. It returns at least 1 for a
// positive fraction.
func eighths(fraction float64, w int) int {
	if !(fraction > 0) || w <= 0 { // includes NaN
		return 0
	}
	return max(1, int(math.Round(min(fraction, 1)*float64(8*w))))
}

// Scrollbar returns the lines of a scroll bar's thumb, from first up to but not including end, if n
// of total lines are visible from top on. It returns 0, 0 if all lines are visible.
func Scrollbar(top, n, total int) (first, end int) {
	if n <= 0 || total <= n {
		return 0, 0
	}
	size := max(1, n*n/total)
	first = min(top*n/total, n-size)
	if top+n >= total {
		first = n - size
	}
	return first, first + size
}

// Chart draws values as columns in h lines of w cells. top is the value of a full column. The
// last value is at the right edge. Values that do not fit are dropped from the start.
func (g Glyphs) Chart(values []float64, top float64, w, h int) []string {
	if w <= 0 || h <= 0 {
		return nil
	}
	values = values[max(0, len(values)-w):]
	heights := make([]int, len(values))
	for i, v := range values {
		if top > 0 {
			heights[i] = eighths(v/top, h)
		}
	}
	margin := strings.Repeat(" ", w-len(values))
	lines := make([]string, h)
	for row := range lines {
		var b strings.Builder
		b.WriteString(margin)
		below := 8 * (h - 1 - row)
		for _, n := range heights {
			b.WriteString(g.Upward[min(max(n-below, 0), 8)])
		}
		lines[row] = b.String()
	}
	return lines
}

// RoundUp returns the next number for an axis label: 1, 2, 3, 4, 5, 6 or 8 times a power of
// ten, and 1 for all v below 1.
func RoundUp(v float64) float64 {
	for decade := 1.0; decade < 1e15; decade *= 10 {
		for _, step := range [...]float64{1, 2, 3, 4, 5, 6, 8} {
			if v <= step*decade {
				return step * decade
			}
		}
	}
	return v
}

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
	Solid     Filling = iota
	Shared            // several holds
	Contended         // holds while others wait
	Empty             // free, with waiters
	Clash             // holds that must not overlap
	Behind            // highlighted time
)

// Strip draws spans in w cells. In a shared cell, the later span wins. Only another label or a
// Clash replaces a label: a Clash must be visible at any zoom. The label of a Shared span is in
// the first cell of the span that has no label yet.
func (g Glyphs) Strip(l *Line, w int, spans []Span) {
	cells := make([]Cell, max(w, 0))
	labelled := make([]bool, len(cells))
	for _, s := range spans {
		from, to := int(math.Floor(s.From)), int(math.Ceil(s.To))
		label := max(from, 0)
		for s.Kind == Shared && label < min(to, len(cells))-1 && labelled[label] {
			label++
		}
		for x := max(from, 0); x < min(to, len(cells)); x++ {
			switch {
			case x == label && s.Label != "":
				cells[x], labelled[x] = Cell{s.On, s.Label}, true
			case labelled[x] && s.Kind != Clash:
			case x == to-1:
				cells[x] = Cell{s.Fill, g.end(s)}
			default:
				cells[x] = Cell{s.Fill, g.filling(s.Kind)}
			}
		}
	}
	for _, c := range cells {
		l.Put(c.Style, cmp.Or(c.Text, " "))
	}
}

func (g Glyphs) filling(k Filling) string {
	return [...]string{Solid: g.Across[8], Shared: g.Shared, Contended: g.Contended, Empty: g.Dashed, Clash: g.Clash, Behind: g.Behind}[k]
}

// end returns the glyph of the last cell of a span, which may be partly filled.
func (g Glyphs) end(s Span) string {
	part := int(math.Round(8 * (s.To - math.Floor(s.To))))
	if s.Kind != Solid || part == 0 || g.Across[part] == " " {
		return g.filling(s.Kind)
	}
	return g.Across[part]
}
