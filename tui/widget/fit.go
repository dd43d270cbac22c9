package widget

import (
	"strings"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
)

// Width returns the number of cells of s. s must not contain escape sequences; [Plain] returns
// such text.
func Width(s string) int {
	n := 0
	for {
		cells, done := simpleWidth(s)
		if s, n = s[done:], n+cells; s == "" {
			return n
		}
		cluster, w := ansi.FirstGraphemeCluster(s, ansi.GraphemeWidth)
		s, n = s[len(cluster):], n+w
	}
}

// Fit returns s in exactly w cells. It pads s with blanks on the right, or shortens s in the
// middle, because keys and names often differ at their ends.
func Fit(s string, w int) string { return Blocks().Fit(s, w) }

// Fit is [Fit] with the ellipsis of this set.
func (g Glyphs) Fit(s string, w int) string {
	if w <= 0 {
		return ""
	}
	if n := Width(s); n <= w {
		return pad(s, w-n)
	}
	tail := (w - 1) / 2
	text := ansi.Truncate(s, w-1-tail, "") + g.Ellipsis + takeLast(s, tail)
	return pad(text, w-Width(text))
}

// FitEnd returns s in exactly w cells. It pads s on the right, or shortens s at its end.
func (g Glyphs) FitEnd(s string, w int) string {
	if w <= 0 {
		return ""
	}
	if n := Width(s); n <= w {
		return pad(s, w-n)
	}
	text := ansi.Truncate(s, w, g.Ellipsis)
	return pad(text, w-Width(text))
}

// FitRight returns s in exactly w cells. It pads s on the left, or shortens s at its end.
func (g Glyphs) FitRight(s string, w int) string {
	if n := Width(s); n <= w {
		return strings.Repeat(" ", w-n) + s
	}
	return g.FitEnd(s, w)
}

// simpleWidth returns the width of the longest prefix of s that contains only simple characters. It
// excludes the character before any other one, because the two can form a grapheme cluster.
func simpleWidth(s string) (cells, bytes int) {
	last := 0
	for i, r := range s {
		if !simple(r) {
			return max(0, cells-1), last
		}
		cells, last = cells+1, i
	}
	return cells, len(s)
}

// simple reports whether a character is one cell wide, also beside another simple one. These are most
// characters that the screen draws.
func simple(r rune) bool {
	switch {
	case r < utf8.RuneSelf, r >= 0x2500 && r <= 0x259f: // ASCII, lines and blocks
		return true
	case r >= 0xb0 && r <= 0xff, r >= 0x2010 && r <= 0x2027: // Latin letters, dashes and dots
		return true
	default: // arrows and circles
		return r >= 0x2190 && r <= 0x2193 || r >= 0x25c1 && r <= 0x25ef
	}
}

// takeLast returns the longest suffix of s that fits into w cells.
func takeLast(s string, w int) string {
	rest := Width(s)
	if rest == len(s) { // ASCII
		return s[len(s)-w:]
	}
	for rest > w {
		cluster, n := ansi.FirstGraphemeCluster(s, ansi.GraphemeWidth)
		s, rest = s[len(cluster):], rest-n
	}
	return s
}

// Wrap breaks a text into at most n lines of w cells. An ellipsis replaces what does not fit.
func (g Glyphs) Wrap(text string, w, n int) []string {
	var all []string
	words := strings.Fields(text)
	if n <= 0 {
		return nil
	}
	for len(words) > 0 && len(all) < n-1 {
		line := words[0]
		for words = words[1:]; len(words) > 0 && Width(line)+1+Width(words[0]) <= w; words = words[1:] {
			line += " " + words[0]
		}
		all = append(all, line)
	}
	if len(words) == 0 {
		return all
	}
	return append(all, g.FitEnd(strings.Join(words, " "), w))
}

// Chunk splits s into pieces of at most w cells. A grapheme cluster wider than w is a piece. It returns at least one piece.
func Chunk(s string, w int) []string {
	return strings.Split(ansi.Hardwrap(s, w, true), "\n")
}

func pad(s string, n int) string { return s + strings.Repeat(" ", n) }
