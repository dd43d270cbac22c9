package clienttest

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"locktop/internal/htmlpage"
	"locktop/internal/humanize"
)

// Measures of a drawing, in units of its viewBox.
const (
	drawnWidth  = 760.0 // of the whole drawing
	namesWidth  = 120.0 // of the names of the rows
	rightMargin = 20.0  // so that the end of the work is not the edge
	barHeight   = 14.0
	textHeight  = 12.0 // of a line of labels
	rowGap      = 10.0
	charWidth   = 5.8 // of a character of a label, at most on average
	markWidth   = 2.0 // of a moment
)

// drawing is a timeline with the places of everything in it.
type drawing struct {
	began, took time.Duration
	rows        []drawnRow
	violations  []label // across all rows
	height      float64
}

// drawnRow is a client or a server.
type drawnRow struct {
	name   string
	top    float64 // of its bars
	height float64 // with its labels
	spans  []Span
	labels []label
}

// label is a text, with its line below the bars.
type label struct {
	span Span
	text string
	x    float64
	line int
}

// order returns 0 for a client and 1 for a server.
func (r drawnRow) order() int {
	if strings.HasPrefix(r.name, "client-") {
		return 0
	}
	return 1
}

// layOut places spans: a row for each client and below them for each server, in the order
// in which they appear, with as many lines of labels below its bars as it takes to show
// all of them.
func layOut(all []Span) drawing {
	d := drawing{began: math.MaxInt64}
	var violations []Span
	end := time.Duration(math.MinInt64)
	for _, s := range all {
		d.began, end = min(d.began, time.Duration(s.From)), max(end, time.Duration(s.From), time.Duration(s.To))
		if s.Kind == Violated {
			violations = append(violations, s)
			continue
		}
		i := slices.IndexFunc(d.rows, func(r drawnRow) bool { return r.name == s.Row })
		if i < 0 {
			i, d.rows = len(d.rows), append(d.rows, drawnRow{name: s.Row})
		}
		d.rows[i].spans = append(d.rows[i].spans, s)
	}
	d.took = max(end-d.began, time.Microsecond)
	slices.SortStableFunc(d.rows, func(a, b drawnRow) int { return cmp.Compare(a.order(), b.order()) })
	var lines int
	d.violations, lines = d.place(violations)
	d.height = float64(lines) * textHeight
	for i := range d.rows {
		r := &d.rows[i]
		r.labels, lines = d.place(r.spans)
		r.top = d.height + rowGap
		r.height = barHeight + float64(lines)*textHeight
		d.height = r.top + r.height
	}
	d.height += rowGap
	return d
}

// place returns the places of the labels of spans, and the number of their lines. No two
// of them overlap.
func (d drawing) place(spans []Span) (all []label, lines int) {
	var ends []float64 // of each line
	spans = slices.Clone(spans)
	slices.SortStableFunc(spans, func(a, b Span) int { return int(a.From - b.From) })
	for _, s := range spans {
		text := s.text()
		if text == "" {
			continue
		}
		width := charWidth * float64(utf8.RuneCountInString(text)+1)
		x := max(namesWidth, min(d.x(time.Duration(s.From)), drawnWidth-width))
		line := slices.IndexFunc(ends, func(end float64) bool { return end <= x })
		if line < 0 {
			line, ends = len(ends), append(ends, 0)
		}
		ends[line] = x + width
		all = append(all, label{span: s, text: text, x: x, line: line})
	}
	return all, len(ends)
}

// text returns the label of a span in a drawing.
func (s Span) text() string {
	switch {
	case s.Kind == Violated:
		return shortened("▲ "+s.Label, longestLabel)
	case s.Kind == Late && s.Label == "":
		return "lease over"
	}
	return shortened(s.Label, longestLabel)
}

// longestLabel is how many characters of a label are shown.
const longestLabel = 100

// x returns the coordinate of a time.
func (d drawing) x(at time.Duration) float64 {
	return namesWidth + (drawnWidth-namesWidth-rightMargin)*float64(at-d.began)/float64(d.took)
}

