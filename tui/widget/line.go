// Package widget draws tables, bars and charts as text. It does not know what they show.
//
// The order is always the same: [Plain] makes text safe, a fit function sets its width, a
// [Line] adds the style. Styled text is never measured or cut.
package widget

import "strings"

// Style is the style of text. The zero value is the terminal's default.
type Style struct{ on string }

const off = "\x1b[0m"

// SGR returns a Style from the parameters of an SGR sequence ("select graphic rendition"), such
// as "1;31". Empty params return the zero Style.
func SGR(params string) Style {
	if params == "" {
		return Style{}
	}
	return Style{on: "\x1b[0;" + params + "m"}
}

// Line builds one line of a fixed width.
//
// It writes an escape sequence only where the style changes. A sequence per cell would cost 200
// times as much.
type Line struct {
	b     strings.Builder
	width int
	used  int
	style Style
}

// NewLine begins a line of w cells.
func NewLine(w int) *Line {
	l := &Line{width: max(w, 0)}
	l.b.Grow(l.width + 64)
	return l
}

// Rest returns the number of cells left.
func (l *Line) Rest() int { return l.width - l.used }

// Put appends text and cuts off what does not fit.
func (l *Line) Put(st Style, text string) *Line {
	n := Width(text)
	if n > l.Rest() {
		text = take(text, l.Rest())
		n = Width(text)
	}
	if n == 0 {
		return l
	}
	l.setStyle(st)
	l.b.WriteString(text)
	l.used += n
	return l
}

// Pad appends n blanks.
func (l *Line) Pad(st Style, n int) *Line {
	n = min(n, l.Rest())
	if n <= 0 {
		return l
	}
	l.setStyle(st)
	for range n {
		l.b.WriteByte(' ')
	}
	l.used += n
	return l
}

// PadTo appends blanks up to column col, counted from 0.
func (l *Line) PadTo(st Style, col int) *Line { return l.Pad(st, col-l.used) }

// String returns the line, padded with blanks to its width, with the default style at its end.
func (l *Line) String() string {
	l.Pad(Style{}, l.Rest())
	l.setStyle(Style{})
	return l.b.String()
}

func (l *Line) setStyle(st Style) {
	if st == l.style {
		return
	}
	l.style = st
	if st.on == "" {
		l.b.WriteString(off)
		return
	}
	l.b.WriteString(st.on)
}

// JoinHorizontal puts two blocks side by side. The lines of left are w cells wide, those of right v
// cells. Blanks replace missing lines.
func JoinHorizontal(left []string, w int, right []string, v int) []string {
	lines := make([]string, max(len(left), len(right)))
	for i := range lines {
		lines[i] = lineOr(left, i, w) + lineOr(right, i, v)
	}
	return lines
}

func lineOr(lines []string, i, w int) string {
	if i < len(lines) {
		return lines[i]
	}
	return strings.Repeat(" ", max(w, 0))
}
