package widget

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
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
