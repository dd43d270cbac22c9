package widget

import (
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"

	"locktop/internal/check"
)

// unplain reverses Plain.
func unplain(t *testing.T, s string) string {
	t.Helper()
	var b strings.Builder
	for s != "" {
		r, wide, rest, err := strconv.UnquoteChar(s, 0)
		check.Require(t, err == nil, "reading back %q: %v", s, err)
		if wide || r < utf8.RuneSelf {
			b.WriteRune(r)
		} else {
			b.WriteByte(byte(r))
		}
		s = rest
	}
	return b.String()
}

// Promise P10.
func TestPlainEscapesWhatTerminalsInterpret(t *testing.T) {
	for in, want := range map[string]string{
		"":                       "",
		"lock:orders:4711":       "lock:orders:4711",
		"two words":              "two words",
		" a  b ":                 `\x20a \x20b\x20`,
		"lock:\x1b[2J\x1b]0;x\a": `lock:\x1b[2J\x1b]0;x\x07`,
		"a\nb\rc\td":             `a\nb\rc\td`,
		`a\nb`:                   `a\\nb`,
		"\x9b2J":                 `\x9b2J`,
		"\u009b2J":               `\u009b2J`,
		"\x7f":                   `\x7f`,
		"ok\u202egnp":            `ok\u202egnp`,
		"a\u200bb\ufeffc\u00add": `a\u200bb\ufeffc\u00add`,
		"e\u0301":                `e\u0301`,
		"\u3164\u2800\ue000":     `\u3164\u2800\ue000`,
		"\U000e0041\ufe0f":       `\U000e0041\ufe0f`,
		"a\u00a0b\u3000c":        `a\u00a0b\u3000c`,
		"x\u2028y\u2029z\u0085":  `x\u2028y\u2029z\u0085`,
		"\xff\xfe":               `\xff\xfe`,
		"\xed\xa0\x80":           `\xed\xa0\x80`,
		"\ufffd":                 "\ufffd",
		"Zürich 東京 замок 🔒":      "Zürich 東京 замок 🔒",
	} {
		got := Plain(in)
		check.True(t, got == want, "Plain(%q) = %q, want %q", in, got, want)
		check.True(t, unplain(t, got) == in, "%q reads back as %q", in, unplain(t, got))
	}
}

func TestPlainLeavesOrdinaryTextAlone(t *testing.T) {
	s := "lock:orders:4711 by worker-7"
	check.Equal(t, testing.AllocsPerRun(100, func() { Plain(s) }), 0, "allocations for text that needs no change")
}

// Every rune that Plain accepts has a width of one or two cells, and the same width beside any other rune.
func TestPlainRunesHaveTheirOwnCells(t *testing.T) {
	neighbours := []string{"a", "가", "각", "👍", "ก", "क", "ー"}
	passed := 0
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if r>>16 > 3 && r>>16 != 14 && r%64 != 0 {
			continue // planes without characters, or for private use
		}
		s := string(r)
		if !utf8.ValidRune(r) || Plain(s) != s {
			continue
		}
		passed++
		if unicode.Is(unicode.Han, r) && r%64 != 0 {
			continue // a hundred thousand runes of one kind
		}
		if w := ansi.StringWidth(s); w != 1 && w != 2 {
			t.Errorf("%U takes %d cells", r, w)
		}
		for _, n := range append(neighbours, s) {
			if first, _ := ansi.FirstGraphemeCluster(s+n, ansi.GraphemeWidth); first != s {
				t.Errorf("%U joins the %q behind it", r, n)
			}
			if first, _ := ansi.FirstGraphemeCluster(n+s, ansi.GraphemeWidth); first != n {
				t.Errorf("%U joins the %q before it", r, n)
			}
		}
	}
	check.AtLeast(t, passed, 100_000, "runes that pass: letters of living languages are among the rest")
}

// Promise P10.
func FuzzPlain(f *testing.F) {
	for _, s := range []string{"", "lock:a", "\x1b[31m", "\x9b", "\u009b", "a\\x1bb", " ", "\u202e", "👩‍👧", "🇩🇪", "\xf0\x9f", "한글", "ก็", "\\"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p := Plain(s)
		got := unplain(t, p)
		check.Require(t, got == s, "%q became %q, which reads back as %q", s, p, got)
		sum := 0
		for _, r := range p {
			check.Require(t, r == ' ' || unicode.In(r, unicode.L, unicode.N, unicode.P, unicode.S), "%q became %q, with %U in it", s, p, r)
			sum += ansi.StringWidth(string(r))
		}
		check.Require(t, utf8.ValidString(p), "%q became %q, which is not UTF-8", s, p)
		check.Require(t, Width(p) == sum && ansi.StringWidth(p) == sum,
			"%q: %d cells one by one, %d by Width, %d by terminal", p, sum, Width(p), ansi.StringWidth(p))
	})
}
