package widget

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"

	"locktop/internal/check"
)

func TestFitShortensInTheMiddle(t *testing.T) {
	for _, c := range []struct {
		s    string
		w    int
		want string
	}{
		{"lock:orders:4711", 16, "lock:orders:4711"},
		{"lock:orders:4711", 18, "lock:orders:4711  "},
		{"lock:orders:4711", 11, "lock:…:4711"},
		{"lock:orders:4711", 10, "lock:…4711"},
		{"lock:orders:4711", 2, "l…"},
		{"lock:orders:4711", 1, "…"},
		{"lock:orders:4711", 0, ""},
		{"lock:orders:4711", -3, ""},
		{"", 3, "   "},
		{"東京大阪名古屋", 7, "東…屋  "},
		{"東京大阪名古屋", 9, "東京…古屋"},
		{"鎖", 1, "…"},
	} {
		check.Equal(t, Fit(c.s, c.w), c.want, "Fit(%q, %d)", c.s, c.w)
	}
}

func TestFitEndAndFitRightKeepTheBeginning(t *testing.T) {
	for got, want := range map[string]string{
		Blocks().FitEnd("never expires", 7): "never …", ASCII().FitEnd("never expires", 7): "never ~", Blocks().FitRight("13.5 s", 8): "  13.5 s",
	} {
		check.True(t, got == want, "got %q, want %q", got, want)
	}
}

func TestASimpleCharacterIsOneCellWide(t *testing.T) {
	var all []rune
	for r := rune(' '); r <= utf8.MaxRune; r++ {
		if r != 0x7f && simple(r) {
			all = append(all, r)
		}
	}
	for _, r := range all {
		if n := ansi.StringWidth(string(r)); n != 1 {
			t.Errorf("%q is %d cells wide", r, n)
		}
	}
	check.Equal(t, ansi.StringWidth(string(all)+string(all)), 2*len(all), "cells of all characters")
}

func TestWidthIsThatOfTheTerminal(t *testing.T) {
	for _, s := range []string{"東京 – a", "e\u0301·e", "·\u0301…", "a東b京c", "👩\u200d👧 ×2", "\u0600a", "→\ufe0f", "🇩🇪·🇩🇪", "각-각"} {
		got, want := Width(s), ansi.StringWidth(s)
		check.True(t, got == want, "Width(%q) = %d, want %d", s, got, want)
	}
}

func FuzzFit(f *testing.F) {
	f.Add("lock:orders:4711", 9)
	f.Add("東京大阪", 5)
	f.Add("a東b京c", 4)
	f.Fuzz(func(t *testing.T, s string, w int) {
		if w > 1000 {
			return
		}
		s = Plain(s)
		for name, fit := range map[string]func(string, int) string{
			"Fit": Fit, "FitEnd": Blocks().FitEnd, "FitRight": ASCII().FitRight,
		} {
			got := fit(s, w)
			n := ansi.StringWidth(got)
			check.Require(t, n == max(w, 0), "%s(%q, %d) = %q: %d cells", name, s, w, got, n)
		}
	})
}

func TestChunkLosesNothing(t *testing.T) {
	for _, s := range []string{"", "a", "redis-cli EVAL 'return 1' 1 lock:orders", "東京大阪a京", strings.Repeat("x東", 40)} {
		for w := 2; w < 12; w++ {
			pieces := Chunk(s, w)
			check.Equal(t, strings.Join(pieces, ""), s, "Break(%q, %d) loses something", s, w)
			for _, p := range pieces[:len(pieces)-1] {
				n := ansi.StringWidth(p)
				check.True(t, n <= w && n >= w-1 && p != "", "Break(%q, %d) has a piece of %d cells: %q", s, w, n, p)
			}
		}
	}
}

func TestWrapBreaksBetweenWordsAndShortensTheLastLine(t *testing.T) {
	for _, c := range []struct {
		text string
		w, n int
		want []string
	}{
		{"a lock that never expires", 11, 3, []string{"a lock that", "never", "expires    "}},
		{"a lock that never expires", 11, 2, []string{"a lock that", "never expi…"}},
		{"一 二 三", 5, 2, []string{"一 二", "三   "}},
		{"short", 9, 2, []string{"short"}},
		{"", 9, 2, nil},
		{"text", 9, 0, nil},
	} {
		got := Blocks().Wrap(c.text, c.w, c.n)
		check.True(t, slices.Equal(got, c.want), "Wrap(%q, %d, %d) = %q, want %q", c.text, c.w, c.n, got, c.want)
	}
}
