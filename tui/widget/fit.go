package widget

import (
	"strings"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
)

// Width is the number of cells that s takes. s is text without escape
// sequences, such as comes out of [Plain].
func Width(s string) int {
	n, done := simpleWidth(s)
	s = s[done:]
	for s != "" {
		cluster, w := ansi.FirstGraphemeCluster(s, ansi.GraphemeWidth)
		s, n = s[len(cluster):], n+w
	}
	return n
}

// Fit returns s in exactly w cells: filled up with blanks on the right, or
// shortened in the middle, since keys and names differ at their ends.
func Fit(s string, w int) string { return Blocks().Fit(s, w) }

// Fit is [Fit] with this set's sign for what was left out.
func (g Glyphs) Fit(s string, w int) string {
	if w <= 0 {
		return ""
	}
	if n := Width(s); n <= w {
		return pad(s, w-n)
	}
	tail := (w - 1) / 2
	head := take(s, w-1-tail)
	text := head + g.Ellipsis + takeLast(s, tail)
	return pad(text, w-Width(text))
}

// FitEnd returns s in exactly w cells, shortened at its end: for sentences.
func (g Glyphs) FitEnd(s string, w int) string {
	if w <= 0 {
		return ""
	}
	if n := Width(s); n <= w {
		return pad(s, w-n)
	}
	text := take(s, w-1) + g.Ellipsis
	return pad(text, w-Width(text))
}

// FitRight returns s in exactly w cells, against the right edge: for figures.
func (g Glyphs) FitRight(s string, w int) string {
	if n := Width(s); n <= w {
		return strings.Repeat(" ", w-n) + s
	}
	return g.FitEnd(s, w)
}

// simpleWidth is the width of the beginning of s that needs no tables: letters
// of ASCII, lines and blocks. The cell before something else is left to that,
// since it might belong to it.
func simpleWidth(s string) (cells, bytes int) {
	last := 0
	for i, r := range s {
		if r >= utf8.RuneSelf && (r < 0x2500 || r > 0x259f) {
			return max(0, cells-1), last
		}
		cells, last = cells+1, i
	}
	return cells, len(s)
}

// take returns the longest beginning of s that fits into w cells.
func take(s string, w int) string {
	end, used := 0, 0
	for end < len(s) {
		cluster, n := ansi.FirstGraphemeCluster(s[end:], ansi.GraphemeWidth)
		if used+n > w {
			break
		}
		end, used = end+len(cluster), used+n
	}
	return s[:end]
}

// takeLast returns the longest end of s that fits into w cells.
func takeLast(s string, w int) string {
	if isASCII(s) {
		return s[len(s)-w:]
	}
	rest := Width(s)
	for rest > w {
		cluster, n := ansi.FirstGraphemeCluster(s, ansi.GraphemeWidth)
		s, rest = s[len(cluster):], rest-n
	}
	return s
}

// Break cuts s into pieces of w cells, the last one shorter: for what must be
// read to its end. A piece is never empty, nor is the list.
func Break(s string, w int) []string {
	var all []string
	for Width(s) > w {
		piece := take(s, w)
		if piece == "" { // a cluster that is wider than all there is
			break
		}
		all, s = append(all, piece), s[len(piece):]
	}
	return append(all, s)
}

func pad(s string, n int) string {
	if n <= 0 {
		return s
	}
	return s + strings.Repeat(" ", n)
}

func isASCII(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}