// width returns the width of a span: what lasts no time is still visible.
func (d drawing) width(s Span) float64 {
	return max(d.x(time.Duration(s.To))-d.x(time.Duration(s.From)), markWidth)
}

// ticks returns the times of the axis: at most ten, at round numbers.
func (d drawing) ticks() []time.Duration {
	step := time.Microsecond
	for i := 0; d.took/step > 9; i++ {
		step = step * []time.Duration{2, 5, 2}[i%3] / []time.Duration{1, 2, 1}[i%3]
	}
	var all []time.Duration
	for at := (d.began + step - 1) / step * step; at <= d.began+d.took; at += step {
		all = append(all, at)
	}
	return all
}

// draw draws a timeline as SVG: a row for each client and server, the time from left to
// right, and the failure across all rows.
func draw(p *htmlpage.Page, title string, all []Span) {
	if len(all) == 0 {
		return
	}
	d := layOut(all)
	axis := d.height
	p.Put(`<svg class="timeline" viewBox="0 0 %v %v" role="img" aria-label="%v">`, drawnWidth, tenths(axis+24), title)
	for _, t := range d.ticks() {
		x := tenths(d.x(t))
		p.Put(`<path class="tick" d="M%v 0V%v"/><text class="time" x="%v" y="%v">%v</text>`, x, tenths(axis+4), x, tenths(axis+16), humanize.Setting(t))
	}
	for _, l := range d.violations {
		shape(p, Violated, d.x(time.Duration(l.span.From)), 0, d.width(l.span), axis)
	}
	for _, r := range d.rows {
		d.drawRow(p, r)
	}
	for _, l := range d.violations {
		p.Put(`<text class="violation" x="%v" y="%v">%v</text>`, tenths(l.x), tenths(float64(l.line)*textHeight+9), l.text)
	}
	p.Put(`<path class="axis" d="M%v %vH%v"/></svg>`, namesWidth, tenths(axis), drawnWidth)
}

func (d drawing) drawRow(p *htmlpage.Page, r drawnRow) {
	p.Put(`<text class="row" x="4" y="%v">%v</text>`, tenths(r.top+barHeight-3), shortened(r.name, 16))
	for _, kind := range drawOrder {
		for _, s := range r.spans {
			if s.Kind != kind {
				continue
			}
			height := barHeight
			if kind == Faulty {
				height = r.height
			}
			p.Put(`<g><title>%v %v: %v to %v</title>`, s.Kind, s.Label, humanize.Precise(time.Duration(s.From)), humanize.Precise(time.Duration(s.To)))
			shape(p, kind, d.x(time.Duration(s.From)), r.top, d.width(s), height)
			p.Put(`</g>`)
		}
	}
	for _, l := range r.labels {
		p.Put(`<text x="%v" y="%v">%v</text>`, tenths(l.x), tenths(r.top+barHeight+float64(l.line)*textHeight+9), l.text)
	}
}

// drawOrder is the order in which the spans of a row are drawn: the last ones are on top.
var drawOrder = []SpanKind{Faulty, Waiting, Holding, Late, Request, Note, Told}

// shape draws a span in an area.
func shape(p *htmlpage.Page, kind SpanKind, x, y, width, height float64) {
	switch kind {
	case Waiting:
		y, height = y+height/2-2, 4
	case Request:
		y, height = y+height/2-4, 8
	case Told, Note:
		p.Put(`<path class="%v" d="M%v %vl4 6l-4 6l-4 -6z"/>`, kind, tenths(x+width/2), tenths(y+height/2-6))
		return
	case Faulty:
		y, height = y-3, height+4
	}
	p.Put(`<rect class="%v" x="%v" y="%v" width="%v" height="%v"/>`, kind, tenths(x), tenths(y), tenths(width), tenths(height))
}

func tenths(v float64) string { return strconv.FormatFloat(v, 'f', 1, 64) }

// shortened cuts a text after most characters.
func shortened(text string, most int) string {
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	return string([]rune(text)[:most-1]) + "…"
}
