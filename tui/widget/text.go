package widget

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
)

// Plain returns any bytes as one line of visible characters, each in its own cells. It escapes
// everything else:
//
//	\n \r \t \\      newline, return, tab, backslash
//	\x1b \x9b \x20   control character, byte that is not UTF-8, blank
//	\u202e           invisible character, or one that changes its neighbours
//	\U000e0041       the same, beyond U+FFFF
//
// Plain escapes blanks at either end and after another blank. The escapes are those of Go
// string literals, so different texts stay different.
func Plain(s string) string {
	i := plainPrefix(s)
	if i == len(s) {
		return s
	}
	var b strings.Builder
	b.Grow(len(s) + 16)
	b.WriteString(s[:i])
	for i < len(s) {
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case r == ' ' && !unnoticed(s, i), visible(r):
			b.WriteString(s[i : i+size])
		default:
			b.WriteString(escape(r))
		}
		i += size
	}
	return b.String()
}

// plainPrefix returns the length of the prefix of s that needs no escapes. It is usually all of
// s, and Plain then does not allocate.
func plainPrefix(s string) int {
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c == ' ' && !unnoticed(s, i) {
			continue
		}
		if c <= ' ' || c == '\\' || c >= 0x7f {
			return i
		}
	}
	return len(s)
}

// unnoticed reports whether the blank at s[i] is hard to notice.
func unnoticed(s string, i int) bool {
	return i == 0 || i == len(s)-1 || s[i-1] == ' '
}

func escape(r rune) string {
	switch {
	case r == '\n':
		return `\n`
	case r == '\r':
		return `\r`
	case r == '\t':
		return `\t`
	case r == '\\':
		return `\\`
	case r < utf8.RuneSelf:
		return fmt.Sprintf(`\x%02x`, r)
	case r <= 0xffff:
		return fmt.Sprintf(`\u%04x`, r)
	default:
		return fmt.Sprintf(`\U%08x`, r)
	}
}

// visible reports whether fonts draw r, independently of its neighbours. Marks, formats,
// controls, private use and spaces are not in the four categories.
func visible(r rune) bool {
	if r < utf8.RuneSelf {
		return r > ' ' && r < 0x7f && r != '\\'
	}
	return unicode.In(r, unicode.L, unicode.N, unicode.P, unicode.S) && !blank(r) && !joins(r)
}

// blank reports whether r is a letter or symbol that fonts draw as nothing.
func blank(r rune) bool {
	switch r {
	case 0x115f, 0x1160, 0x3164, 0xffa0, // fillers of Hangul
		0x2800,           // the Braille pattern without dots
		0x303f,           // ideographic half fill space
		0xfffc,           // object replacement
		0x1d159,          // musical null note head
		0x13441, 0x13442, // Egyptian blanks
		0x1da7f, 0x1da80: // fillers of SignWriting
		return true
	}
	return false
}

// joins reports whether terminals or libraries may draw r together with a neighbour in fewer
// cells than both need alone.
func joins(r rune) bool {
	switch {
	case r >= 0x1100 && r <= 0x11ff, r >= 0xa960 && r <= 0xa97f, r >= 0xd7b0 && r <= 0xd7ff: // conjoining Jamo
	case r == 0x0e33, r == 0x0eb3: // Thai and Lao vowels that attach to a consonant
	case r == 0xff9e, r == 0xff9f: // halfwidth voicing marks
	case r == 0x0d4e, r == 0x111c2, r == 0x111c3, r == 0x1193f, r == 0x11941, // letters that attach to the next one
		r >= 0x11a84 && r <= 0x11a89, r == 0x11d46, r == 0x11f02:
	case r >= 0x1f1e6 && r <= 0x1f1ff: // halves of a flag
	case r >= 0x1f3fb && r <= 0x1f3ff: // skin tones
	default:
		return false
	}
	return true
}

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
	if w > 0 && Width(s) > w {
		tail := (w - 1) / 2
		s = ansi.Truncate(s, w-1-tail, "") + g.Ellipsis + takeLast(s, tail)
	}
	return g.FitEnd(s, w)
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
